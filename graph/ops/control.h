// Operators that decide what runs (graph/op.h, Control): what their operands are.
//
// mcc.Choose: condition, n operands for when it holds, n for when it does not -> n results. Dimensions in which two operands differ come from
// this node.
// mcc.LoopBegin: condition of the first iteration, n states -> the condition and the states in an iteration. Attribute "loop": its number.
// mcc.LoopEnd: how often at most (embedded; none: without end), condition of the next iteration (none: it goes on), n states for the next
// iteration, m tensors of an iteration -> n states behind the loop, m tensors with those of all iterations along a new first axis.
// Attributes: "loop", "states". Dimensions that come from a loop's begin are the number of the iteration, from its end that of all.
#pragma once

#include "graph/graph.h"

namespace mcc::graph {

// Whether input `i` of a choice is used when the condition holds (0), or when not (1); nothing for the condition.
std::optional<int> branch_of_operand(const Node& choose, size_t i);

size_t states_of(const Node& loop_end);
// Of a loop's begin, and the other way round.
NodeId end_of_loop(const Graph& graph, const Node& loop_begin);
NodeId begin_of_loop(const Graph& graph, const Node& loop_end);

}  // namespace mcc::graph
