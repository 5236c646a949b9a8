// Products whose right operand is repeated for groups of an axis of the batch, and what they are with an axis for these:
//
//   MatMul(q [n, s g, m, k], Reshape(Expand(k [n, s, 1, k, l] to [n, s, g, k, l])))
//   = Reshape(MatMul(q [n, s, g, m, k], k [n, s, 1, k, l]))
//
// as keys and values are for the queries of grouped-query attention (Ainslie et al., GQA, 2023).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

struct RepeatedHeads {
  ValueId operand = kNoValue;  // with the axis and one of what repeats it, transposed as the product's own
  size_t axis = 0;             // of the product's own operand; that of groups in the other one
  int64_t groups = 1, of_group = 1;
  bool is_like(const RepeatedHeads& other) const {
    return axis == other.axis && groups == other.groups && of_group == other.of_group;
  }
  // A shape that has the axis, with both.
  Shape split(Shape shape) const;
};

// Empty where the right operand is none that is repeated along an axis that the left one has, too. Adds the transposition of what is
// repeated to the graph, where there is one.
std::optional<RepeatedHeads> repeated_heads(Graph& graph, const std::vector<std::vector<NodeId>>& users,
                                            NodeId product);

// `grouped`, the product's result with both axes, becomes what the product makes, or what a transposition makes of that alone.
void take_grouped_result(Graph& graph, const std::vector<std::vector<NodeId>>& users, NodeId product,
                         const RepeatedHeads& heads, ValueId grouped);

}  // namespace mcc::graph
