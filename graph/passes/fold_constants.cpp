#include <algorithm>

#include "graph/passes/passes.h"

namespace mcc::graph {

Status fold_constants(Graph& graph, const Evaluator& evaluate, bool keeps_quantized) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.dead || (keeps_quantized && node.op->is_folded_late)) continue;
    Result<std::optional<std::vector<Constant>>> folded = fold_node(graph, node, evaluate);
    if (!folded) return folded.errors();
    if (!*folded) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      Value& value = graph.value(node.outputs[i]);
      value.constant = (**folded)[i];
      value.producer = -1;
    }
    graph.nodes[n].dead = true;
  }
  graph.compact();
  return done();
}

}  // namespace mcc::graph
