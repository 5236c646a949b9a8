// Copies into shared memory that do not keep their threads waiting.
#pragma once

#include <optional>
#include <vector>

#include "tensor/stmt.h"

namespace mcc::tensor {

// Stores to shared memory of what is loaded from global memory become asynchronous copies, where these can be made: of 4, 8 or 16
// bytes at a multiple of as many, unchanged. A condition under which 0 is stored becomes the copy's. Requires flat buffers and vectors.
Stmt make_async(const Stmt& copies);

// The stores that are left, by way of registers: what they load is there before the stores are made.
struct StagedCopies {
  std::vector<Buffer> registers;  // one for each store
  Stmt loads, stores;              // loads: with whatever else there is
};
// Nothing where no store is left that loads anything, where one is under a mask or in a loop of no constant extent, and where they
// would take too many registers.
std::optional<StagedCopies> stage_in_registers(const Stmt& copies);

}  // namespace mcc::tensor
