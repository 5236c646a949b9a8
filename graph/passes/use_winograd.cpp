// Convolutions of a GPU by Winograd's algorithm:
//
//   y = Conv(x, w, bias)    becomes    y = mcc.Winograd(x, mcc.WinogradWeight(w), bias), on plain tensors
//
// where that is expected to be faster, or known to be (graph/passes/algorithm_choices.h). The weights are transformed when constants are
// folded. What is computed for all sizes is expected to take what it takes for typical ones.
#include "graph/elements.h"
#include "graph/ops/common.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// A convolution that multiplies in f32; operands of tensor cores have another type.
bool multiplies_in_f32(const Graph& g, const Node& node) {
  if (node.dead || node.op->layout != LayoutRole::convolution || node.attributes.integer(kWideResult, 0) != 0)
    return false;
  const Value &x = g.value(node.inputs[0]), &w = g.value(node.inputs[1]);
  // Padding that depends on a size is none that the rewritten node could name.
  if (!is_static(x.type.shape) && !is_explicit(node)) return false;
  return w.constant.has_value() && w.type.shape.size() == 4 && x.type.element == ElementType::f32 &&
         w.type.element == ElementType::f32;
}

void rewrite(Graph& g, NodeId id, int64_t tile) {
  const Node node = g.node(id);
  const int64_t out = static_shape(g.value(node.inputs[1]).type.shape)[0];
  Attributes weight, a;
  weight.set("tile", tile);
  weight.set("block", int64_t{1});
  weight.set("panel", out);
  a.set("tile", tile);
  a.set("pads", explicit_padding(g, node, {kWinogradTaps, kWinogradTaps}, {1, 1}, {1, 1}));
  a.set("channels", out);
  std::vector<ValueId> inputs = node.inputs;
  inputs[1] = emit(g, "mcc", "WinogradWeight", node.name + ".packed", {node.inputs[1]}, weight);
  const ValueId y = emit(g, "mcc", "Winograd", node.name, inputs, a);
  g.node(g.value(y).producer).origins = node.origins;
  take_place(g, node.outputs[0], y);
  g.node(id).dead = true;
}

}  // namespace

void use_winograd(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices) {
  if (target.kind != tensor::TargetKind::cuda) return;
  const int64_t weights = weight_bytes(graph);
  std::optional<Graph> typical;
  if (!graph.dims.empty()) typical = likely_instance(graph);
  const size_t count = graph.nodes.size();
  for (size_t n = 0; n < count; ++n) {
    const auto id = static_cast<NodeId>(n);
    if (!multiplies_in_f32(graph, graph.node(id))) continue;
    const std::optional<ConvProblem> problem =
        conv_problem(graph, graph.node(id), typical ? &*typical : nullptr);
    const int64_t tile = problem ? choose_tile(*problem, graph.node(id), target, weights, choices) : 0;
    if (tile != 0) rewrite(graph, id, tile);
  }
  graph.compact();
}

}  // namespace mcc::graph
