// Where the elements of a value come from, when nothing but data movement stands before it.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

// Element [i, j, ...] of a value is element `offset + i * strides[0] + j * strides[1] + ...` of the source (counted in its
// row-major order), times `factor`.
struct StridedView {
  ValueId source = kNoValue;
  int64_t offset = 0;
  std::vector<int64_t> strides;
  double factor = 1;
};

// Follows a value of static shape up through reshapes, transpositions, splits, slices with positive steps, picks of one
// index and expansions for as long as its elements lie in the source at constant strides; with `scales`, also through
// products with and quotients by a constant of one value (f32), which make the factor. At the least the value itself.
StridedView follow_view(const Graph& graph, ValueId value, bool scales);

}  // namespace mcc::graph
