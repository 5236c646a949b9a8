// Which groups run as parts of branches and of loops' bodies.
#pragma once

#include <set>
#include <vector>

#include "graph/passes/aliases.h"

namespace mcc::graph {

// Gives the groups their regions, and an order in which those of a region, with the regions inside of it, are neighbours, right in front
// of the group that decides. Groups belong to the innermost region in which all who use their results are; what no iteration changes goes
// out of the loop.
std::vector<KernelGroup> divide_into_regions(const Graph& graph, std::vector<KernelGroup> groups);

// The loops, by their ends, on whose iterations each node depends.
std::vector<std::set<NodeId>> loops_of_nodes(const Graph& graph);

// What an iteration of a loop hands on: the condition, if it has one, and its states. is_traded: it lies where another one is to be.
struct StateCopy {
  ValueId from, to;
  bool is_traded = false;
};
std::vector<StateCopy> state_copies(const Graph& graph, const Aliases& aliases, const Node& loop_end);

}  // namespace mcc::graph
