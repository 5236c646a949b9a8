// What is known about variables, and the bounds that follow from it.
#include <algorithm>
#include <bit>

#include "tensor/simplifier.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// How many attempts one proof may take.
constexpr int kProofBudget = 24;

const Binary* as_op(const Expr& e, BinaryOp op) {
  const auto* b = e.as<Binary>();
  return b && b->op == op ? b : nullptr;
}

const Call* as_call(const Expr& e, Intrinsic function) {
  const auto* c = e.as<Call>();
  return c && c->function == function ? c : nullptr;
}

// A range that is not empty has as many numbers as x where it has max(x, 0).
Expr extent_of_some(const Expr& extent) {
  const Binary* most = as_op(extent, BinaryOp::max);
  if (!most) return extent;
  int64_t n = 1;
  if (as_int(most->b, &n) && n <= 0) return most->a;
  if (as_int(most->a, &n) && n <= 0) return most->b;
  return extent;
}

// What the numbers among the operands of min and max say. Linear forms take common terms out of these, and lose it.
Span span_of_choice(const Expr& e) {
  int64_t n = 0;
  if (as_int(e, &n)) return Span::point(n);
  const auto* choice = e.as<Binary>();
  if (!choice || (choice->op != BinaryOp::min && choice->op != BinaryOp::max)) return {};
  const Span a = span_of_choice(choice->a), b = span_of_choice(choice->b);
  if (choice->op == BinaryOp::min) return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
  return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
}

bool fits(Span inner, Span outer) { return inner.lo >= outer.lo && inner.hi <= outer.hi; }

}  // namespace

Span span_of_type(ElementType element) {
  if (is_bool(element)) return {0, 1};
  if (!is_int(element) || bit_width(element) >= 64) return {};
  int64_t size = int64_t{1} << bit_width(element);
  return is_signed_int(element) ? Span{-size / 2, size / 2 - 1} : Span{0, size - 1};
}

Simplifier::Simplifier(const Simplifier& other)
    : vars_(other.vars_), facts_(other.facts_), true_(other.true_), false_(other.false_) {}

Simplifier& Simplifier::operator=(const Simplifier& other) {
  if (this != &other) *this = Simplifier(other);
  return *this;
}

// ---- Facts ----

Simplifier::VarInfo& Simplifier::info(const Var& var) {
  cache_.clear();
  VarInfo& v = vars_[var.get()];
  if (!v.var.defined()) {
    v.var = var;
    v.order = static_cast<int>(vars_.size());
  }
  return v;
}

void Simplifier::bind_range(const Var& var, const Expr& min, const Expr& extent) {
  // The variable has a value, so its range is not empty.
  Linear low = linear(min), count = linear(extent_of_some(simplify(extent)));
  Linear high = sum(low, count);
  high.constant -= 1;
  Span span{std::max(span_of(low).lo, span_of_choice(min).lo), span_of(high).hi};
  VarInfo& v = info(var);
  v.span = span;
  v.value = nullptr;
  v.symbolic = !low.is_constant() || !high.is_constant();
  v.min = low;
  v.max = recombine(high);
  if (!count.is_constant()) {
    count.constant -= 1;
    assume_nonnegative(count);
  }
}

void Simplifier::bind_value(const Var& var, const Expr& value) {
  Expr simple = simplify(value);
  info(var).value = simple;
}

void Simplifier::bind_span(const Var& var, Span span) {
  VarInfo& v = info(var);
  v.span = span;
  v.value = nullptr;
  v.symbolic = false;
}

void Simplifier::assume(const Expr& condition) {
  Expr c = simplify(condition);
  cache_.clear();
  if (const Call* likely = as_call(c, Intrinsic::likely)) return assume(likely->args[0]);
  if (const Call* negation = as_call(c, Intrinsic::logical_not)) return assume_not(negation->args[0]);
  if (const Binary* both = as_op(c, BinaryOp::logical_and)) {
    assume(both->a);
    assume(both->b);
    return;
  }
  const auto* comparison = c.as<Binary>();
  if (!comparison || comparison->a.type() != kIndex) {
    true_.push_back(c);
    return;
  }
  Linear a = lift(comparison->a), b = lift(comparison->b);
  // Canonical comparisons are <, >=, == and !=.
  Linear up = difference(a, b), down = difference(b, a);
  if (comparison->op == BinaryOp::lt) down.constant -= 1;
  if (comparison->op == BinaryOp::ne) true_.push_back(c);
  if (comparison->op == BinaryOp::lt || comparison->op == BinaryOp::eq) assume_nonnegative(down);
  if (comparison->op == BinaryOp::ge || comparison->op == BinaryOp::eq) assume_nonnegative(up);
}

