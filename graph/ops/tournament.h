// Tournaments: the best of many keys, again and again, without sorting them.
#pragma once

#include <limits>

#include "graph/ops/common.h"

namespace mcc::graph {

// Whether `element_key` takes values of this type.
bool has_element_key(ElementType element);

// So many elements of a row can have keys.
inline constexpr int64_t kMostKeyPositions = std::numeric_limits<int32_t>::max();

// An i64 that says which element of a row comes first: the key is larger where the value is larger (with `largest`; else smaller) and,
// of equal values, where the position is smaller. No two elements have the same key. What has no order (NaN) comes last. 0 and -0 are
// equal. Positions are below kMostKeyPositions.
Expr element_key(const Expr& value, const Expr& position, bool largest);

// The position back.
Expr position_of_key(const Expr& key);

// Less than every key: what a leaf holds that has nothing left.
Expr no_key();

// A binary tree whose nodes hold the larger one of the two keys below them, so that the largest stands at its root: tree selection (Knuth,
// The Art of Computer Programming 3, 5.2.3). Of n leaves: nodes n to 2 * n - 1; those above them from 1 on, node k above nodes 2 * k and
// 2 * k + 1.
struct Tournament {
  ComputeContext& c;
  Buffer tree;           // i64, of 2 * max_leaves behind the indices `at`
  std::vector<Expr> at;  // which tree
  Expr leaves;           // n, 1 at least for there to be a winner
  Expr max_leaves;

  Expr key(const Expr& node) const;
  Expr winner() const { return key(1); }
  tensor::Stmt set(const Expr& node, const Expr& key) const;
  // All games, when all leaves are set.
  tensor::Stmt play() const;
  // Those that a change of one leaf's key may decide otherwise.
  tensor::Stmt play_again(const Expr& leaf) const;

 private:
  std::vector<Expr> place(const Expr& node) const;
  tensor::Stmt game(const Expr& node) const;
};

}  // namespace mcc::graph
