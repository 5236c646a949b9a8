// Expressions that are no index arithmetic.
#include <cmath>
#include <limits>

#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/simplifier.h"
#include "tensor/text.h"

namespace mcc::tensor {

Expr Simplifier::simplify(const Expr& e) {
  if (!e.defined() || e.as<IntImm>() || e.as<FloatImm>()) return e;
  if (auto it = cache_.find(e.get()); it != cache_.end()) return it->second.second;
  Expr out;
  if (e.type() == kIndex) {
    out = simplify_index(e);
  } else if (e.lanes() > 1) {
    out = simplify_vector(e);
  } else {
    out = simplify_other(e);
  }
  if (structurally_equal(out, e)) out = e;
  constexpr size_t kMaxCached = 50000;
  if (cache_.size() > kMaxCached) cache_.clear();
  cache_[e.get()] = {e, out};
  if (!out.same_as(e)) cache_[out.get()] = {out, out};
  return out;
}

Expr Simplifier::simplify_other(const Expr& e) {
  switch (e.kind()) {
    case ExprKind::IntImm:
    case ExprKind::FloatImm:
      return e;
    case ExprKind::Var: {
      auto it = vars_.find(e.get());
      return it != vars_.end() && it->second.value.defined() ? it->second.value : e;
    }
    case ExprKind::Cast:
      return cast_value(*e.as<Cast>(), e);
    case ExprKind::Binary:
      return binary_value(*e.as<Binary>(), e);
    case ExprKind::Select:
      return select(*e.as<Select>(), e);
    case ExprKind::Load:
      return load_value(*e.as<Load>(), e);
    case ExprKind::Call:
      return call_value(*e.as<Call>(), e);
    case ExprKind::Shuffle:
      return shuffle_value(*e.as<Shuffle>(), e);
    case ExprKind::VectorReduce:
      return reduce_value(*e.as<VectorReduce>(), e);
    case ExprKind::Ramp:
    case ExprKind::Broadcast:
      return simplify_vector(e);
  }
  MCC_UNREACHABLE("unknown expression kind");
}

namespace {

// Rules for floats and for integers that are data: x OP c = x, or c OP x = x.
struct IdentityRule {
  BinaryOp op;
  bool constant_on_right;
  double constant;
  bool for_floats, for_ints;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr IdentityRule kIdentities[] = {
    {BinaryOp::mul, true, 1, true, true},
    {BinaryOp::mul, false, 1, true, true},
    {BinaryOp::div, true, 1, true, true},
    {BinaryOp::sub, true, 0.0, true, true},   // also x = -0: -0 - 0 = -0
    {BinaryOp::add, true, -0.0, true, true},  // x + 0.0 is not x for x = -0
    {BinaryOp::add, false, -0.0, true, true},
    {BinaryOp::add, true, 0.0, false, true},
    {BinaryOp::add, false, 0.0, false, true},
    {BinaryOp::min, true, kInfinity, true, false},  // a NaN stays one
    {BinaryOp::min, false, kInfinity, true, false},
    {BinaryOp::max, true, -kInfinity, true, false},
    {BinaryOp::max, false, -kInfinity, true, false},
};
// Not rules: x * 0 = 0 (infinity, NaN, -0), x - x = 0 (NaN), x / c = x * (1/c) (rounding).

}  // namespace

Expr Simplifier::data_identity(BinaryOp op, const Expr& a, const Expr& b) {
  bool floating = is_float(a.element());
  for (const IdentityRule& rule : kIdentities) {
    if (rule.op != op || !(floating ? rule.for_floats : rule.for_ints)) continue;
    double value = 0;
    if (!as_number(rule.constant_on_right ? b : a, &value)) continue;
    bool same = value == rule.constant && (!floating || std::signbit(value) == std::signbit(rule.constant));
    if (same) return rule.constant_on_right ? a : b;
  }
  return nullptr;
}

namespace {

// One operation on constants, rounded once: double holds the exact sum, product or close enough quotient of two narrower
// floats for the rounding to their type to be the right one.
Expr fold_floats(BinaryOp op, const FloatImm& x, const FloatImm& y) {
  double a = x.value, b = y.value;
  auto value = [&](double v) { return FloatImm::make(x.type, v); };
  auto truth = [](bool v) { return v ? true_value() : false_value(); };
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (op) {
    case BinaryOp::add:
      return value(a + b);
    case BinaryOp::sub:
      return value(a - b);
    case BinaryOp::mul:
      return value(a * b);
    case BinaryOp::div:
      return value(a / b);
    case BinaryOp::min:
      return value(unordered ? std::nan("") : std::min(a, b));
    case BinaryOp::max:
      return value(unordered ? std::nan("") : std::max(a, b));
    case BinaryOp::eq:
      return truth(a == b);
    case BinaryOp::ne:
      return truth(a != b);
    case BinaryOp::lt:
      return truth(a < b);
    case BinaryOp::le:
      return truth(a <= b);
    case BinaryOp::gt:
      return truth(a > b);
    case BinaryOp::ge:
      return truth(a >= b);
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      return nullptr;
  }
  MCC_UNREACHABLE("unknown operator");
}

}  // namespace

Expr Simplifier::rebuild(const Expr& e) {
  const auto* n = e.as<Binary>();
  MCC_CHECK(n, "rebuild of ", to_text(e));
  Expr a = simplify(n->a), b = simplify(n->b);
  if (a.as<IntImm>() && b.as<IntImm>()) return binary(n->op, a, b);
  return a.same_as(n->a) && b.same_as(n->b) ? e : Binary::make(n->op, a, b);
}

Expr Simplifier::binary_value(const Binary& n, const Expr& self) {
  if (is_comparison(n.op) && n.a.type() == kIndex) return compare_index(n.op, n.a, n.b);
  if (is_logical(n.op)) {
    Expr out = logical(n.op, simplify(n.a), simplify(n.b));
    Expr known = known_truth(out);
    return known.defined() ? known : out;
  }
  Expr a = simplify(n.a), b = simplify(n.b);
  const auto* x = a.as<FloatImm>();
  const auto* y = b.as<FloatImm>();
  if (x && y) {
    if (Expr folded = fold_floats(n.op, *x, *y); folded.defined()) return folded;
  }
  if (Expr out = data_identity(n.op, a, b); out.defined()) return out;
  Expr out = is_float(a.element()) ? Binary::make(n.op, a, b) : binary(n.op, a, b);
  if (is_bool(n.type.element)) {
    Expr known = known_truth(out);
    if (known.defined()) return known;
  }
  return structurally_equal(out, self) ? self : out;
}

namespace {

// Toward zero, saturating; NaN gives 0.
int64_t truncate_to_int(ElementType element, double value) {
  if (is_bool(element)) return value != 0;
  if (std::isnan(value)) return 0;
  IntLimits limits = int_limits(element);
  bool is_unsigned = is_unsigned_int(element);
  if (value >= std::ldexp(1.0, bit_width(element) - (is_unsigned ? 0 : 1))) return limits.high;
  if (value <= static_cast<double>(limits.low)) return limits.low;
  return is_unsigned ? static_cast<int64_t>(static_cast<uint64_t>(value)) : static_cast<int64_t>(value);
}

}  // namespace

Expr Simplifier::cast_value(const Cast& n, const Expr& self) {
  Expr value = simplify(n.value);
  ElementType to = n.type.element;
  if (const auto* f = value.as<FloatImm>()) {
    return is_float(to) ? FloatImm::make(n.type, f->value)
                        : IntImm::make(n.type, truncate_to_int(to, f->value));
  }
  if (const auto* i = value.as<IntImm>()) {
    // Through double; larger numbers might be rounded twice.
    bool exact = std::abs(static_cast<double>(i->value)) <= 0x1p53;
    if (exact || !is_float(to)) return cast(to, value);
  }
  // T(U(x)) = T(x) for integers, where every value of x fits U.
  if (const auto* inner = value.as<Cast>(); inner && is_int(to) && is_int(inner->type.element)) {
    const Expr& x = inner->value;
    bool integral = (is_int(x.element()) || is_bool(x.element())) && x.element() != ElementType::u64;
    if (integral) {
      Span known = span_of_any(x), limits = span_of_type(inner->type.element);
      bool fits = known.lo >= limits.lo && known.hi <= limits.hi && known.has_lo() && known.has_hi();
      if (fits) return Cast::make(n.type, x);
    }
  }
  return value.same_as(n.value) ? self : Cast::make(n.type, value);
}

Expr Simplifier::call_value(const Call& n, const Expr& self) {
  if (n.function == Intrinsic::logical_not) return negate(simplify(n.args[0]));
  const IntrinsicClass of = class_of(n.function);
  // Loads that stand for places have to stay loads.
  const bool has_places = n.function == Intrinsic::prefetch || n.function == Intrinsic::async_copy ||
                          of == IntrinsicClass::wgmma || of == IntrinsicClass::bulk ||
                          of == IntrinsicClass::tile;
  std::vector<Expr> args;
  bool changed = false;
  for (const Expr& a : n.args) {
    const auto* place = has_places ? a.as<Load>() : nullptr;
    args.push_back(place ? simplified_place(*place, a) : simplify(a));
    changed |= !args.back().same_as(a);
  }
  if (n.function == Intrinsic::likely && (is_true(args[0]) || is_false(args[0]))) return args[0];
  return changed ? Call::make(n.type, n.function, std::move(args)) : self;
}

Expr Simplifier::simplified_place(const Load& n, const Expr& self) {
  Expr now = load_value(n, self);
  if (now.as<Load>()) return now;
  // Nothing is ever read there: what that means is the instruction's.
  std::vector<Expr> indices;
  for (const Expr& i : n.indices)
    indices.push_back(simplify(i));
  return Load::make(n.buffer, std::move(indices), simplify(n.predicate));
}

Expr Simplifier::load_value(const Load& n, const Expr& self) {
  bool changed = false;
  std::vector<Expr> indices;
  for (const Expr& i : n.indices) {
    indices.push_back(simplify(i));
    changed |= !indices.back().same_as(i);
  }
  Expr predicate = simplify(n.predicate);
  if (predicate.defined() && is_false(predicate)) return constant(n.type, 0);
  if (predicate.defined() && is_true(predicate)) predicate = nullptr;
  if (!changed && predicate.same_as(n.predicate)) return self;
  return Load::make(n.buffer, std::move(indices), predicate);
}

}  // namespace mcc::tensor
