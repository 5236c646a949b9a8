// Index expressions: canonical linear forms, division and remainder.
//
// Notation: q, r, m, g, k integers, m > 0, g > 0; a // m and a %% m round toward minus infinity.
#include <numeric>

#include "tensor/simplifier.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Recombination takes terms away at each step; this only guards against a mistake.
constexpr int kMaxRecombinations = 32;

bool is_op(const Expr& e, BinaryOp op) {
  const auto* b = e.as<Binary>();
  return b && b->op == op;
}

// x // m or x %% m with a constant m > 0.
const Binary* division_by_constant(const Expr& e, BinaryOp op, int64_t* m) {
  const auto* b = e.as<Binary>();
  return b && b->op == op && as_int(b->b, m) && *m > 0 ? b : nullptr;
}

Linear overflowed() {
  Linear l;
  l.overflow = true;
  return l;
}

// a = m*quotient + remainder, coefficient by coefficient; coefficients of the remainder are below m, its constant
// in [0, m).
void split_by(const Linear& a, int64_t m, Linear* quotient, Linear* remainder) {
  for (const Term& t : a.terms) {
    add_term(*quotient, t.atom, t.coefficient / m);
    add_term(*remainder, t.atom, t.coefficient % m);
  }
  quotient->constant = floor_quotient(a.constant, m);
  remainder->constant = floor_remainder(a.constant, m);
}

// Factors above 1 that some coefficients share with m, largest first.
std::vector<int64_t> common_factors(const Linear& a, int64_t m) {
  std::vector<int64_t> out;
  for (const Term& t : a.terms)
    out.push_back(std::gcd(t.coefficient, m));
  size_t single = out.size();
  for (size_t i = 0; i < single; ++i) {
    for (size_t j = 0; j < i; ++j)
      out.push_back(std::gcd(out[i], out[j]));
  }
  std::sort(out.begin(), out.end(), std::greater<>());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase_if(out, [&](int64_t g) { return g <= 1 || g >= m; });
  return out;
}

}  // namespace

Linear Simplifier::linear(const Expr& e) { return lift(simplify(e)); }

Linear Simplifier::collect(const Expr& e) {
  Linear out;
  collect(e, 1, out);
  return out;
}

void Simplifier::collect(const Expr& e, int64_t scale, Linear& out) {
  if (const auto* imm = e.as<IntImm>()) return add_scaled(out, Linear(imm->value), scale);
  if (e.as<VarNode>()) {
    auto it = vars_.find(e.get());
    if (it == vars_.end()) return add_term(out, e, scale);
    const VarInfo& v = it->second;
    if (v.value.defined()) return add_scaled(out, lift(v.value), scale);
    if (v.span.lo == v.span.hi) return add_scaled(out, Linear(v.span.lo), scale);
    return add_term(out, e, scale);
  }
  if (const auto* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add || (b->op == BinaryOp::sub && scale != INT64_MIN)) {
      collect(b->a, scale, out);
      return collect(b->b, b->op == BinaryOp::add ? scale : -scale, out);
    }
    if (b->op == BinaryOp::mul) {
      int64_t factor = 0, combined = 0;
      bool constant = as_int(b->b, &factor) && !__builtin_mul_overflow(scale, factor, &combined);
      if (constant) return collect(b->a, combined, out);
      // All factors of a chain at once: a part of it might be distributed where the whole is not.
      std::vector<Linear> forms;
      for (const Expr& factor : factors_of(e))
        forms.push_back(collect(factor));
      return add_scaled(out, product(forms), scale);
    }
  }
  add_scaled(out, lift(simplify(e)), scale);
}

Expr Simplifier::simplify_index(const Expr& e) {
  const auto* b = e.as<Binary>();
  if (!b && !e.as<VarNode>()) return simplify_other(e);
  Linear l = recombine(b ? index_binary(*b, e) : collect(e));
  return l.overflow ? rebuild(e) : to_expr(l, e);
}

