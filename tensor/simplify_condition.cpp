// Comparisons, logic and select.
#include "tensor/simplifier.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

bool is_call(const Expr& e, Intrinsic function) {
  const auto* c = e.as<Call>();
  return c && c->function == function;
}

BinaryOp opposite(BinaryOp comparison) {
  constexpr std::pair<BinaryOp, BinaryOp> kOpposites[] = {
      {BinaryOp::eq, BinaryOp::ne}, {BinaryOp::lt, BinaryOp::ge}, {BinaryOp::le, BinaryOp::gt}};
  for (auto [x, y] : kOpposites) {
    if (comparison == x) return y;
    if (comparison == y) return x;
  }
  MCC_UNREACHABLE("no comparison: ", to_text(comparison));
}

// The form that a canonical < or >= says is not negative.
std::optional<Linear> form_of(const Expr& condition) {
  const auto* b = condition.as<Binary>();
  if (!b || b->a.type() != kIndex) return std::nullopt;
  if (b->op == BinaryOp::ge) return difference(lift(b->a), lift(b->b));
  if (b->op != BinaryOp::lt) return std::nullopt;
  Linear l = difference(lift(b->b), lift(b->a));
  l.constant -= 1;
  return l;
}

// The terms with positive coefficients, and the others with their signs changed.
void split_signs(const Linear& l, Linear* positive, Linear* negative) {
  for (const Term& t : l.terms) {
    if (t.coefficient > 0) {
      add_term(*positive, t.atom, t.coefficient);
    } else {
      add_scaled(*negative, Linear::of_atom(t.atom), -t.coefficient);
    }
  }
}

void divide_coefficients(Linear* l, int64_t g) {
  for (Term& t : l->terms)
    t.coefficient /= g;
}

// Elements of tensors may be anything; moving terms across a comparison would let them wrap.
bool has_data(const Linear& l) {
  bool found = false;
  for (const Term& t : l.terms) {
    for_each_expr(Evaluate::make(t.atom), [&](const Expr& e) { found |= e.kind() == ExprKind::Load; });
  }
  return found;
}

}  // namespace

// ---- Comparisons of indices ----

Expr Simplifier::compare_index(BinaryOp op, const Expr& a, const Expr& b) {
  Linear up = recombine(difference(linear(a), linear(b)));
  if (up.overflow || has_data(up)) return Binary::make(op, simplify(a), simplify(b));
  Linear down = scaled(up, -1);
  if (op == BinaryOp::eq || op == BinaryOp::ne) return equals_zero(up, op == BinaryOp::ne);
  if (op == BinaryOp::lt) down.constant -= 1;
  if (op == BinaryOp::gt) up.constant -= 1;
  return at_least_zero(op == BinaryOp::lt || op == BinaryOp::le ? down : up);
}

// b positive: r - x // b >= 0  <=>  (r + 1)*b - 1 - x >= 0;    r + x // b >= 0  <=>  r*b + x >= 0
std::optional<Linear> Simplifier::without_quotient(const Linear& l, const Term& t) {
  const auto* quotient = t.atom.as<Binary>();
  const Linear x = lift(quotient->a), b = lift(quotient->b);
  if (std::abs(t.coefficient) != 1 || span_of(b).lo < 1) return std::nullopt;
  const bool is_up = t.coefficient > 0;
  Linear rest = l;
  add_term(rest, Expr(t.atom), -t.coefficient);
  if (!is_up) rest.constant += 1;
  Linear moved = product(rest, b);
  add_scaled(moved, x, t.coefficient);
  if (!is_up) moved.constant -= 1;
  return moved.overflow ? std::nullopt : std::optional(moved);
}

// By a divisor that is not constant. Nothing where l has no such quotient, or several.
std::optional<Linear> Simplifier::without_open_quotient(const Linear& l) {
  const Term* found = nullptr;
  for (const Term& t : l.terms) {
    const auto* quotient = t.atom.as<Binary>();
    int64_t ignored = 0;
    if (!quotient || quotient->op != BinaryOp::floor_div || as_int(quotient->b, &ignored)) continue;
    if (found) return std::nullopt;
    found = &t;
  }
  return found ? without_quotient(l, *found) : std::nullopt;
}

