#include "tensor/linear.h"

#include <algorithm>
#include <numeric>

#include "tensor/text.h"

namespace mcc::tensor {
namespace {

int64_t checked_add(int64_t a, int64_t b, bool* overflow) {
  int64_t out = 0;
  *overflow |= __builtin_add_overflow(a, b, &out);
  return out;
}

int64_t checked_mul(int64_t a, int64_t b, bool* overflow) {
  int64_t out = 0;
  *overflow |= __builtin_mul_overflow(a, b, &out);
  return out;
}

const Binary* as_op(const Expr& e, BinaryOp op) {
  const auto* b = e.as<Binary>();
  return b && b->op == op ? b : nullptr;
}

// Arithmetic on variables only: no data, no conditions.
bool is_index_arithmetic(const Expr& e) {
  if (e.as<VarNode>() || e.as<IntImm>()) return true;
  const auto* b = e.as<Binary>();
  return b && is_index_arithmetic(b->a) && is_index_arithmetic(b->b);
}

}  // namespace

Linear Linear::of_atom(Expr atom) {
  Linear l;
  l.terms.push_back({std::move(atom), 1});
  return l;
}

int64_t Linear::coefficient_of(const Expr& atom) const {
  for (const Term& t : terms) {
    if (structurally_equal(t.atom, atom)) return t.coefficient;
  }
  return 0;
}

void add_term(Linear& to, const Expr& atom, int64_t coefficient) {
  if (coefficient == 0) return;
  auto place = to.terms.begin();
  for (; place != to.terms.end(); ++place) {
    int order = compare(place->atom, atom);
    if (order < 0) continue;
    if (order > 0) break;
    if (!structurally_equal(place->atom, atom)) continue;  // another variable of the same name
    place->coefficient = checked_add(place->coefficient, coefficient, &to.overflow);
    if (place->coefficient == 0) to.terms.erase(place);
    return;
  }
  to.terms.insert(place, Term{atom, coefficient});
}

void add_scaled(Linear& to, const Linear& x, int64_t scale) {
  to.overflow |= x.overflow;
  if (scale == 0) return;
  for (const Term& t : x.terms)
    add_term(to, t.atom, checked_mul(t.coefficient, scale, &to.overflow));
  to.constant = checked_add(to.constant, checked_mul(x.constant, scale, &to.overflow), &to.overflow);
}

Linear sum(const Linear& a, const Linear& b) {
  Linear out = a;
  add_scaled(out, b, 1);
  return out;
}

Linear difference(const Linear& a, const Linear& b) {
  Linear out = a;
  add_scaled(out, b, -1);
  return out;
}

Linear scaled(const Linear& x, int64_t factor) {
  Linear out;
  add_scaled(out, x, factor);
  return out;
}

std::vector<Expr> factors_of(const Expr& atom) {
  const Binary* mul = as_op(atom, BinaryOp::mul);
  if (!mul) return {atom};
  std::vector<Expr> out = factors_of(mul->a);
  for (Expr& f : factors_of(mul->b))
    out.push_back(std::move(f));
  return out;
}

Expr product_of(std::vector<Expr> factors) {
  std::stable_sort(factors.begin(), factors.end(),
                   [](const Expr& a, const Expr& b) { return compare(a, b) < 0; });
  Expr out = factors[0];
  for (size_t i = 1; i < factors.size(); ++i)
    out = Binary::make(BinaryOp::mul, out, factors[i]);
  return out;
}

namespace {

// The product of a form and coefficient * atom, term by term.
Linear times_term(const Linear& x, const Term& factor) {
  Linear out;
  out.overflow = x.overflow;
  std::vector<Expr> right = factors_of(factor.atom);
  for (const Term& t : x.terms) {
    std::vector<Expr> all = factors_of(t.atom);
    all.insert(all.end(), right.begin(), right.end());
    add_term(out, product_of(std::move(all)), checked_mul(t.coefficient, factor.coefficient, &out.overflow));
  }
  add_term(out, factor.atom, checked_mul(x.constant, factor.coefficient, &out.overflow));
  return out;
}

bool is_monomial(const Linear& l) { return l.terms.size() == 1 && l.constant == 0; }

}  // namespace

Linear product(const Linear& a, const Linear& b) {
  if (a.is_constant()) return scaled(b, a.constant);
  if (b.is_constant()) return scaled(a, b.constant);
  if (is_monomial(b) && (is_monomial(a) || is_index_arithmetic(b.terms[0].atom))) {
    return times_term(a, b.terms[0]);
  }
  if (is_monomial(a) && is_index_arithmetic(a.terms[0].atom)) return times_term(b, a.terms[0]);
  // A sum as a factor is one opaque factor: (i + 1) * x.
  Linear out = Linear::of_atom(product_of({to_expr(a), to_expr(b)}));
  out.overflow = a.overflow || b.overflow;
  return out;
}

bool contains_multiple(const Linear& l, const Linear& x, int64_t multiple) {
  bool overflow = false;
  for (const Term& t : x.terms) {
    if (l.coefficient_of(t.atom) != checked_mul(t.coefficient, multiple, &overflow)) return false;
  }
  return !overflow && !x.terms.empty();
}

int64_t coefficient_gcd(const Linear& l) {
  int64_t g = 0;
  for (const Term& t : l.terms)
    g = std::gcd(g, t.coefficient);
  return g;
}

namespace {

Expr multiple(const Expr& atom, int64_t coefficient) {
  return coefficient == 1 ? atom : Binary::make(BinaryOp::mul, atom, Expr(coefficient));
}

}  // namespace

// Positive terms first, then the negative ones as subtractions, then the constant; a positive constant leads when there
// is no positive term.
Expr to_expr(const Linear& l) {
  Expr out;
  for (const Term& t : l.terms) {
    if (t.coefficient < 0) continue;
    Expr part = multiple(t.atom, t.coefficient);
    out = out.defined() ? Binary::make(BinaryOp::add, out, part) : part;
  }
  int64_t constant = l.constant;
  if (!out.defined() && (constant > 0 || l.terms.empty())) {
    out = Expr(constant);
    constant = 0;
  }
  for (const Term& t : l.terms) {
    if (t.coefficient > 0) continue;
    if (!out.defined()) {
      out = multiple(t.atom, t.coefficient);
    } else if (t.coefficient == INT64_MIN) {
      out = Binary::make(BinaryOp::add, out, multiple(t.atom, t.coefficient));
    } else {
      out = Binary::make(BinaryOp::sub, out, multiple(t.atom, -t.coefficient));
    }
  }
  if (constant > 0 || constant == INT64_MIN) return Binary::make(BinaryOp::add, out, Expr(constant));
  if (constant < 0) return Binary::make(BinaryOp::sub, out, Expr(-constant));
  return out;
}

Linear lift(const Expr& e) {
  if (const auto* imm = e.as<IntImm>()) return Linear(imm->value);
  if (const auto* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add) return sum(lift(b->a), lift(b->b));
    if (b->op == BinaryOp::sub) return difference(lift(b->a), lift(b->b));
    int64_t factor = 0;
    if (b->op == BinaryOp::mul && as_int(b->b, &factor)) return scaled(lift(b->a), factor);
  }
  return Linear::of_atom(e);
}

}  // namespace mcc::tensor
