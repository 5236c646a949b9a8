// Nodes in an order in which each comes behind those whose results it uses. ONNX asks for one; onnxruntime does not, and converters have
// appended nodes to the end whose results are used before.
#include <queue>
#include <unordered_map>

#include "frontend/model_prepare.h"

namespace mcc::frontend {

namespace {

using Edges = std::vector<std::vector<int>>;
using Names = std::set<std::string>;

Names used_names(const onnx::NodeProto& node);

}  // namespace

Names outer_names(const onnx::GraphProto& graph) {
  Names own, used;
  for (const auto& input : graph.input())
    own.insert(input.name());
  for (const auto& tensor : graph.initializer())
    own.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer())
    own.insert(tensor.values().name());
  for (const auto& node : graph.node()) {
    own.insert(node.output().begin(), node.output().end());
    used.merge(used_names(node));
  }
  for (const auto& output : graph.output())
    used.insert(output.name());
  for (const std::string& name : own)
    used.erase(name);
  return used;
}

namespace {

Names used_names(const onnx::NodeProto& node) {
  Names used(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) used.merge(outer_names(attribute.g()));
    for (const auto& graph : attribute.graphs())
      used.merge(outer_names(graph));
  }
  used.erase("");  // an input that is left out
  return used;
}

// Of each node those that use its results.
Edges users_of_nodes(const onnx::GraphProto& graph) {
  std::unordered_map<std::string, int> producers;
  for (int i = 0; i < graph.node_size(); ++i)
    for (const std::string& output : graph.node(i).output())
      if (!output.empty()) producers.emplace(output, i);
  Edges users(static_cast<size_t>(graph.node_size()));
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string& name : used_names(graph.node(i)))
      if (const auto producer = producers.find(name); producer != producers.end())
        users[static_cast<size_t>(producer->second)].push_back(i);
  }
  return users;
}

bool is_in_order(const Edges& users) {
  for (size_t i = 0; i < users.size(); ++i)
    for (const int user : users[i])
      if (user <= static_cast<int>(i)) return false;
  return true;
}

// The first in the file among those that may come next (Kahn's algorithm). What lies on a cycle, or behind one, comes last.
std::vector<int> ordered(const Edges& users) {
  std::vector<int> missing(users.size());
  for (const std::vector<int>& list : users)
    for (const int user : list)
      ++missing[static_cast<size_t>(user)];
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i] == 0) ready.push(static_cast<int>(i));
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const int user : users[static_cast<size_t>(order.back())])
      if (--missing[static_cast<size_t>(user)] == 0) ready.push(user);
  }
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i] > 0) order.push_back(static_cast<int>(i));
  return order;
}

}  // namespace

void order_nodes(onnx::GraphProto& graph) {
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) order_nodes(*attribute.mutable_g());
      for (auto& inner : *attribute.mutable_graphs())
        order_nodes(inner);
    }
  }
  const Edges users = users_of_nodes(graph);
  if (is_in_order(users)) return;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (const int i : ordered(users))
    nodes.Add()->Swap(graph.mutable_node(i));
  graph.mutable_node()->Swap(&nodes);
}

}  // namespace mcc::frontend
