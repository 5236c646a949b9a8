#include "tensor/passes/hoist_conditions.h"

#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

Stmt guarded(const std::vector<Expr>& terms, const Stmt& body) {
  return terms.empty() || !body ? body : If::make(conjunction(terms), body);
}

class HoistConditions : public Mutator {
 protected:
  using Mutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    if (!same) return same;
    const For& loop = *same.as<For>();
    const auto* guard = loop.body.as<If>();
    if (!guard) return same;
    auto stays = [&](const Expr& term) { return has_load(term) || uses_var(term, loop.var); };
    if (guard->else_body) {
      if (stays(guard->condition)) return same;
      return If::make(guard->condition, with_body(loop, guard->then_body), with_body(loop, guard->else_body));
    }
    std::vector<Expr> inside, outside;
    for (const Expr& term : conjuncts(guard->condition))
      (stays(term) ? inside : outside).push_back(term);
    if (outside.empty()) return same;
    return guarded(outside, with_body(loop, guarded(inside, guard->then_body)));
  }

  Stmt on(const Allocate& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    const auto* allocate = same.as<Allocate>();
    const auto* guard = allocate ? allocate->body.as<If>() : nullptr;
    if (!guard || guard->else_body || has_load(guard->condition)) return same;
    return If::make(guard->condition, Allocate::make(allocate->buffer, guard->then_body));
  }

  Stmt on(const If& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    const auto* outer = same.as<If>();
    const auto* inner = outer && !outer->else_body ? outer->then_body.as<If>() : nullptr;
    if (!inner || inner->else_body) return same;
    return If::make(outer->condition && inner->condition, inner->then_body);
  }

  Stmt on(const Seq& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    const auto* seq = same.as<Seq>();
    if (!seq) return same;
    std::vector<Stmt> out;
    for (const Stmt& s : seq->stmts) {
      const auto* next = s.as<If>();
      const auto* last = out.empty() ? nullptr : out.back().as<If>();
      bool merges = next && last && !next->else_body && !last->else_body && !has_load(next->condition) &&
                    structurally_equal(next->condition, last->condition);
      if (merges) {
        out.back() = If::make(last->condition, Seq::make({last->then_body, next->then_body}));
      } else {
        out.push_back(s);
      }
    }
    return out.size() == seq->stmts.size() ? same : Seq::make(std::move(out));
  }
};

}  // namespace

Func hoist_conditions(const Func& f) {
  Func out = f;
  out.body = HoistConditions().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
