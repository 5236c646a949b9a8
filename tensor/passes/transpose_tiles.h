// Strided reads of a square tile become contiguous ones.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires vectors, before loops are unrolled. In
//
//   unrolled for i in 16: y[... i ..., ramp(c, 1, 16)] = f(x[ramp(base + i, stride, 16)])
//
// the reads of all iterations together are 16 contiguous runs of 16 elements, `stride` apart. They are read as such, and
// transposed by shuffles of two vectors each: 4 * 16 of them where there were 16 gathers. Loops of as many iterations as
// their vectors have lanes, 4, 8 or 16, over one store to a buffer that is not read, without a condition. Where f is a choice between
// tiles that is the same for all iterations, the choice is made around them.
//
// The same where words of two neighbours are moved, whose parts are a loop inside:
//
//   unrolled for i in 16: unrolled for p in 2: y[... i ..., ramp(c + p, 2, 16)] = x[ramp(base + 2 * i + p, stride, 16)]
//
// Of other values that are written so (parts from two to four rows) all parts are made, and written side by side.
Func transpose_tiles(const Func& f);

}  // namespace mcc::tensor
