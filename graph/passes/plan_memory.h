// Where every tensor lies while the model runs.
#pragma once

#include "graph/passes/fuse.h"

namespace mcc::graph {

struct Place {
  enum class Kind { none, arena, heap, constant, input, output } kind = Kind::none;
  int64_t index = 0;   // arena: byte offset; heap: number of a block; input, output: position; constant: the value that holds it
  int64_t offset = 0;  // bytes from the start of a block, an input, an output or a constant
  tensor::Var start = {};  // arena, where only a run knows the offset: index counts from there
};

struct Workspace {
  Place place;
  Expr bytes;
};

// A quantity that a run computes: tensor::thread_count(), or an expression of the graph's dimensions and the quantities before it.
struct Computed {
  tensor::Var name;
  Expr value;
};

struct MemoryPlan {
  std::vector<Place> places;                     // one for each value
  std::vector<std::vector<Workspace>> workspaces;  // of each group, in the arena or in blocks
  int64_t arena_bytes = 0;                         // with dimensions without a bound: at their typical sizes
  std::vector<int64_t> live_bytes;                 // of the arena, while each group runs; the same
  int64_t blocks = 0;                              // of the heap: memory whose size data decides
  std::vector<Computed> computed;
  Expr arena_size;  // what a run needs: arena_bytes where all sizes have a bound
};

// One arena, offsets fixed now. Two tensors share memory when their lifetimes do not meet; a kernel writes over an
// input that it is the last to read when it reads each element just before it writes it. Views lie where their input
// lies, operands of joins in the result (parts of its rows begin where it does); outputs of the model are written where the caller wants them. workspace_bytes[i]: what kernel i needs beside
// its parameters, over the graph's dimensions and tensor::thread_count(). Tensors have room for the largest sizes of symbolic dimensions.
// Those whose sizes have no bound (planned_size) lie behind the others, in the order of a plan for typical sizes: each begins where the
// last of those that lie below it and live at the same time ends, which a run computes. Without tensors of that kind all is known now.
// Those whose sizes data decides lie in blocks that grow while the model runs, one after the other in the same block where their lifetimes
// do not meet.
MemoryPlan plan_memory(const Graph& graph, const std::vector<KernelGroup>& groups,
                       const std::vector<std::vector<Expr>>& workspace_bytes, int typical_threads = 1);

}  // namespace mcc::graph