Linear Simplifier::index_binary(const Binary& n, const Expr& self) {
  switch (n.op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
      return collect(self);
    case BinaryOp::floor_div:
      return floor_div(linear(n.a), linear(n.b));
    case BinaryOp::floor_mod:
      return floor_mod(linear(n.a), linear(n.b));
    case BinaryOp::div:
    case BinaryOp::mod: {
      // Toward zero is toward minus infinity where the dividend is not negative.
      Linear a = linear(n.a), b = linear(n.b);
      bool same = is_nonnegative(a) && span_of(b).lo > 0;
      if (same) return n.op == BinaryOp::div ? floor_div(a, b) : floor_mod(a, b);
      return lift(rebuild(self));
    }
    case BinaryOp::min:
    case BinaryOp::max:
      return lift(min_max(n.op, simplify(n.a), simplify(n.b)));
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      return lift(rebuild(self));
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      break;
  }
  MCC_UNREACHABLE(to_text(n.op), " gives no index");
}

// ---- Division and remainder ----

Linear Simplifier::floor_div(const Linear& a, const Linear& b) {
  if (a.overflow || b.overflow) return overflowed();
  if (!b.is_constant()) return symbolic_div_mod(a, b, true);
  if (b.constant == 0) return Linear(0);
  // a // -m = -a // m
  return b.constant > 0 ? floor_div(a, b.constant) : floor_div(scaled(a, -1), -b.constant);
}

Linear Simplifier::floor_mod(const Linear& a, const Linear& b) {
  if (a.overflow || b.overflow) return overflowed();
  if (!b.is_constant()) return symbolic_div_mod(a, b, false);
  if (b.constant == 0) return Linear(0);
  // a %% -m = -(-a %% m)
  return b.constant > 0 ? floor_mod(a, b.constant) : scaled(floor_mod(scaled(a, -1), -b.constant), -1);
}

// r = g*high + low with 0 <= low < g, for a factor g of m: false if there is none.
static bool split_off_low(const Linear& r, int64_t g, Linear* high, Linear* low) {
  *high = Linear(floor_quotient(r.constant, g));
  *low = Linear(floor_remainder(r.constant, g));
  for (const Term& t : r.terms) {
    if (t.coefficient % g == 0) {
      add_term(*high, t.atom, t.coefficient / g);
    } else {
      add_term(*low, t.atom, t.coefficient);
    }
  }
  return !high->terms.empty();
}

Linear Simplifier::floor_div(const Linear& a, int64_t m) {
  if (m == 1) return a;
  // (m*q + r) // m = q + r // m
  Linear q, r;
  split_by(a, m, &q, &r);
  Span span = span_of(r);
  if (span.has_lo() && span.has_hi()) {
    int64_t k = floor_quotient(span.lo, m);
    if (k == floor_quotient(span.hi, m)) {
      q.constant += k;
      return q;
    }
  }
  if (recombine_once(r)) return sum(q, floor_div(r, m));
  // (c*x - c*(x %% n) + y) // m = (c*n*(x // n) + y) // m
  for (const Term& t : r.terms) {
    int64_t n = 0, multiple = 0;
    const Binary* inner = division_by_constant(t.atom, BinaryOp::floor_mod, &n);
    if (!inner || t.coefficient >= 0 || __builtin_mul_overflow(-t.coefficient, n, &multiple)) continue;
    const Linear x = lift(inner->a);
    Linear rounded = r;
    add_term(rounded, t.atom, -t.coefficient);
    add_scaled(rounded, x, t.coefficient);
    if (rounded.overflow || rounded.terms.size() + x.terms.size() + 1 != r.terms.size()) continue;
    add_scaled(rounded, floor_div(x, n), multiple);
    return rounded.overflow ? rounded : sum(q, floor_div(rounded, m));
  }
  // (g*high + low) // (g*n) = high // n, for 0 <= low < g
  for (int64_t g : common_factors(r, m)) {
    Linear high, low;
    if (!split_off_low(r, g, &high, &low)) continue;
    Span s = span_of(low);
    if (!s.has_lo() || !s.has_hi()) continue;
    int64_t k = floor_quotient(s.lo, g);
    if (k != floor_quotient(s.hi, g)) continue;
    high.constant += k;
    return sum(q, floor_div(high, m / g));
  }
  if (r.terms.size() == 1) {
    const Term& t = r.terms[0];
    int64_t n = 0;
    // (x // n + c) // m = (x + c*n) // (n*m)
    if (const Binary* inner = division_by_constant(t.atom, BinaryOp::floor_div, &n);
        inner && t.coefficient == 1) {
      Linear x = lift(inner->a);
      add_scaled(x, Linear(r.constant), n);
      int64_t divisor = 0;
      if (!x.overflow && !__builtin_mul_overflow(n, m, &divisor)) return sum(q, floor_div(x, divisor));
    }
    // (x %% (m*n)) // m = (x // m) %% n
    if (const Binary* inner = division_by_constant(t.atom, BinaryOp::floor_mod, &n);
        inner && t.coefficient == 1 && r.constant == 0 && n % m == 0) {
      return sum(q, floor_mod(floor_div(lift(inner->a), m), n / m));
    }
  }
  add_term(q, Binary::make(BinaryOp::floor_div, to_expr(r), Expr(m)), 1);
  return q;
}