void Simplifier::assume_not(const Expr& condition) {
  if (const Binary* either = as_op(condition, BinaryOp::logical_or)) {
    assume(negate(either->a));
    assume(negate(either->b));
    return;
  }
  false_.push_back(condition);
}

void Simplifier::assume_nonnegative(const Linear& l) {
  cache_.clear();
  if (l.overflow || l.is_constant()) return;
  if (l.terms.size() == 1 && l.terms[0].atom.as<VarNode>()) {
    // c * v + k >= 0:  v >= -k / c, rounded up, for c > 0;  v <= k / -c, rounded down, for c < 0.
    const Term& t = l.terms[0];
    Var var(static_cast<const VarNode*>(t.atom.get()));
    VarInfo& v = info(var);
    if (t.coefficient > 0) {
      v.span.lo = std::max(v.span.lo, -floor_quotient(l.constant, t.coefficient));
    } else {
      v.span.hi = std::min(v.span.hi, floor_quotient(l.constant, -t.coefficient));
    }
    return;
  }
  facts_.push_back(l);
}

// ---- Bounds ----

Span Simplifier::bounds(const Expr& e) {
  if (e.type() != kIndex) return span_of_any(simplify(e));
  Linear l = linear(e);
  Span span = span_of(l);
  // A fact f >= 0 bounds l from above by l + f, and from below by l - f.
  for (const Linear& f : facts_) {
    span.hi = std::min(span.hi, span_of(sum(l, f)).hi);
    span.lo = std::max(span.lo, span_of(difference(l, f)).lo);
  }
  return span;
}

Span Simplifier::span_of(const Linear& l) {
  if (l.overflow) return {};
  Span out = Span::point(l.constant);
  for (const Term& t : l.terms) {
    out = add(out, scale(span_of_atom(t.atom), t.coefficient));
    if (!out.has_lo() && !out.has_hi()) return out;
  }
  return out;
}

// Of a simplified expression of any integer type, lanes included.
Span Simplifier::span_of_any(const Expr& e) {
  if (e.type() == kIndex) return span_of(lift(e));
  Span limits = span_of_type(e.element());
  Span span = span_of_atom(e);
  return fits(span, limits) ? span : limits;
}

Span Simplifier::span_of_atom(const Expr& atom) {
  switch (atom.kind()) {
    case ExprKind::IntImm: {
      bool huge = atom.element() == ElementType::u64 && atom.as<IntImm>()->value < 0;
      return huge ? Span{} : Span::point(atom.as<IntImm>()->value);
    }
    case ExprKind::Var: {
      auto it = vars_.find(atom.get());
      return it == vars_.end() ? span_of_type(atom.element()) : it->second.span;
    }
    case ExprKind::Binary:
      return span_of_binary(*atom.as<Binary>());
    case ExprKind::Select:
      return unite(span_of_any(atom.as<Select>()->on_true), span_of_any(atom.as<Select>()->on_false));
    case ExprKind::Cast: {
      const Expr& value = atom.as<Cast>()->value;
      Span limits = span_of_type(atom.element());
      if (is_float(value.element()) || value.element() == ElementType::u64) return limits;
      Span span = span_of_any(value);
      return fits(span, limits) ? span : limits;
    }
    case ExprKind::Broadcast:
      return span_of_any(atom.as<Broadcast>()->value);
    case ExprKind::Ramp: {
      const auto* ramp = atom.as<Ramp>();
      return add(span_of_any(ramp->base), multiply(span_of_any(ramp->stride), {0, atom.lanes() - 1}));
    }
    case ExprKind::VectorReduce: {
      const auto* reduce = atom.as<VectorReduce>();
      bool picks = reduce->op == BinaryOp::min || reduce->op == BinaryOp::max;
      return picks ? span_of_any(reduce->value) : span_of_type(atom.element());
    }
    case ExprKind::Call: {
      const auto* call = atom.as<Call>();
      if (call->function == Intrinsic::popcount) return {0, 64};
      if (call->function == Intrinsic::likely) return span_of_any(call->args[0]);
      return span_of_type(atom.element());
    }
    case ExprKind::FloatImm:
    case ExprKind::Load:
    case ExprKind::Shuffle:
      return span_of_type(atom.element());
  }
  MCC_UNREACHABLE("unknown expression kind");
}

