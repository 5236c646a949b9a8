// Where the buffers that a lowered function allocates live: on the stack, in per-thread scratch, in workspace
// that the kernel's caller hands in (of buffers of one thread without a bound: a part for each thread), or in a GPU block's shared memory. Shared by code generation and by whoever plans the arena, so both agree.
#pragma once

#include <unordered_map>

#include "codegen/codegen.h"

namespace mcc::codegen {

enum class Home : uint8_t { stack, scratch, workspace, thread_workspace, shared };

struct Placement {
  Home home = Home::stack;
  int64_t offset = 0;  // bytes into the thread's scratch, or into shared memory
  int index = 0;       // of the workspace
  int64_t bytes = 0;   // on the stack and in scratch
  tensor::Expr stride;  // bytes from one thread's part of a workspace to the next one's
};

struct MemoryPlan {
  std::unordered_map<const tensor::BufferNode*, Placement> placements;
  KernelMemory memory;
};

// Stack that one function (the kernel, or one of its parallel tasks) may take for local buffers.
inline constexpr int64_t kMaxStackBytes = 64 << 10;

// An error when a thread-private buffer has a size that is known inside of a loop alone.
Result<MemoryPlan> plan_memory(const tensor::Func& lowered);

// A size over symbolic dimensions, at the given values of them and for one thread.
int64_t evaluate_bytes(const tensor::Expr& bytes, const std::vector<tensor::Var>& dims,
                       std::span<const int64_t> values);

}  // namespace mcc::codegen
