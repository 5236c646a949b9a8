// What divide_attention can make of attention with open dimensions.
#pragma once

#include <cstdint>

#include "support/element_type.h"
#include "tensor/gpu.h"

namespace mcc::graph {

// Extents of mcc.Attention; those that are open are kOpenExtent.
struct AttentionExtents {
  int64_t batches;  // known ones, of each of those that are not
  int64_t queries, keys, depth, columns;
  bool has_shared_keys = false;  // by batches, whose rows are rows of one product then
};

// Whether the GPU makes attention of this kind, whose batches are open, or its queries or keys, in one launch, on operands of this type.
bool has_open_attention(const AttentionExtents& a, ElementType factor, const tensor::Gpu& gpu);

}  // namespace mcc::graph
