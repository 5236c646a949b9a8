// A lowered function of a GPU target, cut into its launches. Internal to codegen.
#pragma once

#include <array>

#include "codegen/device.h"
#include "codegen/memory_plan.h"

namespace mcc::codegen {

// "block.x" .. "block.z" are 0 .. 2, "thread.x" .. "thread.z" 3 .. 5.
inline constexpr int kThreadAxes = 6;

// Of a tensor map (CUtensorMap), which a kernel takes by value.
inline constexpr uint64_t kMapBytes = 128;

struct LaunchPlan {
  tensor::Stmt nest;
  // Serial loops around it, which the host carries out: a launch for each iteration.
  std::vector<const tensor::For*> steps;
  std::vector<const tensor::Let*> lets;  // around it; they use dims and variables of steps alone
  std::array<const tensor::For*, kThreadAxes> axes{};  // null: not bound
  std::vector<int> buffers;                            // used; params, then workspaces
  std::vector<bool> is_written;                        // of each
  std::vector<int> dims;
  std::vector<TensorMap> maps;
  std::unordered_map<const tensor::Call*, size_t> map_of;  // bulk_copy; looked up only
  int64_t shared_bytes = 0, shared_align = 128;  // of their beginning
  std::optional<tensor::LibraryProduct> product;  // of a call of a library, as DeviceLaunch has it
  int64_t library_bytes = 0;
};

// One of the launches of a run of the kernel, or, in a loop, of each of its iterations. Loops inside of another one are written out.
struct Turn {
  size_t launch = 0;            // in DevicePlan::launches
  std::vector<int64_t> values;  // of the variables of its steps, but for that of the outermost one
  // Where the outermost loop begins: it, and the turns of an iteration.
  const tensor::For* loop = nullptr;
  size_t loop_turns = 0;
};

struct DevicePlan {
  std::vector<LaunchPlan> launches;
  std::vector<Turn> turns;
  MemoryPlan memory;  // shared buffers have an offset into their launch's
};

// Errors: all that the target's GPU cannot run.
Result<DevicePlan> plan_device(const tensor::Func& lowered, const tensor::Gpu& gpu);

// The number of a bound loop's axis.
int thread_axis(const tensor::For& loop);

}  // namespace mcc::codegen
