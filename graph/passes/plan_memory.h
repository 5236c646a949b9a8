// Where every tensor lies while the model runs.
#pragma once

#include "graph/passes/fuse.h"

namespace mcc::graph {

struct Place {
  enum class Kind { none, arena, constant, input, output } kind = Kind::none;
  int64_t index = 0;   // arena: byte offset; input, output: position; constant: the value that holds it
  int64_t offset = 0;  // bytes from the start of an input, an output or a constant
};

struct MemoryPlan {
  std::vector<Place> places;                     // one for each value
  std::vector<std::vector<int64_t>> workspaces;  // arena offsets of each group's workspaces
  int64_t arena_bytes = 0;
  std::vector<int64_t> live_bytes;  // of the arena, while each group runs
};

// One arena, offsets fixed now. Two tensors share memory when their lifetimes do not meet; a kernel writes over an
// input that it is the last to read when it reads each element just before it writes it. Views lie where their input
// lies, operands of joins in the result (parts of its rows begin where it does); outputs of the model are written where the caller wants them. workspace_bytes[i]: what kernel i needs beside
// its parameters. Tensors have room for the largest sizes of symbolic dimensions.
MemoryPlan plan_memory(const Graph& graph, const std::vector<KernelGroup>& groups,
                       const std::vector<std::vector<int64_t>>& workspace_bytes);

}  // namespace mcc::graph
