// Operators of a GPU that find elements, in parts:
//
//   p, n = SetPositions(x)    becomes    p, n = SetPositions(x) {in_parts = 1}
//
// One after the other a processor finds them with the least work, and so does one thread of a GPU, which takes a microsecond for a few of
// them. In parts (graph/ops/find_set.h) all threads look, for some more arithmetic and some launches.
#include "graph/elements.h"
#include "graph/ops/find_set.h"
#include "graph/passes/passes.h"

namespace mcc::graph {

void find_in_parts(Graph& graph, const tensor::Target& target) {
  if (target.kind != tensor::TargetKind::cuda) return;
  for (Node& node : graph.nodes) {
    if (node.dead || node.op->domain != "mcc") continue;
    // A bound of the number of items bounds that of its levels.
    const std::optional<int64_t> most = node.op->name == "Unique"
                                            ? largest_count(graph, graph.value(node.inputs[0]).type.shape)
                                            : std::nullopt;
    if (most) node.attributes.set(kMostItems, *most);
    if (node.op->name == "SetPositions" || node.op->name == "SelectBoxes" || node.op->name == "Unique")
      node.attributes.set(kInParts, int64_t{1});
  }
}

}  // namespace mcc::graph
