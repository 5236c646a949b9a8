// The table of nodes of mcc.Trees (graph/ops/mcc_trees.cpp), for those who write it (frontend/ml/forest.cpp).
#pragma once

#include <cstdint>

namespace mcc::graph {

// Words of a node, behind its place; i32, as places are.
inline constexpr int kThreshold = 0;  // the bits of an f32
inline constexpr int kFeature = 1;    // 2 * feature + (1 where a missing value means yes)
inline constexpr int kYes = 2;        // the place of the node below for yes; that for no is the next one
inline constexpr int kRow = 3;        // of the weights, for leaves
inline constexpr int64_t kWordBits = 2, kWords = 1 << kWordBits;

}  // namespace mcc::graph
