// What NonMaxSuppression computes with boxes, in order or in parts.
#pragma once

#include "graph/ops/common.h"

namespace mcc::graph {

// Operands of mcc.SelectBoxes.
inline constexpr int kBoxes = 0;   // [batches, boxes, 4]
inline constexpr int kScores = 1;  // [batches, classes, boxes]
inline constexpr int kMost = 2;    // boxes kept of a class; none without it
inline constexpr int kOverlap = 3;
inline constexpr int kScore = 4;

// Indices, and others behind them.
std::vector<Expr> with(Axes at, std::initializer_list<Expr> inner);

tensor::Var variable(const ComputeContext& c, const char* name);

// The element of an operand that has one.
Expr scalar_input(const ComputeContext& c, int i);

// How many boxes of a class there may be: as many as are asked for, where that is known, and as there are.
Expr most_of_class(const Constant* asked, bool is_asked, const Expr& boxes);
// The same, as far as a run knows it: at most that many.
Expr most_in_run(const ComputeContext& c, const Expr& most);

// Whether the box comes into question at all.
Expr is_above(const ComputeContext& c, Axes at, const Expr& box);

// [batches, boxes, 5]: boxes by their corners, as numbers of which the second two are not smaller, and their areas.
Buffer find_corners(ComputeContext& c);

// Whether two boxes have more in common than the threshold says, as a share of what both together cover. Most have nothing, which is
// seen without a division: they do along y and along x, and covers is for such.
struct Overlap {
  Expr meet_along_y, meet_along_x, covers;
};
Overlap overlap(const ComputeContext& c, const Buffer& corners, const Expr& batch, const Expr& a,
                const Expr& b);

// In parts, for GPUs (attribute in_parts).
void select_boxes_in_parts(ComputeContext& c);

}  // namespace mcc::graph
