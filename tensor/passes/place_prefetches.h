// Hints that fetch what the next iteration of a loop reads while this one computes.
#pragma once

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// A loop's annotation "prefetch_next" = "B L" asks that, while an iteration of the loop L around it runs, the part of buffer B
// that the next iteration of L reads is fetched into the second-level cache: a few lines at the start of each iteration
// of the annotated loop, spread evenly. So a panel of weights is there when its turn comes, though it comes from memory.
//
// Requires a function without blocks, before flatten_buffers. Places nothing where B or L is not there (steps may have
// renamed them), where the part is not a contiguous piece of constant size, or where it is too large to be fetched a few
// lines at a time (the last, short tile of a loop). Removes the annotation.
Func place_prefetches(const Func& f, const Target& target);

}  // namespace mcc::tensor
