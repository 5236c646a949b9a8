// What of a resize depends on sizes alone, for its operators and for passes.
#pragma once

#include <vector>

#include "graph/op.h"

namespace mcc::graph {

inline constexpr int kFirstTable =
    4;  // the first input of Resize and Upsample that is a table; none of ONNX's

// A table that a node computes as long as it has none: as a mcc.ResizeTable with these attributes, whose results the node takes from this input on.
struct ResizeTable {
  int input;
  int results;
  Attributes attributes;
};

// Of a Resize or Upsample. Empty where sizes are not known, or it takes none.
std::vector<ResizeTable> tables_of_resize(const Graph& graph, const Node& node);

}  // namespace mcc::graph