Span Simplifier::span_of_binary(const Binary& n) {
  if (is_bool(n.type.element)) return {0, 1};
  if (!is_int(n.type.element) || n.type.element == ElementType::u64) return span_of_type(n.type.element);
  Span a = span_of_any(n.a), b = span_of_any(n.b);
  switch (n.op) {
    case BinaryOp::add:
      return add(a, b);
    case BinaryOp::sub:
      return add(a, scale(b, -1));
    case BinaryOp::mul:
      return multiply(a, b);
    case BinaryOp::min:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case BinaryOp::max:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case BinaryOp::div:
    case BinaryOp::floor_div: {
      if (b.lo <= 0) return {};
      // A positive divisor pulls toward zero (toward -1 when rounding down).
      Span least = floor_divide(a, b.lo);
      Span most = b.has_hi() ? floor_divide(a, b.hi) : Span{a.lo < 0 ? -1 : 0, a.hi < 0 ? -1 : 0};
      Span span = unite(least, most);
      if (n.op == BinaryOp::div && a.lo < 0) span.hi = std::max<int64_t>(span.hi, 0);
      return span;
    }
    case BinaryOp::floor_mod: {
      if (b.lo <= 0) return {};
      if (b.lo == b.hi && a.has_lo() && a.has_hi() &&
          floor_quotient(a.lo, b.lo) == floor_quotient(a.hi, b.lo)) {
        return {floor_remainder(a.lo, b.lo), floor_remainder(a.hi, b.lo)};
      }
      int64_t hi = b.has_hi() ? b.hi - 1 : kPosInf;
      return {0, a.lo >= 0 ? std::min(hi, a.hi) : hi};
    }
    case BinaryOp::mod: {
      if (b.lo <= 0) return {};
      int64_t hi = b.has_hi() ? b.hi - 1 : kPosInf;
      Span span;
      span.lo = a.lo >= 0 ? 0 : std::max(a.lo, b.has_hi() ? -hi : kNegInf);
      span.hi = a.hi <= 0 ? 0 : std::min(a.hi, hi);
      return span;
    }
    case BinaryOp::bit_and:
      if (b.lo >= 0) return {0, b.hi};
      if (a.lo >= 0) return {0, a.hi};
      return {};
    case BinaryOp::shr:
      if (b.lo == b.hi && b.lo >= 0 && b.lo < 62) return floor_divide(a, int64_t{1} << b.lo);
      return {};
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
      // No bits above those of the larger one.
      if (a.lo >= 0 && b.lo >= 0 && a.has_hi() && b.has_hi()) {
        const auto most = static_cast<uint64_t>(std::max(a.hi, b.hi));
        return {0, static_cast<int64_t>(std::bit_ceil(most + 1) - 1)};
      }
      return {};
    case BinaryOp::shl:
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      return {};
  }
  MCC_UNREACHABLE("unknown operator");
}

// ---- Proofs ----

// What a proof rewrites holds minima, whose operands are compared by proofs in turn: each of those has a part of the steps.
bool Simplifier::is_nonnegative(const Linear& l) {
  int budget = kProofBudget >> proofs_;
  ++proofs_;
  const bool is_proven = prove(l, &budget);
  --proofs_;
  return is_proven;
}

bool Simplifier::prove(const Linear& form, int* budget) {
  if (form.overflow) return false;
  if (form.is_constant()) return form.constant >= 0;
  // g*x + c >= 0  <=>  x + c // g >= 0
  Linear l = form;
  if (int64_t g = coefficient_gcd(l); g > 1) {
    for (Term& t : l.terms)
      t.coefficient /= g;
    l.constant = floor_quotient(l.constant, g);
  }
  Span span = span_of(l);
  if (span.lo >= 0) return true;
  if (span.hi < 0 || --*budget <= 0) return false;
  return prove_by_facts(l) || prove_by_min_max(l, budget) || prove_by_divisors(l, budget) ||
         prove_by_tiles(l, budget) || prove_by_elimination(l, budget);
}

// l = f + (l - f) with f >= 0
bool Simplifier::prove_by_facts(const Linear& l) {
  for (const Linear& f : facts_) {
    bool shares = false;
    for (const Term& t : l.terms)
      shares |= f.coefficient_of(t.atom) != 0;
    if (shares && span_of(difference(l, f)).lo >= 0) return true;
  }
  return false;
}

