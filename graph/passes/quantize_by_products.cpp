// QuantizeLinear by one constant scale as a product (mcc.Quantize, graph/ops/quantize.cpp): a division takes a vector unit some 16
// cycles, the rest of the operator half of that.
//
// x / s is x * f + x * r, f the float below 1 / s and r the float next to 1 / s - f; the first product and the sum are rounded once
// (fma). This is off by 2^-47 before it is rounded, which can matter only where x / s is as near to a number halfway between two
// floats. As both ways are monotone in x, they give the same integers everywhere if they do so on both sides of the least x for which
// the division gives each integer: all of these are tried here, and what differs stays a division. Both factors are positive, so that
// infinities stay what they are.
#include <cmath>
#include <limits>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of 1 / scale.
struct Factors {
  float below, rest;

  explicit Factors(float scale) {
    below = 1 / scale;
    if (1 - static_cast<double>(below) * scale <= 0) below = std::nextafter(below, 0.0F);
    rest = static_cast<float>((1 - static_cast<double>(below) * scale) / scale);
  }
  float round(float x) const { return std::nearbyint(std::fma(x, below, x * rest)); }
};

// The least float that the division takes to so many steps or more.
float first_of(float scale, int64_t steps) {
  auto reaches = [&](float x) { return std::nearbyint(x / scale) >= static_cast<float>(steps); };
  auto x = static_cast<float>((static_cast<double>(steps) - 0.5) * scale);
  while (reaches(x))
    x = std::nextafter(x, -kInfinity);
  while (!reaches(x))
    x = std::nextafter(x, kInfinity);
  return x;
}

// Whether products give the same as the division for results of so many steps.
bool are_exact(const Factors& factors, float scale, int64_t low, int64_t high) {
  for (int64_t steps = low + 1; steps <= high; ++steps) {
    const float first = first_of(scale, steps), before = std::nextafter(first, -kInfinity);
    const auto bound = static_cast<float>(steps);
    if (factors.round(first) < bound || factors.round(before) >= bound) return false;
  }
  return true;
}

void quantize_by_product(Graph& g, NodeId id) {
  const Node node = g.node(id);
  const TensorType &in = g.value(node.inputs[0]).type, &out = g.value(node.outputs[0]).type;
  const std::optional<Constant>& scale = g.value(node.inputs[1]).constant;
  const ValueId zero_point = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
  const std::optional<double> zero = zero_point == kNoValue ? 0 : uniform_value(g, zero_point);
  if (in.element != ElementType::f32 || !is_int(out.element) || bit_width(out.element) > 16 || !zero ||
      !scale || scale->count() != 1 || scale->element() != ElementType::f32 ||
      node.attributes.integer("block_size", 0) != 0)
    return;
  const auto s = static_cast<float>(scale->number_at(0));
  constexpr float kLeast = 0x1p-60F;  // nothing below underflows or overflows
  if (!(s > kLeast) || !(s < 1 / kLeast)) return;
  const bool is_signed = is_signed_int(out.element);
  const int64_t values = int64_t{1} << bit_width(out.element), least = is_signed ? -values / 2 : 0;
  const int64_t low = least - static_cast<int64_t>(*zero), high = low + values - 1;
  const Factors factors(s);
  if (!are_exact(factors, s, low, high)) return;
  auto number = [&](const char* what, float value) {
    return g.add_constant(node.name + what, Constant::scalar(ElementType::f32, value));
  };
  Attributes a;
  a.set("to", std::string(mcc::to_text(out.element)));
  a.set("zero_point", static_cast<int64_t>(*zero));
  const ValueId y =
      emit(g, "mcc", "Quantize", node.name,
           {node.inputs[0], number(".factor", factors.below), number(".rest", factors.rest)}, a);
  g.node(g.value(y).producer).origins = node.origins;
  take_place(g, node.outputs[0], y);
  g.node(id).dead = true;
}

}  // namespace

void quantize_by_products(Graph& graph, const tensor::Target& target) {
  if (!target.has_fma) return;
  const size_t count = graph.nodes.size();
  for (size_t n = 0; n < count; ++n) {
    if (is_op(graph.nodes[n], "QuantizeLinear") && graph.nodes[n].op->domain.empty())
      quantize_by_product(graph, static_cast<NodeId>(n));
  }
  graph.compact();
}

}  // namespace mcc::graph
