// Where the buffers that a lowered function allocates live: on the stack, in per-thread scratch, in workspace
// that the kernel's caller hands in, or in a GPU block's shared memory. Shared by code generation and by whoever plans the arena, so both agree.
#pragma once

#include <unordered_map>

#include "codegen/codegen.h"

namespace mcc::codegen {

enum class Home : uint8_t { stack, scratch, workspace, shared };

struct Placement {
  Home home = Home::stack;
  int64_t offset = 0;  // bytes into the thread's scratch, or into shared memory
  int index = 0;       // of the workspace
  int64_t bytes = 0;   // on the stack and in scratch
};

struct MemoryPlan {
  std::unordered_map<const tensor::BufferNode*, Placement> placements;
  KernelMemory memory;
};

// Stack that one function (the kernel, or one of its parallel tasks) may take for local buffers.
inline constexpr int64_t kMaxStackBytes = 64 << 10;

// An error when a thread-private buffer has no constant size.
Result<MemoryPlan> plan_memory(const tensor::Func& lowered);

// A size over symbolic dimensions, at the given values of them.
int64_t evaluate_bytes(const tensor::Expr& bytes, const std::vector<tensor::Var>& dims,
                       std::span<const int64_t> values);

}  // namespace mcc::codegen