// c*min(a, b) >= 0 for c < 0 where either c*a or c*b is, for c > 0 where both are; max the other way round.
bool Simplifier::prove_by_min_max(const Linear& l, int* budget) {
  for (const Term& t : l.terms) {
    const auto* n = t.atom.as<Binary>();
    if (!n || (n->op != BinaryOp::min && n->op != BinaryOp::max)) continue;
    auto with = [&](const Expr& side) {
      Linear out = l;
      add_term(out, t.atom, -t.coefficient);
      add_scaled(out, lift(side), t.coefficient);
      return prove(recombine(out), budget);
    };
    bool either = (n->op == BinaryOp::min) == (t.coefficient < 0);
    return either ? with(n->a) || with(n->b) : with(n->a) && with(n->b);
  }
  return false;
}

// For constant n, and x without bounds (where it has some, those of the quotient do, unless l has parts of x elsewhere, too): as
// without_quotient() says, and for c a multiple of n, c*(x // n) >= c/n * (x - n + 1) for c > 0, and >= c/n * x for c < 0. So a dimension filled up to whole tiles is as long as it was.
bool Simplifier::prove_by_tiles(const Linear& l, int* budget) {
  for (const Term& t : l.terms) {
    const auto* quotient = t.atom.as<Binary>();
    int64_t n = 0;
    if (!quotient || quotient->op != BinaryOp::floor_div || !as_int(quotient->b, &n) || n < 2) continue;
    const Linear x = lift(quotient->a);
    const Span span = span_of(x);
    const bool is_shared = std::any_of(x.terms.begin(), x.terms.end(),
                                       [&](const Term& of_x) { return l.coefficient_of(of_x.atom) != 0; });
    if (span.has_lo() && span.has_hi() && !is_shared) continue;
    if (const std::optional<Linear> moved = without_quotient(l, t); moved && prove(recombine(*moved), budget))
      return true;
    if (t.coefficient % n != 0) continue;
    Linear rest = l;
    add_term(rest, t.atom, -t.coefficient);
    add_scaled(rest, x, t.coefficient / n);
    if (t.coefficient > 0) rest.constant -= t.coefficient / n * (n - 1);
    if (prove(recombine(rest), budget)) return true;
  }
  return false;
}

// For symbolic n >= 1: c*(x %% n) >= c*(n - 1) for c < 0; and as without_quotient() says.
bool Simplifier::prove_by_divisors(const Linear& l, int* budget) {
  for (const Term& t : l.terms) {
    const auto* division = t.atom.as<Binary>();
    const bool is_quotient = division && division->op == BinaryOp::floor_div;
    if (!is_quotient && !(division && division->op == BinaryOp::floor_mod && t.coefficient < 0)) continue;
    const Linear n = lift(division->b);
    if (n.is_constant() || span_of(n).lo < 1) continue;
    if (is_quotient) {
      if (const std::optional<Linear> moved = without_quotient(l, t)) return prove(recombine(*moved), budget);
      continue;
    }
    Linear rest = l;
    add_term(rest, t.atom, -t.coefficient);
    add_scaled(rest, n, t.coefficient);
    rest.constant -= t.coefficient;
    return prove(recombine(rest), budget);
  }
  return false;
}

// Replaces the variable that was bound last by its symbolic bounds: c*v*w >= c*min(v)*w for c > 0 and w >= 0, and
// >= c*max(v)*w for c < 0. What is left mentions earlier variables only.
bool Simplifier::prove_by_elimination(const Linear& l, int* budget) {
  const VarInfo* last = nullptr;
  for (const Term& t : l.terms) {
    for (const Expr& factor : factors_of(t.atom)) {
      auto it = vars_.find(factor.get());
      if (it == vars_.end() || !it->second.symbolic) continue;
      if (!last || it->second.order > last->order) last = &it->second;
    }
  }
  if (!last) return false;
  Linear out(l.constant);
  for (const Term& t : l.terms) {
    std::vector<Expr> others;
    int uses = 0;
    for (const Expr& factor : factors_of(t.atom)) {
      if (factor.get() == last->var.get()) {
        ++uses;
      } else {
        others.push_back(factor);
      }
    }
    if (uses == 0) {
      add_term(out, t.atom, t.coefficient);
      continue;
    }
    Linear rest(1);
    if (!others.empty()) rest = Linear::of_atom(product_of(others));
    if (uses > 1 || span_of(rest).lo < 0) return false;
    add_scaled(out, product(t.coefficient > 0 ? last->min : last->max, rest), t.coefficient);
  }
  return prove(recombine(out), budget);
}

}  // namespace mcc::tensor
