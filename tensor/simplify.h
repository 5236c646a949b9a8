// Algebraic simplification with range analysis.
#pragma once

#include <memory>
#include <optional>

#include "tensor/stmt.h"

namespace mcc::tensor {

// Inclusive bounds of an integer expression; an open side is empty.
struct Interval {
  std::optional<int64_t> low, high;
};

// What is known about variables while walking inwards. Copying is cheap enough for a scope.
class Analyzer {
 public:
  Analyzer();
  ~Analyzer();
  Analyzer(const Analyzer&);
  Analyzer& operator=(const Analyzer&);

  // var in [min, min + extent).
  void bind(const Var& var, const Expr& min, const Expr& extent);
  void bind(const Var& var, const Expr& value);  // var is exactly value
  // condition holds from here on (conjunctions are split; comparisons with a constant side narrow ranges).
  void assume(const Expr& condition);

  Interval bounds(const Expr& e) const;
  // Integer expressions come out in a canonical linear form: sums of (coefficient * atom) in a fixed order, with
  // floor_div and floor_mod split ((16*i + j) // 16 = i when 0 <= j < 16; (16*i + j) %% 16 = j; ...), so
  // that equal linear expressions print equal. Works under vector types (Ramp, Broadcast).
  Expr simplify(const Expr& e) const;
  bool can_prove(const Expr& condition) const;
  // a - b as a constant, if it is one.
  std::optional<int64_t> constant_difference(const Expr& a, const Expr& b) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Expr simplify(const Expr& e);
// Walks the statement with ranges of loops and conditions known; removes dead branches, loops of extent 0,
// and turns loops of extent 1 into a substitution (not for bound loops).
Stmt simplify(const Stmt& s);
Func simplify(const Func& f);

// An expression as sum(coefficient_i * var_i) + constant, if it is linear in the given variables with integer
// coefficients and a remainder free of them.
struct LinearForm {
  std::vector<int64_t> coefficients;  // one for each variable given
  Expr rest;
};
std::optional<LinearForm> linear_form(const Expr& e, const std::vector<Var>& vars);

}  // namespace mcc::tensor
