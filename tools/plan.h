// The plan of a model: what the runtime reads, from the graph's groups, kernels and memory plan.
#pragma once

#include "codegen/model_library.h"
#include "graph/passes/plan_memory.h"
#include "tools/kernels.h"

namespace mcc::tools {

// Fills in plan, kernels and weights of the library; the weights' bytes stay where the graph's constants are.
void fill_library(codegen::ModelLibrary& library, const graph::Graph& graph,
                  const std::vector<graph::KernelGroup>& groups, const KernelSet& kernels,
                  const graph::MemoryPlan& memory);

}  // namespace mcc::tools
