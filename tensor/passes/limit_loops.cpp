#include "tensor/passes/limit_loops.h"

#include <algorithm>

#include "tensor/guarded_update.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/loop_cuts.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Buffers that are written, and whether there is a call for its effect (a barrier, a copy that goes on beside).
class Effects : public Visitor {
 public:
  std::vector<Buffer> written;
  bool has_calls = false;

 protected:
  using Visitor::on;
  void on(const Store& n) override {
    written.push_back(n.buffer);
    Visitor::on(n);
  }
  void on(const Evaluate& n) override {
    has_calls = true;
    Visitor::on(n);
  }
};

// Whether what the expression loads is the same in front of the statement and after it.
bool stays(const Expr& e, const Effects& effects) {
  return std::ranges::none_of(effects.written, [&](const Buffer& buffer) { return loads_from(e, buffer); });
}

// Updates that leave an element as it is where a condition by data does not hold, as guarded ones; the guards outside of vectors and unrolled
// loops that they do not depend on.
class GuardUpdates : public Mutator {
 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    const auto* loop = same.as<For>();
    const auto* guard = loop ? loop->body.as<If>() : nullptr;
    if (!guard || guard->else_body ||
        (loop->loop != LoopKind::vectorized && loop->loop != LoopKind::unrolled))
      return same;
    Effects effects;
    effects.visit(guard->then_body);
    if (uses_var(guard->condition, loop->var) || !stays(guard->condition, effects)) return same;
    return If::make(guard->condition, with_body(*loop, guard->then_body));
  }
  Stmt on(const Store& n, const Stmt& self) override {
    const Select* choice = guarded_update(n);
    if (!choice) return self;
    return If::make(choice->condition, Store::make(n.buffer, n.indices, choice->on_true));
  }
};

class LimitLoops : public ScopedMutator {
 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (keeps_conditions(n)) return self;
    Stmt same = ScopedMutator::on(n, self);
    const auto* loop = same.as<For>();
    // A loop whose copies run ahead (pipeline_copies.h) has as many iterations as they have.
    const bool may_end = loop && loop->loop == LoopKind::serial && !loop->annotations.contains(kStages);
    return may_end ? limit(*loop) : same;
  }

 private:
  // A term, and from which value of the loop's variable on it never holds.
  struct Limit {
    Expr term, end;
    bool is_whole;  // it holds before that, whatever the loops inside do
  };

  Stmt limit(const For& self) const {
    const Stmt guarded = GuardUpdates().mutate(Stmt(&self));
    const For& loop = *guarded.as<For>();
    Effects effects;
    effects.visit(loop.body);
    if (effects.has_calls) return Stmt(&self);
    std::vector<const For*> inner;
    std::vector<Expr> around;
    const std::vector<Limit> limits = limits_of(loop, loop.body, effects, inner, around);
    if (limits.empty()) return Stmt(&self);
    Stmt body = loop.body;
    Expr end;
    for (const Limit& limit : limits) {
      end = !end.defined() || structurally_equal(end, limit.end) ? limit.end : min(end, limit.end);
      if (limit.is_whole) body = replace_term(body, limit.term, true);
    }
    const Expr extent = max(min(analyzer_.simplify(end - loop.min), loop.extent), 0);
    return For::make(loop.var, loop.min, extent, loop.loop, body, loop.annotations);
  }

  // Those that hold for all of a statement in the loop. inner: the loops between; around: the terms of guards between.
  std::vector<Limit> limits_of(const For& loop, const Stmt& s, const Effects& effects,
                               std::vector<const For*>& inner, std::vector<Expr>& around) const {
    std::vector<Limit> limits;
    if (const auto* nested = s.as<For>()) {
      inner.push_back(nested);
      limits = limits_of(loop, nested->body, effects, inner, around);
      inner.pop_back();
    } else if (const auto* guard = s.as<If>(); guard && !guard->else_body) {
      const std::vector<Expr> terms = conjuncts(guard->condition);
      for (const Expr& term : terms) {
        const Expr end =
            has_load(term) && stays(term, effects) ? end_of(loop, {term, inner}, around) : Expr();
        if (end.defined()) limits.push_back({term, end, !depends_on(term, inner)});
      }
      around.insert(around.end(), terms.begin(), terms.end());
      const std::vector<Limit> inside = limits_of(loop, guard->then_body, effects, inner, around);
      limits.insert(limits.end(), inside.begin(), inside.end());
      around.resize(around.size() - terms.size());
    } else if (const auto* parts = s.as<Seq>()) {
      for (size_t i = 0; i < parts->stmts.size(); ++i) {
        std::vector<Limit> of_part = limits_of(loop, parts->stmts[i], effects, inner, around);
        const auto is_in = [](const Limit& limit, const std::vector<Limit>& all) {
          return std::ranges::any_of(
              all, [&](const Limit& other) { return structurally_equal(other.end, limit.end); });
        };
        std::erase_if(limits, [&](const Limit& limit) { return !is_in(limit, of_part); });
        if (i > 0) std::erase_if(of_part, [&](const Limit& limit) { return !is_in(limit, limits); });
        limits.insert(limits.end(), of_part.begin(), of_part.end());
      }
    }
    return limits;
  }

  static bool depends_on(const Expr& e, const std::vector<const For*>& loops) {
    return std::ranges::any_of(loops, [&](const For* loop) { return uses_var(e, loop->var); });
  }

  // From which value of the variable on the guard never holds; undefined where that is not known in front of the loop.
  Expr end_of(const For& loop, const LoopCondition& guard, const std::vector<Expr>& around) const {
    const Expr most = extreme_case(guard, analyzer_, Case::best);
    const auto cut = most.defined() ? cut_of(most, loop.var, analyzer_) : std::nullopt;
    if (!cut || !cut->end.defined() || uses_var(cut->end, loop.var) || depends_on(cut->end, guard.inner))
      return nullptr;
    // What a guard around it keeps in reach would be loaded in front of that guard.
    const bool is_kept_in_reach = std::ranges::any_of(around, [&](const Expr& term) {
      return has_load(term) || uses_any_var(cut->end, [&](const VarNode* var) {
               return uses_any_var(term, [&](const VarNode* other) { return other == var; });
             });
    });
    return is_kept_in_reach ? Expr() : cut->end;
  }
};

}  // namespace

Func limit_loops(const Func& f) {
  Func out = f;
  out.body = LimitLoops().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
