// Algebraic simplification: rows of (name, operator, rule). Each rule looks at one node and either leaves it, or
// says which value replaces its output. Rules that would change a NaN, an infinity or a sign of zero into another
// result are not here: x*0 -> 0, x-x -> 0, x/x -> 1.
#include <algorithm>
#include <cmath>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

const TensorType& type_of(const Graph& g, ValueId v) { return g.value(v).type; }

// The value that stands for the node's first output, or kNoValue.
using Rule = ValueId (*)(Graph& g, NodeId id);

ValueId same_input(Graph& g, NodeId id) { return g.node(id).inputs[0]; }

bool keeps_type(const Graph& g, const Node& node, ValueId input) {
  const TensorType& in = type_of(g, input);
  const TensorType& out = type_of(g, node.outputs[0]);
  return in.element == out.element && same_shape(in.shape, out.shape);
}

// Cast to the type it has; Reshape, Expand, Flatten, Squeeze, ... to the shape it has.
ValueId same_type(Graph& g, NodeId id) {
  const Node& node = g.node(id);
  return keeps_type(g, node, node.inputs[0]) ? node.inputs[0] : kNoValue;
}

// Dropout in inference, when its mask is not used.
ValueId dropout(Graph& g, NodeId id) {
  const Node& node = g.node(id);
  bool training = false;
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    const auto& mode = g.value(node.inputs[2]).constant;
    training = !mode || mode->int_at(0) != 0;
  }
  bool has_mask = node.outputs.size() > 1 && node.outputs[1] != kNoValue &&
                  (g.is_output(node.outputs[1]) || !g.users()[static_cast<size_t>(node.outputs[1])].empty());
  return training || has_mask ? kNoValue : node.inputs[0];
}

// x op c = x for the neutral element c (only when broadcasting keeps x's shape). commutes: c op x too.
ValueId neutral(Graph& g, NodeId id, double element, bool commutes) {
  const Node& node = g.node(id);
  for (size_t side = 0; side < (commutes ? 2 : 1); ++side) {
    ValueId x = node.inputs[side], c = node.inputs[1 - side];
    if (uniform_value(g, c) == element && keeps_type(g, node, x)) return x;
  }
  return kNoValue;
}
ValueId mul_one(Graph& g, NodeId id) { return neutral(g, id, 1, true); }
ValueId div_one(Graph& g, NodeId id) { return neutral(g, id, 1, false); }
// x + 0 turns -0 into +0: equal values, and no later operator of the graph but 1/x tells them apart.
ValueId add_zero(Graph& g, NodeId id) { return neutral(g, id, 0, true); }
ValueId sub_zero(Graph& g, NodeId id) { return neutral(g, id, 0, false); }
ValueId pow_constant(Graph& g, NodeId id) {
  const Node node = g.node(id);
  std::optional<double> exponent = uniform_value(g, node.inputs[1]);
  if (!exponent || !is_float(type_of(g, node.inputs[0]).element)) return kNoValue;
  ValueId x = node.inputs[0];
  if (!keeps_type(g, node, x)) return kNoValue;
  if (*exponent == 1) return x;
  if (*exponent == 2) return emit(g, "", "Mul", node.name, {x, x});
  if (*exponent == 3) return emit(g, "", "Mul", node.name, {emit(g, "", "Mul", node.name, {x, x}), x});
  return kNoValue;
}

// x / c = x * (1/c) when 1/c is exact (c a power of two): the same result, and cheaper.
ValueId div_by_power_of_two(Graph& g, NodeId id) {
  const Node node = g.node(id);
  ValueId one = div_one(g, id);
  if (one != kNoValue) return one;
  std::optional<double> c = uniform_value(g, node.inputs[1]);
  ElementType element = type_of(g, node.inputs[0]).element;
  if (!c || *c == 0 || (element != ElementType::f32 && element != ElementType::f64)) return kNoValue;
  int exponent = 0;
  double fraction = std::frexp(*c, &exponent);
  if (std::fabs(fraction) != 0.5 || std::abs(exponent) > 100) return kNoValue;
  const Constant& old = *g.value(node.inputs[1]).constant;
  Constant scalar = Constant::scalar(element, 1 / *c);
  Constant inverse(element, std::vector<int64_t>(old.shape().size(), 1), scalar.bytes(),
                   std::make_shared<Constant>(scalar));
  return emit(g, "", "Mul", node.name, {node.inputs[0], g.add_constant(node.name + ".inverse", inverse)});
}

NodeId producer(const Graph& g, ValueId v, std::string_view op) {
  NodeId p = g.value(v).producer;
  return p >= 0 && is_op(g.node(p), op) ? p : -1;
}

ValueId emit_reshape(Graph& g, const Node& like, ValueId x, const Shape& shape) {
  ValueId dims = g.add_constant(like.name + ".shape", Constant::ints(static_shape(shape)));
  Attributes attributes;
  attributes.set("allowzero", int64_t{1});
  return emit(g, "", "Reshape", like.name, {x, dims}, attributes);
}