Linear Simplifier::floor_mod(const Linear& a, int64_t m) {
  if (m == 1) return Linear(0);
  // (m*q + r) %% m = r %% m
  Linear q, r;
  split_by(a, m, &q, &r);
  Span span = span_of(r);
  if (span.has_lo() && span.has_hi()) {
    int64_t k = floor_quotient(span.lo, m);
    if (k == floor_quotient(span.hi, m)) {
      r.constant -= k * m;
      return r;
    }
  }
  if (recombine_once(r)) return floor_mod(r, m);
  // (g*high + low) %% (g*n) = g*(high %% n) + low, for 0 <= low < g
  for (int64_t g : common_factors(r, m)) {
    Linear high, low;
    if (!split_off_low(r, g, &high, &low)) continue;
    Span s = span_of(low);
    if (!s.has_lo() || !s.has_hi()) continue;
    int64_t k = floor_quotient(s.lo, g);
    if (k != floor_quotient(s.hi, g)) continue;
    high.constant += k;
    low.constant -= k * g;
    add_scaled(low, floor_mod(high, m / g), g);
    return low;
  }
  // (c*(x %% n) + y) %% m = (c*x + y) %% m, for m | c*n
  for (const Term& t : r.terms) {
    int64_t n = 0;
    const Binary* inner = division_by_constant(t.atom, BinaryOp::floor_mod, &n);
    if (!inner || static_cast<__int128>(t.coefficient) * n % m != 0) continue;
    Linear plain = r;
    add_term(plain, t.atom, -t.coefficient);
    add_scaled(plain, lift(inner->a), t.coefficient);
    return plain.overflow ? plain : floor_mod(plain, m);
  }
  return Linear::of_atom(Binary::make(BinaryOp::floor_mod, to_expr(r), Expr(m)));
}

namespace {

// t / divisor, where every factor of the divisor is a factor of t.
std::optional<Term> divide_term(const Term& t, const Term& divisor) {
  if (t.coefficient % divisor.coefficient != 0) return std::nullopt;
  std::vector<Expr> left = factors_of(t.atom);
  for (const Expr& factor : factors_of(divisor.atom)) {
    auto same = [&](const Expr& f) { return structurally_equal(f, factor); };
    auto it = std::find_if(left.begin(), left.end(), same);
    if (it == left.end()) return std::nullopt;
    left.erase(it);
  }
  return Term{left.empty() ? Expr() : product_of(left), t.coefficient / divisor.coefficient};
}

}  // namespace

