// Iterations that need no condition are separated from those that do.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks, after hoist_conditions. Looks at If conditions that compare sums of loop variables; at
// Select conditions in loops with the annotation "partition"; at these and at Ifs with an else in small serial loops:
//   any loop       all of whose body is under "v < c" gets fewer iterations (vectorized: when a power of two is left;
//                  unrolled and vectorized: when c is a constant)
//   serial         is split into the iterations in which the conditions hold whatever the loops inside do, and those
//                  before and after; e.g. 17 tiles of 12 rows with row < 197 become 16 full ones and one of 5 rows
//                  (a recurrence whose copies run ahead, pipeline_copies.h, stays as it is); where a run knows how many rows
//                  the last tile of a product has, it is done in parts of 8, 4, 2 and 1 (rows_in_parts.h)
//   parallel       stays one loop; its body gets a version for each side of a condition
//   unrolled       a tile of vectors that only moves elements is done without conditions where these hold for all of it
//   bound          stays as it is; loops inside are divided in one way for all threads
// Fused indices (p // 4) count as variables of their own.
Func partition_loops(const Func& f);

}  // namespace mcc::tensor
