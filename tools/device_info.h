// What a library has for GPUs, for reports.
#pragma once

#include <string>
#include <vector>

#include "mcc/mcc.hpp"
#include "nlohmann/json.hpp"

namespace mcc::tools {

struct ImageInfo {
  std::string kind, arch;  // "ptx", "sm_80"
  uint64_t kernels = 0, bytes = 0;
};

struct LaunchFigures {
  std::string arch;
  uint32_t registers = 0, shared_bytes = 0, stack_bytes = 0, spill_stores = 0, spill_loads = 0;
};

struct LaunchInfo {
  std::string kernel, entry;
  uint32_t grid[3] = {}, block[3] = {};  // of a grid also MCC_BLOCKS_OF_RUN
  uint32_t shared_bytes = 0;
  std::vector<LaunchFigures> figures;
  std::string library;       // that it calls; empty: a kernel of the model's, with a grid
  uint64_t product[4] = {};  // of a call: products, rows, columns, terms of a sum
  uint32_t variant = 0;      // of the kernel's launches for different architectures
  uint64_t times = 1;  // in a run, as a step of a loop that the host carries out; 0: its shapes say how often
};

std::vector<ImageInfo> images_of(const runtime::Model& model);
// Of each kernel once, in the order of their first runs.
std::vector<LaunchInfo> launches_of(const runtime::Model& model);
// Of one node of the plan; none unless it is on a GPU.
std::vector<LaunchInfo> launches_of(const runtime::Model& model, size_t node);
// Each kernel of a variant once, with how many times it is launched.
std::vector<LaunchInfo> without_repeats(std::vector<LaunchInfo> launches);

// "grid 4x1x1, block 32x8x1, 16.0 KB shared, sm_80: 40 registers, no spills"
std::string launch_text(const LaunchInfo& launch);
nlohmann::ordered_json launches_json(const std::vector<LaunchInfo>& launches);

}  // namespace mcc::tools
