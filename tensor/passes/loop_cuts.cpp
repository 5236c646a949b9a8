#include "tensor/passes/loop_cuts.h"

#include "tensor/passes/scope.h"

namespace mcc::tensor {

Expr as_at_most_zero(const Expr& condition) {
  const auto* n = condition.as<Binary>();
  if (!n || n->a.type() != kIndex) return nullptr;
  switch (n->op) {
    case BinaryOp::lt:
      return n->a - n->b + 1;
    case BinaryOp::le:
      return n->a - n->b;
    case BinaryOp::gt:
      return n->b - n->a + 1;
    case BinaryOp::ge:
      return n->b - n->a;
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::min:
    case BinaryOp::max:
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

Expr extreme_case(const LoopCondition& c, const Analyzer& facts, Case which) {
  Expr e = as_at_most_zero(c.term);
  if (!e.defined()) return nullptr;
  Analyzer inside = facts;
  std::vector<Var> vars;
  for (const For* loop : c.inner) {
    inside.bind(loop->var, loop->min, loop->extent);
    vars.push_back(loop->var);
  }
  auto form = linear_form(inside.simplify(e), vars);
  if (!form) return nullptr;
  Expr m = form->rest;
  for (size_t i = 0; i < vars.size(); ++i) {
    int64_t factor = form->coefficients[i];
    if (factor == 0) continue;
    bool at_high = (factor > 0) == (which == Case::worst);
    Interval range = inside.bounds(vars[i]);
    auto limit = at_high ? range.high : range.low;
    const For& loop = *c.inner[i];
    Expr value = limit ? Expr(*limit) : (at_high ? loop.min + loop.extent - 1 : loop.min);
    m = m + value * Expr(factor);
  }
  for (const Var& v : vars) {
    if (uses_var(m, v)) return nullptr;
  }
  return facts.simplify(m);
}

std::optional<Cut> cut_of(const Expr& m, const Var& var, const Analyzer& facts) {
  auto form = linear_form(m, {var});
  if (!form || form->coefficients[0] == 0 || uses_var(form->rest, var)) return std::nullopt;
  int64_t factor = form->coefficients[0];
  Cut cut;
  if (factor > 0) {
    cut.end = facts.simplify(floor_div(-form->rest, Expr(factor)) + 1);
  } else {
    cut.begin = facts.simplify(ceil_div(form->rest, Expr(-factor)));
  }
  return cut;
}

}  // namespace mcc::tensor
