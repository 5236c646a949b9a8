// Tiles that a step has given to an instruction become calls of it.
#pragma once

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// Requires flat buffers. A loop nest with annotation "instruction" of an instruction that a warp carries out
// (tensor/instructions.h) becomes
//   let a = load_matrices(a row of A's tile), let b = load_matrices(a row of B's) in acc[4 sums] = mma(a, b, acc[4 sums])
// where rows begin at multiples of 16 bytes; of 32-bit elements that do not stand along k, each thread loads its own.
// A left operand that the threads hold (scope warp) goes into the product as each thread has it:
//   let b = load_matrices(a row of B's tile) in acc[4 sums] = mma(a[8 elements], b, acc[4 sums])
// Tiles of a warpgroup's instruction become
//   wgmma_fence(acc), loops of wgmma(acc[N / 2 sums], first element of A's tile, of B's), wgmma_commit, wgmma_wait(acc, 0)
// where operands lie in squares of 8 x 8 elements and those of four warps follow each other, and fence_async() stands before the
// barriers. What does not fit stays the loops that say what is computed: a launch whose warps are not 8 x 4 threads, a tile at
// other places.
//
// One of the dot products of bytes becomes, where the target has it,
//   acc[n sums] = dot4_T(acc[n sums], a[4 bytes], b[4 * n bytes])
// and one of tiles
//   tile_product_T(acc, a, b, rows, steps)
Func use_instructions(const Func& f, const Target& target);

}  // namespace mcc::tensor
