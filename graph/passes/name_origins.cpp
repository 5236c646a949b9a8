#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

bool is_nameless(const Node& node) { return !node.dead && node.origins.empty(); }

}  // namespace

void name_origins(Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_nameless)) return;
  const std::vector<std::vector<NodeId>> users = graph.users();
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!is_nameless(*node)) continue;
    for (ValueId v : node->outputs) {
      if (v == kNoValue) continue;
      for (NodeId user : users[static_cast<size_t>(v)])
        add_origins(*node, graph.node(user));
    }
  }
  for (Node& node : graph.nodes) {
    if (!is_nameless(node)) continue;
    for (ValueId v : node.inputs) {
      if (v != kNoValue && graph.value(v).producer >= 0)
        add_origins(node, graph.node(graph.value(v).producer));
    }
  }
}

}  // namespace mcc::graph
