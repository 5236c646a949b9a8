// Vector expressions: linear in the lane where possible, broadcasts hoisted out of everything else.
#include "tensor/intrinsics.h"
#include "tensor/simplifier.h"
#include "tensor/text.h"

namespace mcc::tensor {

// ---- Index vectors: base + lane * stride ----

std::optional<Simplifier::Lanes> Simplifier::as_lanes(const Expr& e) {
  if (e.element() != ElementType::i64) return std::nullopt;
  if (const auto* b = e.as<Broadcast>()) return Lanes{linear(b->value), Linear()};
  if (const auto* r = e.as<Ramp>()) return Lanes{linear(r->base), linear(r->stride)};
  const auto* n = e.as<Binary>();
  if (!n) return std::nullopt;
  if (n->op == BinaryOp::floor_div || n->op == BinaryOp::floor_mod) return divide_lanes(*n);
  if (n->op != BinaryOp::add && n->op != BinaryOp::sub && n->op != BinaryOp::mul) return std::nullopt;
  auto a = as_lanes(n->a);
  auto b = a ? as_lanes(n->b) : std::nullopt;
  if (!a || !b) return std::nullopt;
  if (n->op == BinaryOp::add) return Lanes{sum(a->base, b->base), sum(a->stride, b->stride)};
  if (n->op == BinaryOp::sub) return Lanes{difference(a->base, b->base), difference(a->stride, b->stride)};
  auto uniform = [](const Lanes& x) { return x.stride.is_constant() && x.stride.constant == 0; };
  // (p + lane*s) * q = p*q + lane*(s*q)
  if (uniform(*b)) return Lanes{product(a->base, b->base), product(a->stride, b->base)};
  if (uniform(*a)) return Lanes{product(a->base, b->base), product(a->base, b->stride)};
  return std::nullopt;
}

// With constant stride s and divisor m > 0:
//   m | s:                          (p + lane*s) // m = p // m + lane*(s / m),  (p + lane*s) %% m = p %% m
//   all lanes in one multiple of m: (p + lane*s) // m = p // m,                 (p + lane*s) %% m = p %% m + lane*s
std::optional<Simplifier::Lanes> Simplifier::divide_lanes(const Binary& n) {
  auto a = as_lanes(n.a), b = as_lanes(n.b);
  if (!a || !b || !b->stride.is_constant() || b->stride.constant != 0) return std::nullopt;
  bool quotient = n.op == BinaryOp::floor_div;
  if (!a->stride.is_constant()) return std::nullopt;
  int64_t stride = a->stride.constant;
  if (stride == 0) {
    Linear value = quotient ? floor_div(a->base, b->base) : floor_mod(a->base, b->base);
    return Lanes{recombine(value), Linear()};
  }
  if (!b->base.is_constant() || b->base.constant <= 0) return std::nullopt;
  int64_t m = b->base.constant;
  if (stride % m == 0) {
    return quotient ? Lanes{floor_div(a->base, m), Linear(stride / m)}
                    : Lanes{floor_mod(a->base, m), Linear()};
  }
  Linear rest = floor_mod(a->base, m);
  Span ends = add(span_of(rest), multiply({0, n.type.lanes - 1}, {stride, stride}));
  if (!ends.within(0, m - 1)) return std::nullopt;
  return quotient ? Lanes{floor_div(a->base, m), Linear()} : Lanes{rest, a->stride};
}

Expr Simplifier::from_lanes(const Lanes& x, const Expr& like) {
  int lanes = like.lanes();
  if (x.stride.is_constant() && x.stride.constant == 0) {
    const auto* b = like.as<Broadcast>();
    if (!b) return Broadcast::make(to_expr(x.base), lanes);
    Expr base = to_expr(x.base, b->value);
    return base.same_as(b->value) ? like : Broadcast::make(base, lanes);
  }
  const auto* r = like.as<Ramp>();
  if (!r) return Ramp::make(to_expr(x.base), to_expr(x.stride), lanes);
  Expr base = to_expr(x.base, r->base), stride = to_expr(x.stride, r->stride);
  return base.same_as(r->base) && stride.same_as(r->stride) ? like : Ramp::make(base, stride, lanes);
}

// Decided where both end lanes agree: the difference is linear in the lane.
Expr Simplifier::vector_compare(BinaryOp op, const Expr& a, const Expr& b) {
  auto x = as_lanes(a), y = as_lanes(b);
  if (!x || !y) return nullptr;
  Linear first = recombine(difference(x->base, y->base));
  Linear last = recombine(sum(first, scaled(difference(x->stride, y->stride), a.lanes() - 1)));
  auto decide = [&](const Expr& one, const Expr& other) -> Expr {
    if (is_true(one) && is_true(other)) return constant_int({ElementType::boolean, a.lanes()}, 1);
    if (is_false(one) && is_false(other)) return constant_int({ElementType::boolean, a.lanes()}, 0);
    return nullptr;
  };
  auto at = [&](const Linear& l, BinaryOp comparison) {
    return compare_index(comparison, to_expr(l), Expr(0));
  };
  if (op == BinaryOp::eq || op == BinaryOp::ne) {
    // Equal in no lane: above in all, or below in all.
    bool apart = is_true(at(first, BinaryOp::gt)) && is_true(at(last, BinaryOp::gt));
    apart = apart || (is_true(at(first, BinaryOp::lt)) && is_true(at(last, BinaryOp::lt)));
    bool same = is_true(at(first, BinaryOp::eq)) && is_true(at(last, BinaryOp::eq));
    if (!apart && !same) return nullptr;
    return constant_int({ElementType::boolean, a.lanes()}, same == (op == BinaryOp::eq));
  }
  return decide(at(first, op), at(last, op));
}

// ---- Any vector ----

Expr Simplifier::vector_binary(const Binary& n, const Expr& self) {
  Expr a = simplify(n.a), b = simplify(n.b);
  const auto* x = a.as<Broadcast>();
  const auto* y = b.as<Broadcast>();
  if (x && y) return Broadcast::make(simplify(Binary::make(n.op, x->value, y->value)), n.type.lanes);
  if (is_logical(n.op)) return logical(n.op, a, b);
  if (is_comparison(n.op)) {
    Expr decided = vector_compare(n.op, a, b);
    if (decided.defined()) return decided;
  }
  if ((n.op == BinaryOp::min || n.op == BinaryOp::max) && a.element() == ElementType::i64) {
    Expr a_less = vector_compare(BinaryOp::le, a, b);
    if (a_less.defined()) return is_true(a_less) == (n.op == BinaryOp::min) ? a : b;
  }
  if (Expr out = data_identity(n.op, a, b); out.defined()) return out;
  return a.same_as(n.a) && b.same_as(n.b) ? self : Binary::make(n.op, a, b);
}

Expr Simplifier::simplify_vector(const Expr& e) {
  int lanes = e.lanes();
  if (auto linear_lanes = as_lanes(e)) {
    if (!linear_lanes->base.overflow && !linear_lanes->stride.overflow)
      return from_lanes(*linear_lanes, e);
  }
  switch (e.kind()) {
    case ExprKind::Binary:
      return vector_binary(*e.as<Binary>(), e);
    case ExprKind::Broadcast: {
      const auto* n = e.as<Broadcast>();
      Expr value = simplify(n->value);
      return value.same_as(n->value) ? e : Broadcast::make(value, lanes);
    }
    case ExprKind::Ramp: {
      const auto* n = e.as<Ramp>();
      Expr base = simplify(n->base), stride = simplify(n->stride);
      if (is_int(stride, 0)) return Broadcast::make(base, lanes);
      return base.same_as(n->base) && stride.same_as(n->stride) ? e : Ramp::make(base, stride, lanes);
    }
    case ExprKind::Cast: {
      Expr out = cast_value(*e.as<Cast>(), e);
      const auto* cast = out.as<Cast>();
      const auto* inner = cast ? cast->value.as<Broadcast>() : nullptr;
      return inner ? Broadcast::make(simplify(Cast::make(cast->type.scalar(), inner->value)), lanes) : out;
    }
    case ExprKind::Select: {
      Expr out = select(*e.as<Select>(), e);
      const auto* n = out.as<Select>();
      if (!n) return out;
      const auto* c = n->condition.as<Broadcast>();
      return c ? simplify(Select::make(c->value, n->on_true, n->on_false)) : out;
    }
    case ExprKind::Call: {
      Expr out = call_value(*e.as<Call>(), e);
      const auto* n = out.as<Call>();
      if (!n || !is_lanewise(n->function) || n->args.empty()) return out;
      std::vector<Expr> scalars;
      for (const Expr& a : n->args) {
        if (const auto* b = a.as<Broadcast>()) scalars.push_back(b->value);
      }
      if (scalars.size() != n->args.size()) return out;
      return Broadcast::make(simplify(Call::make(n->type.scalar(), n->function, std::move(scalars))), lanes);
    }
    case ExprKind::Load: {
      Expr out = load_value(*e.as<Load>(), e);
      const auto* n = out.as<Load>();
      if (!n || n->predicate.defined()) return out;
      // The same element in every lane.
      std::vector<Expr> scalars;
      for (const Expr& i : n->indices) {
        const auto* b = i.as<Broadcast>();
        if (!b && i.lanes() > 1) return out;
        scalars.push_back(b ? b->value : i);
      }
      return Broadcast::make(Load::make(n->buffer, std::move(scalars)), lanes);
    }
    case ExprKind::Shuffle:
      return shuffle_value(*e.as<Shuffle>(), e);
    case ExprKind::Var:
      return simplify_other(e);
    case ExprKind::VectorReduce:
    case ExprKind::IntImm:
    case ExprKind::FloatImm:
      break;
  }
  MCC_UNREACHABLE("no vector: ", to_text(e));
}

Expr Simplifier::shuffle_value(const Shuffle& n, const Expr& self) {
  bool changed = false;
  std::vector<Expr> vectors;
  for (const Expr& v : n.vectors) {
    vectors.push_back(simplify(v));
    changed |= !vectors.back().same_as(v);
  }
  if (vectors.size() == 1) {
    const Expr& v = vectors[0];
    bool identity = static_cast<int>(n.indices.size()) == v.lanes();
    for (size_t i = 0; i < n.indices.size(); ++i)
      identity = identity && n.indices[i] == static_cast<int>(i);
    if (identity) return v;
    if (const auto* b = v.as<Broadcast>()) return Broadcast::make(b->value, n.type.lanes);
    if (const auto* r = v.as<Ramp>(); r && n.type.lanes == 1) {
      return simplify(r->base + r->stride * constant_int(r->stride.type(), n.indices[0]));
    }
  }
  return changed ? Shuffle::make(std::move(vectors), n.indices) : self;
}

Expr Simplifier::reduce_value(const VectorReduce& n, const Expr& self) {
  Expr value = simplify(n.value);
  if (const auto* b = value.as<Broadcast>()) {
    bool idempotent = n.op != BinaryOp::add && n.op != BinaryOp::mul;
    if (idempotent) return b->value;
    if (n.op == BinaryOp::add && is_int(n.type.element)) {
      return simplify(b->value * constant_int(n.type, value.lanes()));
    }
  }
  return value.same_as(n.value) ? self : VectorReduce::make(n.op, value);
}

}  // namespace mcc::tensor
