// Indices of shared memory whose units of 16 bytes are exchanged by the row (swizzling).
#pragma once

#include <optional>

#include "tensor/simplify.h"

namespace mcc::tensor {

// What the index is without that, and the length of rows in bytes (intrinsics wgmma_T in expr.h).
struct Exchanged {
  Expr plain;
  int64_t bytes = 0;  // 0: nothing is exchanged
};

// Empty where something else is exchanged than the orders of the hardware do. known: all variables of
// the index. unit: elements of 16 bytes.
std::optional<Exchanged> exchanged(const Analyzer& known, const Expr& index, int64_t unit);

}  // namespace mcc::tensor