// reshape(reshape(x)) = reshape(x)
ValueId reshape_chain(Graph& g, NodeId id) {
  const Node node = g.node(id);
  if (ValueId same = same_type(g, id); same != kNoValue) return same;
  NodeId before = g.value(node.inputs[0]).producer;
  const Shape& shape = type_of(g, node.outputs[0]).shape;
  if (before < 0 || !g.node(before).op->is_view || !is_static(shape)) return kNoValue;
  return emit_reshape(g, node, g.node(before).inputs[0], shape);
}

// softmax(reshape(x)) = reshape(softmax(x)) where the rows are the same: before opset 13 all axes ahead of the last are one.
ValueId softmax(Graph& g, NodeId id) {
  const Node node = g.node(id);
  const Shape& shape = type_of(g, node.outputs[0]).shape;
  const NodeId before = g.value(node.inputs[0]).producer;
  if (before < 0 || !g.node(before).op->is_view || !is_static(shape) || g.is_output(node.outputs[0])) return kNoValue;
  const ValueId x = g.node(before).inputs[0];
  const Shape& in = type_of(g, x).shape;
  const int64_t axis = node.attributes.integer("axis", -1), last = static_cast<int64_t>(shape.size()) - 1;
  if ((axis != -1 && axis != last) || !is_static(in) || in.empty() || static_shape(in).back() != static_shape(shape).back())
    return kNoValue;
  Attributes attributes;
  attributes.set("axis", int64_t{-1});
  const Shape result = shape;
  return emit_reshape(g, node, emit(g, "", node.op->name, node.name, {x}, attributes), result);
}

// transpose(transpose(x, p), q) = transpose(x, p[q]); one that moves nothing is x, one that moves only dimensions of extent 1 a reshape.
ValueId transpose(Graph& g, NodeId id) {
  const Node node = g.node(id);
  std::vector<int64_t> perm = permutation_of(g, node);
  if (NodeId before = producer(g, node.inputs[0], "Transpose"); before >= 0) {
    std::vector<int64_t> first = permutation_of(g, g.node(before)), both(perm.size());
    for (size_t i = 0; i < perm.size(); ++i)
      both[i] = first[static_cast<size_t>(perm[i])];
    Attributes attributes;
    attributes.set("perm", both);
    return emit(g, "", "Transpose", node.name, {g.node(before).inputs[0]}, attributes);
  }
  const Shape in = type_of(g, node.inputs[0]).shape;
  if (!is_static(in)) {
    if (!std::is_sorted(perm.begin(), perm.end())) return kNoValue;
    return g.is_output(node.outputs[0]) ? reshaped(g, node.name, node.inputs[0], in) : node.inputs[0];
  }
  int64_t last = -1;
  for (int64_t p : perm) {
    if (tensor::is_int(in[static_cast<size_t>(p)], 1)) continue;
    if (p < last) return kNoValue;
    last = p;
  }
  return emit_reshape(g, node, node.inputs[0], type_of(g, node.outputs[0]).shape);
}

// tile(x [.., n, ..], r) = reshape(expand(reshape(x, [.., 1, n, ..]), [.., r, n, ..])): rows are read one after the other.
ValueId tile(Graph& g, NodeId id) {
  const Node node = g.node(id);
  if (ValueId same = same_type(g, id); same != kNoValue) return same;
  const Shape& from = type_of(g, node.inputs[0]).shape;
  const Shape& to = type_of(g, node.outputs[0]).shape;
  if (!is_static(from) || !is_static(to) || static_count(to) == 0) return kNoValue;
  std::vector<int64_t> in = static_shape(from), out = static_shape(to), apart, repeated;
  for (size_t i = 0; i < in.size(); ++i) {
    if (out[i] != in[i] && in[i] != 1) {
      apart.push_back(1);
      repeated.push_back(out[i] / in[i]);
    }
    apart.push_back(in[i]);
    repeated.push_back(in[i] == 1 ? out[i] : in[i]);
  }
  ValueId x = emit_reshape(g, node, node.inputs[0], make_shape(apart));
  x = emit(g, "", "Expand", node.name, {x, g.add_constant(node.name + ".shape", Constant::ints(repeated))});
  return emit_reshape(g, node, x, make_shape(out));
}