// Canonical: p >= c with a constant, or n < p + c; p and n are sums with positive coefficients.
Expr Simplifier::at_least_zero(Linear l) {
  // g*x + c >= 0  <=>  x + c // g >= 0
  if (int64_t g = coefficient_gcd(l); g > 1) {
    divide_coefficients(&l, g);
    l.constant = floor_quotient(l.constant, g);
  }
  if (is_nonnegative(l)) return true_value();
  Linear below = scaled(l, -1);
  below.constant -= 1;
  if (is_nonnegative(below)) return false_value();

  int64_t m = 0;
  const Binary* quotient = l.terms.size() == 1 ? l.terms[0].atom.as<Binary>() : nullptr;
  if (quotient && quotient->op == BinaryOp::floor_div && as_int(quotient->b, &m) && m > 0) {
    Linear x = lift(quotient->a);
    bool up = l.terms[0].coefficient > 0;
    // x // m + c >= 0  <=>  x + c*m >= 0;    c - x // m >= 0  <=>  (c + 1)*m - 1 - x >= 0
    Linear moved = up ? x : scaled(x, -1);
    add_scaled(moved, Linear(l.constant), m);
    if (!up) moved.constant += m - 1;
    if (!moved.overflow) return at_least_zero(moved);
  }

  if (std::optional<Linear> moved = without_open_quotient(l)) return at_least_zero(*moved);

  Linear positive, negative;
  split_signs(l, &positive, &negative);
  Expr out;
  if (negative.terms.empty()) {
    out = Binary::make(BinaryOp::ge, to_expr(positive), Expr(-l.constant));
  } else {
    int64_t shift = l.constant + 1;
    (shift >= 0 || positive.terms.empty() ? positive.constant : negative.constant) =
        shift >= 0 || positive.terms.empty() ? shift : -shift;
    out = Binary::make(BinaryOp::lt, to_expr(negative), to_expr(positive));
  }
  Expr known = known_truth(out);
  return known.defined() ? known : out;
}

// Canonical: p == n + c; the first term of l is in p.
Expr Simplifier::equals_zero(Linear l, bool negated) {
  auto truth = [&](bool equal) { return equal != negated ? true_value() : false_value(); };
  if (l.is_constant()) return truth(l.constant == 0);
  int64_t g = coefficient_gcd(l);
  if (l.constant % g != 0) return truth(false);
  divide_coefficients(&l, g);
  l.constant /= g;
  if (l.terms[0].coefficient < 0) l = scaled(l, -1);
  Linear above = l, below = scaled(l, -1);
  above.constant -= 1;
  below.constant -= 1;
  if (is_nonnegative(above) || is_nonnegative(below)) return truth(false);
  if (is_nonnegative(l) && is_nonnegative(scaled(l, -1))) return truth(true);

  Linear positive, negative;
  split_signs(l, &positive, &negative);
  negative.constant = -l.constant;
  Expr out = Binary::make(negated ? BinaryOp::ne : BinaryOp::eq, to_expr(positive), to_expr(negative));
  Expr known = known_truth(out);
  return known.defined() ? known : out;
}

// ---- Logic ----

Expr Simplifier::known_truth(const Expr& condition) {
  auto in = [](const std::vector<Expr>& list, const Expr& e) {
    for (const Expr& x : list) {
      if (structurally_equal(x, e)) return true;
    }
    return false;
  };
  if (true_.empty() && false_.empty()) return nullptr;
  if (in(true_, condition)) return true_value();
  if (in(false_, condition)) return false_value();
  const auto* b = condition.as<Binary>();
  if (b && (b->op == BinaryOp::eq || b->op == BinaryOp::ne)) {
    if (in(true_, Binary::make(opposite(b->op), b->a, b->b))) return false_value();
  }
  return nullptr;
}

bool Simplifier::implies(const Expr& a, const Expr& b) {
  if (structurally_equal(a, b)) return true;
  auto from = form_of(a), to = form_of(b);
  return from && to && span_of(difference(*to, *from)).lo >= 0;
}

