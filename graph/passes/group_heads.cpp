// Products whose right operand is repeated for groups of the batch get an axis for these (repeated_heads.h): what is repeated is read for
// the rows of all of a group at once, instead of being written many times to be read as often.
#include "graph/passes/passes.h"
#include "graph/passes/repeated_heads.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {

void group_heads(Graph& graph, const tensor::Target& target) {
  const std::vector<std::vector<NodeId>> users = graph.users();
  const size_t count = graph.nodes.size();
  for (size_t n = 0; n < count; ++n) {
    const auto id = static_cast<NodeId>(n);
    const Node product = graph.node(id);
    if (product.dead || !is_op(product, "MatMul") || !product.op->domain.empty()) continue;
    // Of known sizes GPUs have attention with groups of its own (fuse_attention).
    if (target.kind == tensor::TargetKind::cuda && is_static(graph.value(product.outputs[0]).type.shape))
      continue;
    const std::optional<RepeatedHeads> heads = repeated_heads(graph, users, id);
    if (!heads) continue;
    const ValueId left = product.inputs[0];
    const ValueId rows = reshaped(graph, product.name, left, heads->split(graph.value(left).type.shape));
    const ValueId y = emit(graph, "", "MatMul", product.name, {rows, heads->operand}, product.attributes);
    graph.node(graph.value(y).producer).origins = product.origins;
    take_grouped_result(graph, users, id, *heads, y);
  }
  eliminate_dead_code(graph);
}

}  // namespace mcc::graph
