// Attention of GPUs that makes parts of its keys one after the other.
#pragma once

#include <cstdint>

#include "tensor/gpu.h"

namespace mcc::graph {

// Keys of a part of attention on operands of 16 bits, of so many numbers to a key and to a value: their scores, and two sums for each
// value, are in registers, keys and values of two parts in shared memory. 0: there is no such number.
int64_t rolling_keys(int64_t depth, int64_t columns, const tensor::Gpu& gpu);

// Queries that make a tile of tensor cores.
inline constexpr int64_t kFewestQueries = 16;

}  // namespace mcc::graph
