// The nodes of a library's plan, and where their schedules are from.
#pragma once

#include <string>
#include <vector>

#include "mcc/mcc.hpp"
#include "tools/provenance.h"

namespace mcc::tools {

// One node, with what its schedule text says in front of the steps.
struct PlanNodeInfo {
  size_t index = 0;
  std::string name, kind;
  std::string task;  // id; empty unless it is a kernel
  std::vector<KernelSchedule> schedules;  // one at least, which is empty unless it is a kernel
  std::vector<std::string> sources;  // ONNX nodes
  int64_t flops = 0, bytes = 0;  // -1: depends on the sizes of open dimensions
  double ms = 0, share = 0;  // when profiled
};

std::vector<PlanNodeInfo> nodes_of(const runtime::Model& model);

}  // namespace mcc::tools
