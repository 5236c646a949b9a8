// Where a condition inside of a loop begins or ends to hold as the loop runs.
#pragma once

#include "tensor/simplify.h"

namespace mcc::tensor {

// A term of a condition, and the loops between the loop that is looked at and the condition.
struct LoopCondition {
  Expr term;
  std::vector<const For*> inner;
};

// e such that the comparison says e <= 0; undefined for other conditions.
Expr as_at_most_zero(const Expr& condition);

enum class Case : uint8_t { worst, best };

// m such that the condition holds in all iterations of the loops inside where m <= 0 (worst), or in none of them where
// m > 0 (best); undefined if there is no such sum. facts: what is known outside of those loops.
Expr extreme_case(const LoopCondition& c, const Analyzer& facts, Case which);

// Where "m <= 0" begins or ends to hold as var grows: for v < end, or for v >= begin.
struct Cut {
  Expr begin, end;  // one of them is defined

  bool is_constant() const { return begin.defined() ? begin.as<IntImm>() : end.as<IntImm>(); }
};

std::optional<Cut> cut_of(const Expr& m, const Var& var, const Analyzer& facts);

}  // namespace mcc::tensor
