// Vectorized loops become vector expressions.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// More lanes than this become several vectors.
inline constexpr int kMaxLanes = 64;

// Requires flat buffers. The variable of a vectorized loop becomes a Ramp; what does not depend on it stays scalar and is
// broadcast where it meets vectors; conditions that depend on the lane become predicates of loads and stores; an update
// b[c] = b[c] op x with c the same for all lanes becomes b[c] = b[c] op VectorReduce(op, x). A loop whose extent is not a
// constant above 1, or whose body cannot be written this way (loop bounds or nested vectors that depend on the lane, a
// value that only the last lane may leave behind), becomes serial. Leaves no vectorized loop.
Func vectorize_loops(const Func& f);

}  // namespace mcc::tensor
