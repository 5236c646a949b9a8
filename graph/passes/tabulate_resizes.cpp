// Tables of resizes as operators of their own, which are folded:
//
//   y = Resize(x, , scales)    becomes    first, weight = mcc.ResizeTable() {in = 40, out = 80, ..}
//                                         y = Resize(x, , scales, , first, weight)
//
// A kernel would compute them in each run, and that of a GPU in launches of their own.
#include <algorithm>

#include "graph/ops/resize.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {

void tabulate_resizes(Graph& graph) {
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node node = graph.node(id);
    if (node.dead || !node.op->domain.empty() || node.op->layout != LayoutRole::resize ||
        node.inputs.size() > kFirstTable)
      continue;
    std::vector<ValueId> inputs = node.inputs;
    for (const ResizeTable& table : tables_of_resize(graph, node)) {
      const ValueId first =
          emit(graph, "mcc", "ResizeTable", node.name + ".table", {}, table.attributes, table.results);
      Node& made = graph.node(graph.value(first).producer);
      add_origins(made, node);
      inputs.resize(std::max(inputs.size(), static_cast<size_t>(table.input)), kNoValue);
      inputs.insert(inputs.end(), made.outputs.begin(), made.outputs.end());
    }
    graph.node(id).inputs = inputs;
  }
  graph.compact();
}

}  // namespace mcc::graph
