// Loops become copies of their bodies.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// A function has about this many stores after unrolling, at most; loops that would make it larger stay loops. Where their variables index
// registers it may be larger: one such loop and the buffer is memory, in all of its tiles.
inline constexpr int64_t kMaxUnrolledStores = 4096, kMaxStoresOfRegisters = 4 * kMaxUnrolledStores;

// Requires flat buffers and no vectorized loops. Copies the body of unrolled loops with constant extent, and of every loop
// whose variable indexes a buffer of registers. Register buffers that are then still accessed at a position that is not
// constant become local. Leaves no unrolled loop.
Func unroll_loops(const Func& f);

}  // namespace mcc::tensor
