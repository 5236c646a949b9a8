// Boxes: the parts of a tensor that Slice and Split give.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

// Along each axis of the input, where the part begins and how far apart its elements are; their number is the part's extent.
struct Box {
  std::vector<int64_t> starts, steps;
};

// The part of its producer's input 0 that the value is. Nothing unless that is a Slice or a Split with constant bounds, of a
// static shape.
std::optional<Box> box_of(const Graph& graph, ValueId value);

// The same where other dimensions than those that are cut may be open.
std::optional<Box> open_box_of(const Graph& graph, ValueId value);

}  // namespace mcc::graph
