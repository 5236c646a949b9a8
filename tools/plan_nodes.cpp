#include "tools/plan_nodes.h"

namespace mcc::tools {

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
    KernelProvenance provenance = parse_provenance(info.schedule);
    node.task = std::move(provenance.task);
    node.schedules = std::move(provenance.schedules);
    node.flops = info.flops;
    node.bytes = info.bytes;
    for (size_t s = 0; s < info.source_count; ++s) node.sources.emplace_back(mcc_model_node_source(model.handle(), i, s));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace mcc::tools
