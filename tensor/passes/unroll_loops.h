// Loops become copies of their bodies.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// A function has about this many stores after unrolling, at most; loops that would make it larger stay loops.
inline constexpr int64_t kMaxUnrolledStores = 4096;

// Requires flat buffers and no vectorized loops. Copies the body of unrolled loops with constant extent, and of every loop
// whose variable indexes a buffer of registers. Register buffers that are then still accessed at a position that is not
// constant become local. Leaves no unrolled loop.
Func unroll_loops(const Func& f);

}  // namespace mcc::tensor
