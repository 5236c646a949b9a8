// Register tiles of which only some rows are there, how many a run knows.
#pragma once

#include <optional>

#include "tensor/simplify.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

// The body of a loop over tiles of a product, all of whose unrolled loops over the rows stand under the same conditions "row < limit":
//
//   let rows = limit                        # no more than the tile has
//   if rows // 8 %% 2 == 1: the body for rows rows // 16 * 16 + (0 .. 8)
//   the same for 4 rows, 2 rows, 1 row
//
// without these conditions, which would stand between the multiplications of each step of the sum. Nothing for other bodies, and where
// the number is known. facts: of the place.
std::optional<Stmt> rows_in_parts(const Stmt& body, const Analyzer& facts);

}  // namespace mcc::tensor
