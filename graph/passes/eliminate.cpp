// Dead code and common subexpressions.
#include <algorithm>
#include <cstring>
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/visit.h"

namespace mcc::graph {

namespace {

// Of comparisons of sizes: what else they mention, others use.
template <class F>
void need_conditions(const Graph& graph, F need) {
  for (const DimEquality& e : graph.equalities)
    for (size_t i = 0; i < graph.dims.size(); ++i)
      if (graph.is_condition(i) && (tensor::uses_var(e.a, graph.dims[i]) || tensor::uses_var(e.b, graph.dims[i]))) need(graph.dim_sources[i].value);
}

}  // namespace

void eliminate_dead_code(Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  std::vector<NodeId> work;
  auto need = [&](ValueId v) {
    NodeId producer = v == kNoValue ? -1 : graph.value(v).producer;
    if (producer < 0 || live[static_cast<size_t>(producer)]) return;
    live[static_cast<size_t>(producer)] = true;
    work.push_back(producer);
  };
  for (ValueId out : graph.outputs)
    need(out);
  need_conditions(graph, need);
  while (!work.empty()) {
    NodeId id = work.back();
    work.pop_back();
    const Node& node = graph.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!is_embedded(graph, node, static_cast<int>(i))) need(node.inputs[i]);
    for (ValueId v : graph.dim_operands(node))
      need(v);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    graph.nodes[n].dead = !live[n];
    if (live[n]) continue;
    // Elements that are part of definitions alone need nobody who writes them to memory.
    for (ValueId v : graph.nodes[n].outputs)
      if (v != kNoValue && !graph.value(v).elements.empty()) graph.value(v).producer = -1;
  }
  graph.compact();
}

namespace {

bool same_constant(const Constant& a, const Constant& b) {
  if (a.element() != b.element() || a.shape() != b.shape()) return false;
  if (a.element() == ElementType::string) return false;
  if (a.bytes().data() == b.bytes().data()) return true;
  if (a.bytes().size() != b.bytes().size()) return false;
  // Large ones, too: layers that share weights have copies of them, transposed or packed one by one. Others differ early.
  return std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

void share_constants(Graph& graph) {
  // Candidates by a key that sorts, so that the order of values decides and nothing else.
  std::map<std::pair<std::vector<int64_t>, int>, std::vector<ValueId>> seen;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const auto& constant = graph.values[i].constant;
    if (!constant) continue;
    auto id = static_cast<ValueId>(i);
    auto& list = seen[{constant->shape(), static_cast<int>(constant->element())}];
    auto same = std::find_if(list.begin(), list.end(), [&](ValueId other) {
      return same_constant(*constant, *graph.value(other).constant);
    });
    if (same != list.end()) {
      if (!graph.is_output(id)) graph.replace_uses(id, *same);
    } else {
      list.push_back(id);
    }
  }
}

}  // namespace

void eliminate_common_subexpressions(Graph& graph) {
  share_constants(graph);
  std::map<std::pair<std::string, std::vector<ValueId>>, std::vector<NodeId>> seen;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.dead || node.op->fusion == FusionClass::host) continue;
    auto& list = seen[{text(node.op->domain, ":", node.op->name), node.inputs}];
    auto id = static_cast<NodeId>(n);
    auto same = std::find_if(list.begin(), list.end(), [&](NodeId other) {
      const Node& o = graph.node(other);
      return o.outputs.size() == node.outputs.size() && o.attributes == node.attributes;
    });
    if (same == list.end()) {
      list.push_back(id);
      continue;
    }
    bool replaced = true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      ValueId from = node.outputs[i], to = graph.node(*same).outputs[i];
      if (from == kNoValue) continue;
      // An output of the graph keeps its own value and name.
      if (to == kNoValue || graph.is_output(from)) {
        replaced = false;
        continue;
      }
      graph.replace_uses(from, to);
    }
    if (replaced) absorb(graph, id, *same);
  }
  graph.compact();
}

}  // namespace mcc::graph
