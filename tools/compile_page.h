// What the page of `mcc compile --report` shows.
#pragma once

#include "graph/passes/plan_memory.h"
#include "nlohmann/json_fwd.hpp"
#include "tools/kernels.h"

namespace mcc::tools {

struct CompiledModel {
  const graph::Graph& graph;
  const std::vector<graph::KernelGroup>& groups;
  const KernelSet& set;
  const graph::MemoryPlan& memory;
  const tensor::Target& target;
  const CompileOptions& options;
  const CompileReport& report;
};

// As Page::compile has it (report_page.h). The same for the same model, options and compiler.
nlohmann::ordered_json compile_page(const CompiledModel& model);

}  // namespace mcc::tools
