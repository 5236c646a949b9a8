// Attention of CPUs whose products take their operands in words.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "tensor/target.h"

namespace mcc::graph {

// Multiples that the rows, keys, depth and columns (m, n, d, e of mcc.Attention) are filled up to, so that tiles of matrices or dot
// products on factors of this type make them up; empty: the target has none of these, or they are not worth their packing.
std::vector<int64_t> attention_words(const std::vector<int64_t>& extents, ElementType factor,
                                     const tensor::Target& target);

}  // namespace mcc::graph
