// Where the elements of a value come from, when nothing but data movement stands before it.
#pragma once

#include <optional>
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

// What a product with, or a quotient by, a constant of one value (f32) scales, and the factor with its own. Nothing for other nodes.
struct Scaled {
  ValueId operand = kNoValue;
  double factor = 1;
};
std::optional<Scaled> scaled_by_constant(const Graph& graph, const Node& node, double factor);

}  // namespace mcc::graph
