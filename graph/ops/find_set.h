// Those of many elements for which something holds, in parts that have nothing to do with each other: for GPUs.
#pragma once

#include "graph/ops/common.h"

namespace mcc::graph {

// Attribute of operators that find elements: they do so in parts.
inline constexpr const char* kInParts = "in_parts";
inline bool is_in_parts(const ComputeContext& c) { return c.attributes().integer(kInParts, 0) != 0; }

// And, of mcc.Unique, the most elements that its operand has; without a bound there is none.
inline constexpr const char* kMostItems = "most_items";

struct FoundSet {
  Shape outer;  // of lines
  Expr n;       // elements of each
  std::function<Expr(Axes line, const Expr& k)> holds;
  // What a thread does with element k; before: how many of the line's elements in front of it are found.
  std::function<tensor::Stmt(Axes line, const Expr& k, const Expr& before, const Expr& holds)> visit;
};

// Visits all elements, and gives how many are found of each line [outer..., 1], in i32. Parts of a line are counted, so that a thread each
// knows where its own begins. Elements of parts in which none is found are left out, unless `all` are to be visited.
Buffer visit_set(ComputeContext& c, const char* name, const FoundSet& set, bool all = false);

}  // namespace mcc::graph
