#include <map>
#include <set>

#include "tools/kernels.h"

namespace mcc::tools {

namespace {

graph::Constant in_order(const graph::Constant& constant, const tensor::WeightOrder& order) {
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor::reordered(order, constant.bytes()));
  return {constant.element(), constant.shape(), std::span<const std::byte>(*bytes), bytes};
}

using Known = std::map<std::pair<graph::ValueId, std::string>, graph::ValueId>;

// Constants that are there in other orders only.
void release_unused(graph::Graph& graph, const std::vector<graph::KernelGroup>& groups, const Known& known) {
  std::set<graph::ValueId> used(graph.outputs.begin(), graph.outputs.end());
  for (const graph::KernelGroup& group : groups)
    used.insert(group.inputs.begin(), group.inputs.end());
  for (const auto& [key, ordered] : known) {
    if (!used.contains(key.first)) graph.value(key.first).constant = graph::Constant();
  }
}

}  // namespace

void order_weights(graph::Graph& graph, std::vector<graph::KernelGroup>& groups, const KernelSet& set) {
  Known known;  // values in an order
  for (size_t g = 0; g < groups.size(); ++g) {
    if (set.of_group[g] < 0) continue;
    for (const tensor::WeightOrder& order : set.kernels[static_cast<size_t>(set.of_group[g])].orders) {
      graph::ValueId& input = groups[g].inputs[order.parameter];
      auto [entry, is_new] = known.try_emplace({input, order.map}, graph::kNoValue);
      if (is_new) {
        const graph::Value& value = graph.value(input);
        entry->second = graph.add_constant(value.name, in_order(*value.constant, order));
      }
      input = entry->second;
    }
  }
  release_unused(graph, groups, known);
}

}  // namespace mcc::tools
