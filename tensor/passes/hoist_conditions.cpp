#include "tensor/passes/hoist_conditions.h"

#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

// Conditions that one store is freed of.
constexpr int kMaxTerms = 4;

// Stores in the else side of an If of which only a part moves out.
constexpr int64_t kMaxCopies = 8;

Stmt guarded(const std::vector<Expr>& terms, const Stmt& body) {
  return terms.empty() || !body ? body : If::make(conjunction(terms), body);
}

class HoistConditions : public Mutator {
 protected:
  using Mutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    if (keeps_conditions(n)) return self;
    Stmt same = Mutator::on(n, self);
    if (!same) return same;
    return hoist(*same.as<For>());
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
    // Both sides of "and" are computed: what the inner condition loads may be there only where the outer one holds.
    if (!inner || inner->else_body || has_load(inner->condition)) return same;
    return If::make(outer->condition && inner->condition, inner->then_body);
  }

  Stmt on(const Seq& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    const auto* seq = same.as<Seq>();
    if (!seq) return same;
    std::vector<Stmt> out = merge_conditions(seq->stmts);
    return out.size() == seq->stmts.size() ? same : Seq::make(std::move(out));
  }

 private:
  static Stmt hoist(const For& loop, int terms = kMaxTerms) {
    if (loop.loop == LoopKind::bound) return Stmt(&loop);  // the form of a launch stays
    if (Expr term = choice_outside(loop); term.defined() && terms > 0) {
      Stmt if_true = with_body(loop, replace_term(loop.body, term, true));
      Stmt if_false = with_body(loop, replace_term(loop.body, term, false));
      return If::make(term, hoist(*if_true.as<For>(), terms - 1), hoist(*if_false.as<For>(), terms - 1));
    }
    const auto* guard = loop.body.as<If>();
    if (!guard) return Stmt(&loop);
    std::vector<Expr> inside, outside;
    for (const Expr& term : conjuncts(guard->condition)) {
      (has_load(term) || uses_var(term, loop.var) ? inside : outside).push_back(term);
    }
    if (outside.empty()) return Stmt(&loop);
    if (!guard->else_body) return guarded(outside, with_body(loop, guarded(inside, guard->then_body)));
    if (!inside.empty() && count_leaves(guard->else_body) > kMaxCopies) return Stmt(&loop);
    Stmt then_body =
        inside.empty() ? guard->then_body : If::make(conjunction(inside), guard->then_body, guard->else_body);
    Stmt if_true = with_body(loop, then_body), if_false = with_body(loop, guard->else_body);
    return If::make(conjunction(outside), hoist(*if_true.as<For>()), hoist(*if_false.as<For>()));
  }

  // For a loop that holds a single store, which is no update: a term of a Select's condition in the store's value that
  // does not depend on the loop's variable. Undefined if there is none.
  static Expr choice_outside(const For& loop) {
    if (loop.loop == LoopKind::parallel) return nullptr;
    Stmt body = loop.body;
    if (const auto* guard = body.as<If>(); guard && !guard->else_body) body = guard->then_body;
    const auto* store = body.as<Store>();
    if (!store || loads_from(store->value, store->buffer)) return nullptr;
    Expr term;
    for_each_expr(Evaluate::make(store->value), [&](const Expr& e) {
      const auto* select = e.as<Select>();
      if (!select || term.defined()) return;
      for (const Expr& c : conjuncts(select->condition)) {
        const auto* comparison = c.as<Binary>();
        bool is_index = comparison && is_comparison(comparison->op) && comparison->a.type() == kIndex;
        if (is_index && !has_load(c) && !uses_var(c, loop.var)) {
          term = c;
          return;
        }
      }
    });
    return term;
  }
};

}  // namespace

Func hoist_conditions(const Func& f) {
  Func out = f;
  out.body = HoistConditions().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
