#include "tools/rounding.h"

#include <algorithm>
#include <cmath>

#include "graph/op.h"
#include "graph/passes/rewrite.h"
#include "tensor/visit.h"

namespace mcc::tools {
namespace {

constexpr double kCancellation = 8;

// Terms of the longest sum in the node's definition; 1 if there is none.
int64_t longest_sum(const graph::Graph& graph, const graph::Node& node) {
  int64_t longest = 1;
  if (!node.op->compute) return longest;
  tensor::for_each_stmt(graph::build_node_func(graph, node).body, [&](const tensor::Stmt& s) {
    const auto* block = s.as<tensor::Block>();
    if (!block) return;
    int64_t terms = 1, extent = 0;
    for (const tensor::Axis& axis : block->axes) {
      // A scan adds to what its step before left.
      if (axis.kind != tensor::AxisKind::spatial && tensor::as_int(axis.domain.extent, &extent))
        terms *= extent;
    }
    longest = std::max(longest, terms);
  });
  return longest;
}

// Which input of an operator is the scale by which it quantises its result; none: std::nullopt.
std::optional<size_t> scale_of_result(const graph::Node& node) {
  if (graph::is_op(node, "QuantizeLinear")) return 1;
  if (graph::is_op(node, "QLinearConv") || graph::is_op(node, "QLinearMatMul")) return 6;
  return std::nullopt;
}

bool is_quantization(const graph::Node& node) {
  return scale_of_result(node) || graph::is_op(node, "DynamicQuantizeLinear");
}

// Half a unit in the last of f16's 11 digits, of bf16's 8.
double unit_of(ElementType type) { return type == ElementType::f16 ? 0x1p-11 : type == ElementType::bf16 ? 0x1p-8 : 0; }

}  // namespace

double Rounding::absolute(double largest) const { return kCancellation * 0x1p-24 * ulps * largest; }

double Rounding::of_operands(double unit, double largest) const {
  return depth == 0 ? 0 : 2 * unit * std::sqrt(static_cast<double>(depth)) * largest;
}

namespace {

// Of each value; since_quantized: of what follows the last step of quantisation.
std::vector<Rounding> rounding_of_values(const graph::Graph& graph, bool since_quantized) {
  std::vector<Rounding> of(graph.values.size());
  const auto is_quantized = [&](graph::ValueId v) {
    const graph::NodeId maker = graph.value(v).producer;
    return since_quantized && maker >= 0 && is_quantization(graph.nodes[static_cast<size_t>(maker)]);
  };
  for (const graph::Node& node : graph.nodes) {
    if (node.dead) continue;
    Rounding r{1, 0, 0, 0};
    for (graph::ValueId v : node.inputs) {
      if (v == graph::kNoValue || graph.value(v).constant || is_quantized(v)) continue;
      const Rounding& in = of[static_cast<size_t>(v)];
      r = {std::max(r.longest_sum, in.longest_sum), std::max(r.depth, in.depth), std::max(r.ulps, in.ulps), std::max(r.unit, in.unit)};
    }
    const int64_t terms = longest_sum(graph, node);
    r.longest_sum = std::max(r.longest_sum, terms);
    r.depth += terms > 1 ? 1 : 0;
    r.ulps += std::sqrt(static_cast<double>(terms));
    for (graph::ValueId v : node.outputs) {
      if (v == graph::kNoValue) continue;
      of[static_cast<size_t>(v)] = r;
      of[static_cast<size_t>(v)].unit = std::max(r.unit, unit_of(graph.value(v).type.element));
    }
  }
  return of;
}

}  // namespace

std::vector<Rounding> rounding_of_outputs(const graph::Graph& graph) {
  const std::vector<Rounding> of = rounding_of_values(graph, false);
  std::vector<Rounding> outputs;
  for (graph::ValueId v : graph.outputs)
    outputs.push_back(of[static_cast<size_t>(v)]);
  return outputs;
}

std::optional<graph::Graph> with_other_steps(const graph::Graph& graph, double unit) {
  const std::vector<Rounding> of = rounding_of_values(graph, true);
  graph::Graph other = graph;
  bool is_other = false;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const graph::Node& node = graph.nodes[n];
    if (node.dead || !is_quantization(node)) continue;
    // The scale is smaller, so that what is divided by it is larger; where it follows from the numbers, for these alone.
    const std::optional<size_t> given = scale_of_result(node);
    const graph::ValueId scale = given ? node.inputs[*given] : node.outputs[1];
    const ElementType element = graph.value(scale).type.element;
    if (!is_float(element) || bit_width(element) < 16) continue;  // of powers of two alone
    const Rounding& r = of[static_cast<size_t>(node.outputs[0])];
    const double error = r.absolute(1) + std::max(r.of_operands(std::max(unit, r.unit), 1), r.unit);
    const graph::ValueId factor =
        other.add_constant(node.name + ".larger", graph::Constant::scalar(element, 1 - error));
    const graph::ValueId smaller = graph::emit(other, "", "Mul", node.name, {scale, factor});
    if (given) {
      other.node(static_cast<graph::NodeId>(n)).inputs[*given] = smaller;
    } else {
      other.replace_uses(node.outputs[0], graph::emit(other, "", "QuantizeLinear", node.name,
                                                      {node.inputs[0], smaller, node.outputs[2]}));
    }
    is_other = true;
  }
  if (!is_other) return std::nullopt;
  other.compact();
  return other;
}

std::string to_text(const Rounding& r) {
  if (r.longest_sum <= 1) return "no sums";
  return text("sums of up to ", r.longest_sum, " terms, ", r.depth, " in a row",
              r.unit > 0x1p-11 ? ", tensors in bf16" : r.unit > 0 ? ", tensors in f16" : "");
}

}  // namespace mcc::tools