// Whether a and b cannot both hold (for and), or cannot both fail (for or):
//   p >= 0 and q >= 0 give p + q >= 0;  p <= -1 and q <= -1 give p + q <= -2.
bool Simplifier::excludes(BinaryOp op, const Expr& a, const Expr& b) {
  auto p = form_of(a), q = form_of(b);
  if (!p || !q) return false;
  Span span = span_of(sum(*p, *q));
  return op == BinaryOp::logical_and ? span.hi < 0 : span.lo > -2;
}

namespace {

void flatten(BinaryOp op, const Expr& e, std::vector<Expr>* out) {
  const auto* b = e.as<Binary>();
  if (b && b->op == op) {
    flatten(op, b->a, out);
    flatten(op, b->b, out);
  } else {
    out->push_back(e);
  }
}

}  // namespace

// a && b = a where a implies b; a || b = b where a implies b. The order of what stays is kept.
Expr Simplifier::logical(BinaryOp op, const Expr& a, const Expr& b) {
  bool is_and = op == BinaryOp::logical_and;
  std::vector<Expr> flat, kept;
  flatten(op, a, &flat);
  flatten(op, b, &flat);
  for (const Expr& e : flat) {
    if (is_and ? is_true(e) : is_false(e)) continue;
    if (is_and ? is_false(e) : is_true(e)) return e;
    auto covers = [&](const Expr& stays, const Expr& goes) {
      return is_and ? implies(stays, goes) : implies(goes, stays);
    };
    bool covered = false;
    for (const Expr& k : kept)
      covered = covered || covers(k, e);
    if (covered) continue;
    for (const Expr& k : kept) {
      if (excludes(op, k, e)) return constant_int(a.type(), !is_and);
    }
    std::erase_if(kept, [&](const Expr& k) { return covers(e, k); });
    kept.push_back(e);
  }
  if (kept.empty()) return constant_int(a.type(), is_and);
  Expr out = kept[0];
  for (size_t i = 1; i < kept.size(); ++i)
    out = Binary::make(op, out, kept[i]);
  return out;
}

// Comparisons of floats stay as they are: with a NaN, neither x < y nor x >= y holds.
Expr Simplifier::negate(const Expr& condition) {
  if (is_true(condition)) return constant_int(condition.type(), 0);
  if (is_false(condition)) return constant_int(condition.type(), 1);
  if (is_call(condition, Intrinsic::logical_not)) return condition.as<Call>()->args[0];
  const auto* b = condition.as<Binary>();
  if (b && is_comparison(b->op) && !is_float(b->a.element())) {
    if (b->a.type() == kIndex) return compare_index(opposite(b->op), b->a, b->b);
    return Binary::make(opposite(b->op), b->a, b->b);
  }
  return Call::make(Intrinsic::logical_not, {condition});
}

// Each side is simplified knowing which way a scalar condition went.
Expr Simplifier::select(const Select& n, const Expr& self) {
  Expr condition = simplify(n.condition);
  if (is_true(condition)) return simplify(n.on_true);
  if (is_false(condition)) return simplify(n.on_false);
  Expr on_true, on_false;
  if (condition.lanes() == 1) {
    Simplifier yes(*this), no(*this);
    yes.assume(condition);
    no.assume(negate(condition));
    on_true = yes.simplify(n.on_true);
    on_false = no.simplify(n.on_false);
  } else {
    on_true = simplify(n.on_true);
    on_false = simplify(n.on_false);
  }
  if (structurally_equal(on_true, on_false)) return on_true;
  if (is_call(condition, Intrinsic::logical_not)) {
    return Select::make(condition.as<Call>()->args[0], on_false, on_true);
  }
  if (is_bool(n.type.element)) {
    if (is_true(on_true) && is_false(on_false) && condition.type() == n.type) return condition;
    if (is_false(on_true) && is_true(on_false) && condition.type() == n.type) return negate(condition);
  }
  bool same = condition.same_as(n.condition) && on_true.same_as(n.on_true) && on_false.same_as(n.on_false);
  return same ? self : Select::make(condition, on_true, on_false);
}

}  // namespace mcc::tensor
