// Views of inputs: where the elements of an operand lie in a tensor that data movement alone would make it of. An attribute of integers:
// where the view begins along each dimension of the input, then for each of its axes how far its steps go along each.
#pragma once

#include <vector>

#include "graph/op.h"

namespace mcc::graph {

// In attributes: of an axis of which a run says how long it is.
inline constexpr int64_t kOpenExtent = -1;

// The extent that an axis of a view has where it goes along a dimension of the input, of this shape, by itself, one
// step at a time: that of the first such dimension. Undefined where there is none.
Expr extent_along(const std::vector<int64_t>& view, const Shape& shape, size_t axis);

// An element of the view of an input.
Expr viewed_element(const ComputeContext& c, int input, const std::vector<int64_t>& view,
                    const std::vector<Expr>& index);

}  // namespace mcc::graph
