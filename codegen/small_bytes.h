// Bytes that are known to be small.
#pragma once

#include <unordered_set>

#include "tensor/stmt.h"

namespace mcc::codegen {

// The buffers of u8 that the function allocates and of whose elements none is more than 127, by what is stored there: numbers of few bits
// that are taken out of bytes (x & 15). Sums of two products of such bytes with signed ones are numbers of 16 bits.
std::unordered_set<const tensor::BufferNode*> buffers_of_small_bytes(const tensor::Func& func);

}  // namespace mcc::codegen
