// What follows a product of tiles is computed while the next product's tiles are multiplied.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// A group of products whose sums begin in registers (keep_tiles), its tile_store, and what follows until the next group, its consumers:
//   for r: multiply(r); store; for i in n: consume(i)
// Where groups follow each other, in sequences and loops of known lengths, the consumers of each stand between the multiplications of the
// next one, which the processor carries out beside them, and those of the last one at the end:
//   for t: { for r: { multiply(t, r); if t > 0: consume(t - 1, its part for r) }; store(t) }; consume(last t)
// That takes the consumers to write nothing that operands are loaded from.
Func overlap_tiles(const Func& f);

}  // namespace mcc::tensor
