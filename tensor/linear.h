// Linear forms of 64-bit index expressions: sum of coefficient * atom, plus a constant. Internal to tensor/.
#pragma once

#include <vector>

#include "tensor/expr.h"

namespace mcc::tensor {

// An atom is an i64 scalar that is no sum, no constant, and no multiple by a constant: a variable, a division, a
// minimum, a load, ..., or a product of such.
struct Term {
  Expr atom;
  int64_t coefficient = 0;
};

struct Linear {
  std::vector<Term> terms;  // ordered by compare(); atoms differ, coefficients are not zero
  int64_t constant = 0;
  bool overflow = false;  // a coefficient left 64 bits: the value is meaningless

  Linear() = default;
  explicit Linear(int64_t value) : constant(value) {}
  static Linear of_atom(Expr atom);

  bool is_constant() const { return terms.empty(); }
  int64_t coefficient_of(const Expr& atom) const;
};

// to += scale * x
void add_scaled(Linear& to, const Linear& x, int64_t scale);
void add_term(Linear& to, const Expr& atom, int64_t coefficient);
Linear sum(const Linear& a, const Linear& b);
Linear difference(const Linear& a, const Linear& b);
Linear scaled(const Linear& x, int64_t factor);
// A single sum is distributed over factors that are index arithmetic; a product of two sums, or of a sum and data, is one
// atom.
Linear product(const std::vector<Linear>& factors);
inline Linear product(const Linear& a, const Linear& b) { return product(std::vector<Linear>{a, b}); }
// l += k * x for the k that makes the terms of k * x disappear from l, if every term of x stands in l with that
// multiple: false, and l as it was, if not.
bool contains_multiple(const Linear& l, const Linear& x, int64_t multiple);

// The greatest common divisor of the coefficients (not of the constant); 0 if there are none.
int64_t coefficient_gcd(const Linear& l);

// The factors of an atom that is a product, else the atom alone; and back.
std::vector<Expr> factors_of(const Expr& atom);
Expr product_of(std::vector<Expr> factors);

// Canonical expressions and linear forms correspond one to one.
Expr to_expr(const Linear& l);
// The same, but `like` itself if that is how it reads already.
Expr to_expr(const Linear& l, const Expr& like);
Linear lift(const Expr& canonical);

}  // namespace mcc::tensor
