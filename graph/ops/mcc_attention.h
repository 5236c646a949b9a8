// What passes that make mcc.Attention ask of it.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

// The extent that an axis of a view of mcc.Attention has where it goes along a dimension of the input, of this shape, by itself, one
// step at a time: that of the first such dimension. Undefined where there is none.
Expr extent_along(const std::vector<int64_t>& view, const Shape& shape, size_t axis);

}  // namespace mcc::graph
