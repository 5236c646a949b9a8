// The 164 features of a store that Ansor's cost model sees (Zheng et al., OSDI'20; the numbering of auto_scheduler), for
// every store of a function. All but the one-hots are given as log2(x + 1).
//
//   0-56    of the operations, multiplied by the iterations of all loops around the store:
//           0-6 float: fma, add/sub, mul, div/mod, compare, math function, other; 7-13 the same for integers;
//           14 logical; 15 select.
//           16-26 vectorised, 27-37 unrolled, 38-48 parallel loops: how many, product of extents, extent of the innermost,
//           one-hot of its place (none; inner, middle, outer spatial; inner, middle, outer reduce; mixed).
//           49 is for a GPU; 50-55 extents of block.x/y/z and thread.x/y/z; 56 of virtual threads
//   57-146  five buffers of 18, those reused at the largest distance first:
//           one-hot read, write, both; bytes, different bytes, lines, different lines; one-hot of the reuse (by a loop,
//           by another statement, none); its distance in iterations and in bytes, how often; bytes, different bytes, lines,
//           different lines for each reuse; stride of the innermost loop that moves it
//   147-156 flops for each different byte, at ten places from the innermost loop to the outermost, by logarithm of flops
//   157-160 bytes of the buffer written, the same times the loops outside of its life, those loops, the loops inside
//   161-163 product of the loops around, how many they are, largest unrolled body
#pragma once

#include <array>
#include <vector>

#include "tuner/nest.h"

namespace mcc::tuner {

inline constexpr size_t kFeatures = 164;
inline constexpr size_t kFeatureBuffers = 5, kBufferFeatures = 18;
using FeatureRow = std::array<float, kFeatures>;

// One row a store, in program order.
std::vector<FeatureRow> features_of(const Nest& nest);

}  // namespace mcc::tuner
