// Products of tiles keep their sums in registers.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Each largest statement that does nothing but tile_product_T, with no more sums than there are tiles for and the same rows and steps
// throughout, becomes
//   tile_load(each sum), the statement with tile_load(an operand) and tile_multiply_T, tile_store(each sum)
// with tile_zero instead where the statement before does nothing but set these sums to 0, and goes. Around all of them that a parallel
// iteration (or a function without) has come tile_configure and tile_configure(0, ..); around each, where their tiles differ in rows or
// steps. An operand of several products that follow each other is loaded once.
Func keep_tiles(const Func& f);

}  // namespace mcc::tensor