// cast(cast(x, wider), T) = cast(x, T) when the first cast loses nothing.
ValueId cast(Graph& g, NodeId id) {
  const Node node = g.node(id);
  if (ValueId same = same_type(g, id); same != kNoValue) return same;
  NodeId before = producer(g, node.inputs[0], "Cast");
  if (before < 0) return kNoValue;
  ValueId x = g.node(before).inputs[0];
  ElementType from = type_of(g, x).element, via = type_of(g, node.inputs[0]).element;
  bool lossless =
      (from == ElementType::f32 && via == ElementType::f64) ||
      ((from == ElementType::f16 || from == ElementType::bf16) && is_float(via) && bit_width(via) >= 32) ||
      (is_bool(from) && !is_bool(via)) ||
      (is_signed_int(from) && is_signed_int(via) && bit_width(via) > bit_width(from)) ||
      (is_unsigned_int(from) && is_int(via) && bit_width(via) > bit_width(from));
  if (!lossless) return kNoValue;
  return emit(g, "", "Cast", node.name, {x}, node.attributes);
}

// quantize(dequantize(x)) = x with the same scale and zero point: (x - zero) * scale / scale is off by far less than a half.
ValueId quantize_again(Graph& g, NodeId id) {
  const Node& node = g.node(id);
  const NodeId before = producer(g, node.inputs[0], "DequantizeLinear");
  if (before < 0 || type_of(g, node.inputs[0]).element != ElementType::f32) return kNoValue;
  const Node& from = g.node(before);
  const ValueId x = from.inputs[0];
  auto zero_of = [&](const Node& n) { return n.inputs.size() > 2 && n.inputs[2] != kNoValue ? uniform_value(g, n.inputs[2]) : std::optional(0.0); };
  const std::optional<double> scale = uniform_value(g, node.inputs[1]);
  const bool is_same = scale && *scale != 0 && std::fabs(*scale) < 1e30 && scale == uniform_value(g, from.inputs[1]) && zero_of(node) && zero_of(node) == zero_of(from);
  return is_same && bit_width(type_of(g, x).element) <= 16 && keeps_type(g, node, x) ? x : kNoValue;
}

// Concat and the variadic operators of one input.
ValueId single_operand(Graph& g, NodeId id) {
  const Node& node = g.node(id);
  return node.inputs.size() == 1 && keeps_type(g, node, node.inputs[0]) ? node.inputs[0] : kNoValue;
}

struct Row {
  std::string_view op;
  Rule rule;
};

constexpr Row kRows[] = {
    {"Identity", same_input},  // identity(x) = x
    {"MayRound", same_input},  // a permission that nobody has made use of
    {"Dropout", dropout},      // dropout(x) = x in inference
    {"Cast", cast},
    {"Reshape", reshape_chain},
    {"Flatten", reshape_chain},
    {"Squeeze", reshape_chain},
    {"Unsqueeze", reshape_chain},
    {"Expand", same_type},
    {"Tile", tile},
    {"Slice",
     same_type},  // of everything, forwards: a slice that keeps the shape with step -1 is no identity
    {"Transpose", transpose},
    {"Softmax", softmax},
    {"LogSoftmax", softmax},
    {"Mul", mul_one},
    {"Div", div_by_power_of_two},
    {"Add", add_zero},
    {"Sub", sub_zero},
    {"Pow", pow_constant},
    {"QuantizeLinear", quantize_again},
    {"Concat", single_operand},
    {"Sum", single_operand},
    {"Max", single_operand},
    {"Min", single_operand},
    {"Mean", single_operand},
};

// A slice whose steps are not all positive may keep the shape and yet reverse.
bool is_reversing_slice(const Graph& g, const Node& node) {
  if (!is_op(node, "Slice") || node.inputs.size() < 5 || node.inputs[4] == kNoValue) return false;
  const auto& steps = g.value(node.inputs[4]).constant;
  if (!steps) return true;
  std::vector<int64_t> values = steps->to_ints();
  return std::any_of(values.begin(), values.end(), [](int64_t s) { return s < 0; });
}

// A graph output keeps its own value: it may become an alias of another only through the node that makes it.
bool replace(Graph& g, NodeId id, ValueId with) {
  ValueId out = g.node(id).outputs[0];
  if (g.is_output(out)) {
    // The replacement becomes the output if it is a fresh value of the pass; it takes over the name.
    NodeId maker = g.value(with).producer;
    if (maker < 0 || g.is_output(with) || g.users()[static_cast<size_t>(with)].size() != 0) return false;
    g.value(with).name = g.value(out).name;
  }
  g.replace_uses(out, with);
  NodeId maker = g.value(with).producer;
  if (maker >= 0) {
    absorb(g, id, maker);
  } else {
    g.node(id).dead = true;
  }
  return true;
}

}  // namespace

void simplify_algebra(Graph& graph) {
  bool changed = true;
  for (int round = 0; changed && round < 8; ++round) {
    changed = false;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      auto id = static_cast<NodeId>(n);
      for (const Row& row : kRows) {
        if (!is_op(graph.node(id), row.op) || is_reversing_slice(graph, graph.node(id))) continue;
        ValueId with = row.rule(graph, id);
        if (with == kNoValue) continue;
        changed |= replace(graph, id, with);
        break;
      }
    }
    eliminate_dead_code(graph);
  }
}

}  // namespace mcc::graph