// (x %% (c*n)) // c for c >= 0: not as much as n, nor less than 0, for any n >= 0 (what is divided by 0 is 0).
bool Simplifier::is_part_of_remainder(const Linear& r, const Linear& n) {
  if (r.terms.size() != 1 || r.terms[0].coefficient != 1 || r.constant != 0) return false;
  const auto* quotient = r.terms[0].atom.as<Binary>();
  if (!quotient || quotient->op != BinaryOp::floor_div) return false;
  const auto* remainder = quotient->a.as<Binary>();
  if (!remainder || remainder->op != BinaryOp::floor_mod) return false;
  const Linear c = lift(quotient->b);
  if (span_of(c).lo < 0 || span_of(n).lo < 0) return false;
  const Linear rest = difference(lift(remainder->b), product(n, c));
  return !rest.overflow && rest.is_constant() && rest.constant == 0;
}

// For a product n of symbols: (q*n + r) // n = q + r // n, and r // n = 0 where 0 <= r < n.
Linear Simplifier::symbolic_div_mod(const Linear& a, const Linear& b, bool want_quotient) {
  Linear q, r = a;
  if (b.terms.size() == 1 && b.constant == 0) {
    r = Linear(a.constant);
    for (const Term& t : a.terms) {
      auto quotient = divide_term(t, b.terms[0]);
      if (!quotient) {
        add_term(r, t.atom, t.coefficient);
      } else if (quotient->atom.defined()) {
        add_term(q, quotient->atom, quotient->coefficient);
      } else {
        q.constant += quotient->coefficient;
      }
    }
  }
  // -k // n = -1 for a number 0 < k <= n.
  if (r.is_constant() && r.constant < 0 && is_nonnegative(sum(b, r))) {
    q.constant -= 1;
    r = sum(r, b);
  }
  // (x // n) // b = x // (n*b), for b > 0
  if (want_quotient && r.terms.size() == 1 && r.terms[0].coefficient == 1 && r.constant == 0 &&
      span_of(b).lo > 0) {
    if (const auto* inner = r.terms[0].atom.as<Binary>(); inner && inner->op == BinaryOp::floor_div)
      return sum(q, floor_div(lift(inner->a), product(lift(inner->b), b)));
  }
  Linear room = difference(b, r);
  room.constant -= 1;
  bool inside = (r.is_constant() && r.constant == 0) || (is_nonnegative(r) && is_nonnegative(room)) ||
                is_part_of_remainder(r, b);
  if (inside) return want_quotient ? q : r;
  BinaryOp op = want_quotient ? BinaryOp::floor_div : BinaryOp::floor_mod;
  Linear rest = Linear::of_atom(Binary::make(op, to_expr(r), to_expr(b)));
  return want_quotient ? sum(q, rest) : rest;
}

// ---- Sums that contain divisions ----

Linear Simplifier::recombine(Linear l) {
  for (int i = 0; i < kMaxRecombinations && !l.overflow && recombine_once(l); ++i) {
  }
  return l;
}

bool Simplifier::recombine_once(Linear& l) {
  for (const Term& t : l.terms) {
    const auto* n = t.atom.as<Binary>();
    if (!n || n->op == BinaryOp::mul) continue;
    int64_t m = 0, c = t.coefficient;
    // c*(x %% m) + c*m*(x // m) = c*x
    if (n->op == BinaryOp::floor_mod) {
      Linear x = lift(n->a), modulus = lift(n->b);
      Linear quotient = product(floor_div(x, modulus), modulus);
      if (quotient.overflow || !contains_multiple(l, quotient, c)) continue;
      Expr atom = t.atom;
      add_scaled(l, quotient, -c);
      add_term(l, atom, -c);
      add_scaled(l, x, c);
      return true;
    }
    // k*x - k*m*(x // m) = k*(x %% m)
    if (division_by_constant(t.atom, BinaryOp::floor_div, &m) && c % m == 0) {
      Linear x = lift(n->a);
      int64_t k = -(c / m);
      if (!contains_multiple(l, x, k)) continue;
      Expr atom = t.atom;
      add_term(l, atom, -c);
      add_scaled(l, x, -k);
      add_scaled(l, floor_mod(x, m), k);
      return true;
    }
    // c*min(a, b) + c*k*y = c*min(a + k*y, b + k*y), where that cancels y in a or b
    if (n->op == BinaryOp::min || n->op == BinaryOp::max) {
      Linear a = lift(n->a), b = lift(n->b);
      for (const Term& y : l.terms) {
        if (y.coefficient % c != 0 || y.atom.same_as(t.atom)) continue;
        int64_t k = y.coefficient / c;
        if (a.coefficient_of(y.atom) != -k && b.coefficient_of(y.atom) != -k) continue;
        Term moved = y, old = t;
        add_term(a, moved.atom, k);
        add_term(b, moved.atom, k);
        Expr combined = min_max(n->op, to_expr(a), to_expr(b));
        add_term(l, moved.atom, -moved.coefficient);
        add_term(l, old.atom, -old.coefficient);
        add_scaled(l, lift(combined), old.coefficient);
        return true;
      }
    }
  }
  return false;
}

