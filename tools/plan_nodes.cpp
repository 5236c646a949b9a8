#include "tools/plan_nodes.h"

#include <algorithm>

namespace mcc::tools {

namespace {

std::string take_line(std::string& s, const std::string& start) {
  if (!s.starts_with(start)) return "";
  const size_t end = std::min(s.find('\n'), s.size());
  std::string line = s.substr(start.size(), end - start.size());
  s.erase(0, std::min(end + 1, s.size()));
  return line;
}

}  // namespace

std::vector<PlanNodeInfo> nodes_of(const runtime::Model& model) {
  std::vector<PlanNodeInfo> nodes;
  for (size_t i = 0; i < model.sizes().node_count; ++i) {
    mcc_node_info info = {};
    info.struct_size = sizeof info;
    if (mcc_model_node(model.handle(), i, &info) != MCC_OK) continue;
    PlanNodeInfo node;
    node.index = i;
    node.name = info.name;
    node.kind = info.kind;
    node.trace = info.schedule;
    node.task = take_line(node.trace, "# task ");
    node.origin = take_line(node.trace, "# from ");
    node.flops = info.flops;
    node.bytes = info.bytes;
    for (size_t s = 0; s < info.source_count; ++s) node.sources.emplace_back(mcc_model_node_source(model.handle(), i, s));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace mcc::tools
