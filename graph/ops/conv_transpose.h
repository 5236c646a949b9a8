// What passes need to know of ConvTranspose.
#pragma once

#include "graph/graph.h"

namespace mcc::graph {

// How many results before the first one the padding cuts off along each spatial axis, whatever auto_pad says.
std::vector<int64_t> conv_transpose_begin(const Graph& graph, const Node& node);

}  // namespace mcc::graph
