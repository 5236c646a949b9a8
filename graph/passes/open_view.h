// Where the elements of a value come from, as strided_view.h says it, for shapes with open dimensions.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

// Element [i, j, ...] of a value is element `start + i * steps[0] + j * steps[1] + ...` of the source, each a place along every dimension
// of the source, times `factor`.
struct OpenView {
  ValueId source = kNoValue;
  std::vector<int64_t> start;
  std::vector<std::vector<int64_t>> steps;  // [dimension of the value][dimension of the source]
  double factor = 1;
};

// Follows a value up through transpositions, splits, slices with positive steps, picks of one index, expansions and reshapes of known
// dimensions for as long as each of its dimensions goes along those of the source in steps that are known; with `scales`, also through
// products with and quotients by a constant of one value (f32), which make the factor; with `beginnings`, through slices that begin where an
// open dimension does: the source does not say how long they are. At the least the value itself.
OpenView follow_open_view(const Graph& graph, ValueId value, bool scales, bool beginnings = false);

// The view of a product's operand of this shape as an attribute (graph/ops/operand_view.h) with an axis for each of so many of the
// product's batch, along which the operand may stand still, and its last two.
std::vector<int64_t> product_view(const OpenView& view, const Shape& operand, size_t batch_rank);

}  // namespace mcc::graph
