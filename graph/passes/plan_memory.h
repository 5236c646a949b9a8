// Where every tensor lies while the model runs.
#pragma once

#include "graph/passes/fuse.h"

namespace mcc::graph {

struct Place {
  enum class Kind { none, arena, heap, constant, input, output } kind = Kind::none;
  int64_t index = 0;   // arena: byte offset; heap: number of a block; input, output: position; constant: the value that holds it
  int64_t offset = 0;  // bytes from the start of a block, an input, an output or a constant
};

struct MemoryPlan {
  std::vector<Place> places;                     // one for each value
  std::vector<std::vector<Place>> workspaces;  // of each group, in the arena or in blocks
  int64_t arena_bytes = 0;
  int64_t blocks = 0;  // of the heap: memory whose size a run finds out
  std::vector<int64_t> live_bytes;  // of the arena, while each group runs
};

// One arena, offsets fixed now. Two tensors share memory when their lifetimes do not meet; a kernel writes over an
// input that it is the last to read when it reads each element just before it writes it. Views lie where their input
// lies, operands of joins in the result (parts of its rows begin where it does); outputs of the model are written where the caller wants them. workspace_bytes[i]: what kernel i needs beside
// its parameters. Tensors have room for the largest sizes of the inputs' symbolic dimensions; those whose size depends on data lie in blocks
// that grow while the model runs, one tensor after the other in the same block where their lifetimes do not meet.
MemoryPlan plan_memory(const Graph& graph, const std::vector<KernelGroup>& groups,
                       const std::vector<std::vector<Expr>>& workspace_bytes);

}  // namespace mcc::graph
