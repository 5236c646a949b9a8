// Hints that fetch what later iterations of a loop read while this one computes.
#pragma once

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// A loop's annotation "prefetch_next" = "B L" asks that, while an iteration of the loop L around it runs, the part of buffer B
// that the next iteration of L reads is fetched into the second-level cache (the first, of a target that drops such hints): a few lines at the start of each iteration
// of the annotated loop, spread evenly. So a panel of weights is there when its turn comes, though it comes from memory.
// Each piece of code that the loop becomes does so. "B L N" says that the part is passed over N times, the last time by another piece than
// the others (a shorter tile), among which the lines are spread then.
//
// "prefetch_ahead" = "B N" asks that each iteration of the annotated loop itself fetches what the one N further on reads of B, into the
// first-level cache: of a stream that is read once, whose end the beginning of the next part follows in memory. Of a loop that carries both
// the pieces of code do so for which the other hints cannot be placed: those of a number of iterations that only a run knows.
//
// Requires a function without blocks, before flatten_buffers. Places nothing where B or L is not there (steps may have
// renamed them), where the part of the next one is not one run of elements, or not of constant size, where it is too large to be fetched a few
// lines at a time, and ahead of what has little to do for each line. Removes the annotations.
Func place_prefetches(const Func& f, const Target& target);

}  // namespace mcc::tensor
