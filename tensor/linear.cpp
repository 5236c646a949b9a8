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
  auto place = std::lower_bound(to.terms.begin(), to.terms.end(), atom,
                                [](const Term& t, const Expr& x) { return compare(t.atom, x) < 0; });
  for (; place != to.terms.end() && compare(place->atom, atom) == 0; ++place) {
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

bool is_sum(const Linear& l) { return l.terms.size() > 1 || (l.terms.size() == 1 && l.constant != 0); }

// coefficient * (the factors), every one no sum and no constant, times (the sums).
struct Factors {
  int64_t coefficient = 1;
  std::vector<Expr> plain;
  std::vector<Linear> sums;
  bool overflow = false;

  void take(const Linear& x) {
    overflow |= x.overflow;
    if (is_sum(x)) {
      sums.push_back(x);
    } else if (x.is_constant()) {
      coefficient = checked_mul(coefficient, x.constant, &overflow);
    } else {
      coefficient = checked_mul(coefficient, x.terms[0].coefficient, &overflow);
      for (const Expr& factor : factors_of(x.terms[0].atom)) {
        Linear l = lift(factor);
        if (is_sum(l)) {
          sums.push_back(std::move(l));
        } else {
          plain.push_back(factor);
        }
      }
    }
  }
};

}  // namespace

Linear product(const std::vector<Linear>& factors) {
  Factors f;
  for (const Linear& x : factors)
    f.take(x);
  Linear out;
  if (f.sums.size() == 1 && std::all_of(f.plain.begin(), f.plain.end(), is_index_arithmetic)) {
    const Linear& x = f.sums[0];
    for (const Term& t : x.terms) {
      std::vector<Expr> all = factors_of(t.atom);
      all.insert(all.end(), f.plain.begin(), f.plain.end());
      add_term(out, product_of(std::move(all)), t.coefficient);
    }
    if (f.plain.empty()) {
      out.constant = x.constant;
    } else {
      add_term(out, product_of(f.plain), x.constant);
    }
  } else {
    std::vector<Expr> all = f.plain;
    for (const Linear& x : f.sums)
      all.push_back(to_expr(x));
    out = all.empty() ? Linear(1) : Linear::of_atom(product_of(std::move(all)));
  }
  out = scaled(out, f.coefficient);
  out.overflow |= f.overflow;
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

// Positive terms first, then the negative ones as subtractions, then the constant; a positive constant leads when there
// is no positive term. Calls add(term or null, coefficient) for each piece in this order; null stands for the constant.
template <class F>
void for_each_piece(const Linear& l, F&& add) {
  bool any = false;
  for (const Term& t : l.terms) {
    if (t.coefficient < 0) continue;
    add(&t, t.coefficient);
    any = true;
  }
  bool leads = !any && (l.constant > 0 || l.terms.empty());
  if (leads) add(nullptr, l.constant);
  for (const Term& t : l.terms) {
    if (t.coefficient < 0) add(&t, t.coefficient);
  }
  if (!leads && l.constant != 0) add(nullptr, l.constant);
}

// A piece that is not the first is subtracted if negative, unless its opposite does not exist.
bool is_subtracted(bool first, int64_t coefficient) {
  return !first && coefficient < 0 && coefficient != INT64_MIN;
}

bool is_piece(const Expr& e, const Term* term, int64_t coefficient) {
  if (!term) return is_int(e, coefficient);
  if (coefficient == 1) return structurally_equal(e, term->atom);
  const Binary* mul = as_op(e, BinaryOp::mul);
  return mul && is_int(mul->b, coefficient) && structurally_equal(mul->a, term->atom);
}

}  // namespace

Expr to_expr(const Linear& l) {
  Expr out;
  for_each_piece(l, [&](const Term* term, int64_t coefficient) {
    bool subtracted = is_subtracted(!out.defined(), coefficient);
    int64_t factor = subtracted ? -coefficient : coefficient;
    Expr piece = term ? multiple(term->atom, factor) : Expr(factor);
    BinaryOp op = subtracted ? BinaryOp::sub : BinaryOp::add;
    out = out.defined() ? Binary::make(op, out, piece) : piece;
  });
  return out;
}

Expr to_expr(const Linear& l, const Expr& like) {
  struct Piece {
    const Term* term;
    int64_t coefficient;
  };
  std::vector<Piece> pieces;
  pieces.reserve(l.terms.size() + 1);
  for_each_piece(l, [&](const Term* term, int64_t coefficient) { pieces.push_back({term, coefficient}); });
  // Takes pieces off the right end of the sum.
  Expr rest = like;
  for (size_t i = pieces.size(); i-- > 1;) {
    bool subtracted = is_subtracted(false, pieces[i].coefficient);
    const Binary* n = as_op(rest, subtracted ? BinaryOp::sub : BinaryOp::add);
    if (!n || !is_piece(n->b, pieces[i].term, subtracted ? -pieces[i].coefficient : pieces[i].coefficient)) {
      return to_expr(l);
    }
    rest = n->a;
  }
  return is_piece(rest, pieces[0].term, pieces[0].coefficient) ? like : to_expr(l);
}

namespace {

// to += scale * e, term by term: long sums (of the dimensions of many pieces, say) are not copied at each of their nodes.
void add_lifted(Linear& to, const Expr& e, int64_t scale) {
  if (const auto* imm = e.as<IntImm>()) return add_scaled(to, Linear(imm->value), scale);
  if (const auto* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add || b->op == BinaryOp::sub) {
      add_lifted(to, b->a, scale);
      return add_lifted(to, b->b, b->op == BinaryOp::add ? scale : checked_mul(scale, -1, &to.overflow));
    }
    int64_t factor = 0;
    if (b->op == BinaryOp::mul && as_int(b->b, &factor)) {
      return add_lifted(to, b->a, checked_mul(scale, factor, &to.overflow));
    }
  }
  add_term(to, e, scale);
}

}  // namespace

Linear lift(const Expr& e) {
  Linear out;
  add_lifted(out, e, 1);
  return out;
}

}  // namespace mcc::tensor