// ---- Minimum and maximum ----

namespace {

// min(x, min(a, b) + y) has the operands x, a + y, b + y.
void flatten(BinaryOp op, const Linear& l, std::vector<Linear>* out) {
  constexpr size_t kMaxOperands = 16;
  for (const Term& t : l.terms) {
    if (t.coefficient != 1 || !is_op(t.atom, op) || out->size() > kMaxOperands) continue;
    Linear rest = l;
    add_term(rest, t.atom, -1);
    flatten(op, sum(rest, lift(t.atom.as<Binary>()->a)), out);
    flatten(op, sum(rest, lift(t.atom.as<Binary>()->b)), out);
    return;
  }
  out->push_back(l);
}

}  // namespace

// Operands that cannot be the result are dropped; the others are put in order, constants last. What all have in
// common moves out: min(x + a, x + b) = x + min(a, b).
Expr Simplifier::min_max(BinaryOp op, const Expr& a, const Expr& b) {
  constexpr size_t kMaxCompared = 6;
  std::vector<Linear> flat, kept;
  flatten(op, lift(a), &flat);
  flatten(op, lift(b), &flat);
  for (const Linear& operand : flat) {
    Linear x = recombine(operand);
    // min: x goes if some y <= x stays; max: if some y >= x stays.
    auto beats = [&](const Linear& y, const Linear& z) {
      if (flat.size() > kMaxCompared) return structurally_equal(to_expr(y), to_expr(z));
      return is_nonnegative(op == BinaryOp::min ? difference(z, y) : difference(y, z));
    };
    bool beaten = false;
    for (const Linear& y : kept)
      beaten = beaten || beats(y, x);
    if (beaten) continue;
    std::erase_if(kept, [&](const Linear& y) { return beats(x, y); });
    kept.push_back(std::move(x));
  }
  if (kept.size() == 1) return to_expr(kept[0]);

  Linear common;
  for (const Term& t : kept[0].terms) {
    bool in_all = true;
    for (const Linear& x : kept)
      in_all = in_all && x.coefficient_of(t.atom) == t.coefficient;
    if (in_all) add_term(common, t.atom, t.coefficient);
  }
  bool same_constant = true;
  for (const Linear& x : kept)
    same_constant = same_constant && x.constant == kept[0].constant;
  if (same_constant) common.constant = kept[0].constant;
  std::vector<Expr> operands;
  for (const Linear& x : kept)
    operands.push_back(to_expr(difference(x, common)));
  std::stable_sort(operands.begin(), operands.end(), [](const Expr& x, const Expr& y) {
    bool x_constant = x.as<IntImm>() != nullptr, y_constant = y.as<IntImm>() != nullptr;
    if (x_constant != y_constant) return y_constant;
    return compare(x, y) < 0;
  });
  Expr out = operands[0];
  for (size_t i = 1; i < operands.size(); ++i)
    out = Binary::make(op, out, operands[i]);
  if (common.terms.empty() && common.constant == 0) return out;
  add_term(common, out, 1);
  return to_expr(common);
}

}  // namespace mcc::tensor
