#include "tensor/passes/relax_guards.h"

#include <set>

#include "tensor/passes/scope.h"
#include "tensor/sizes.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// One term of an If around an access.
struct Guard {
  Expr term;
  const If* statement;
};

struct Access {
  std::vector<Expr> indices;
  std::vector<const For*> loops;  // inside the allocation
  std::vector<Guard> guards;
  const Store* store = nullptr;  // null: a load
};

class CollectAccesses : public Visitor {
 public:
  explicit CollectAccesses(const Buffer& buffer) : buffer_(buffer) {}
  std::vector<Access> accesses;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    loops_.push_back(&n);
    Visitor::on(n);
    loops_.pop_back();
  }
  void on(const If& n) override {
    visit(n.condition);
    size_t count = guards_.size();
    for (const Expr& term : conjuncts(n.condition))
      guards_.push_back({term, &n});
    visit(n.then_body);
    guards_.resize(count);
    visit(n.else_body);
  }
  void on(const Load& n) override {
    Visitor::on(n);
    if (n.buffer.same_as(buffer_)) accesses.push_back({n.indices, loops_, guards_, nullptr});
  }
  void on(const Store& n) override {
    Visitor::on(n);
    if (n.buffer.same_as(buffer_)) accesses.push_back({n.indices, loops_, guards_, &n});
  }

 private:
  const Buffer& buffer_;
  std::vector<const For*> loops_;
  std::vector<Guard> guards_;
};

bool stores_only_to(const Buffer& buffer, const Stmt& s) {
  bool only = true;
  for_each_stmt(s, [&](const Stmt& inner) {
    if (const auto* store = inner.as<Store>()) only &= store->buffer.same_as(buffer);
    only &= !inner.as<Evaluate>() && !inner.as<Allocate>();
  });
  return only;
}

// Whether a condition within s loads anything, which may be out of reach without the guard around s.
bool has_loading_condition(const Stmt& s) {
  bool loads = false;
  for_each_stmt(s, [&](const Stmt& inner) {
    const auto* n = inner.as<If>();
    loads |= n && has_load(n->condition);
  });
  return loads;
}

// A dimension that is filled beyond the limit, too: with zeros.
struct FilledDim {
  Buffer buffer;
  size_t dim;
  Expr limit;
};

// What is known of memory whose allocation stands around.
struct MemoryFacts {
  std::vector<FilledDim> filled;
  // Shared memory of which some store stands under a condition on what is outside of the allocation.
  std::set<const BufferNode*> guarded_as_a_whole;
};

// What is done to the guards of one buffer.
struct Plan {
  std::optional<FilledDim> filled;
  std::set<std::pair<const If*, const ExprNode*>> dropped;
  std::unordered_map<const Store*, Expr> selected;  // the value is kept where this holds
};

class ApplyPlan : public Mutator {
 public:
  explicit ApplyPlan(const Plan& plan) : plan_(plan) {}

 protected:
  using Mutator::on;
  Stmt on(const If& n, const Stmt& self) override {
    std::vector<Expr> left;
    bool changed = false;
    for (const Expr& term : conjuncts(n.condition)) {
      bool is_dropped = plan_.dropped.contains({&n, term.get()});
      changed |= is_dropped;
      if (!is_dropped) left.push_back(term);
    }
    if (!changed) return Mutator::on(n, self);
    Stmt body = mutate(n.then_body);
    return left.empty() ? body : If::make(conjunction(left), body);
  }
  Stmt on(const Store& n, const Stmt& self) override {
    auto it = plan_.selected.find(&n);
    if (it == plan_.selected.end()) return self;
    return Store::make(n.buffer, n.indices, select(it->second, n.value, otherwise(n)), n.predicate);
  }

  // An update keeps what is there, which masked instructions do at no cost.
  static Expr otherwise(const Store& n) {
    Expr old;
    for_each_expr(Evaluate::make(n.value), [&](const Expr& e) {
      const auto* load = e.as<Load>();
      if (load && load->buffer.same_as(n.buffer) && is_same_place(*load, n)) old = e;
    });
    return old.defined() ? old : constant_int(n.value.type(), 0);
  }
  static bool is_same_place(const Load& load, const Store& store) {
    for (size_t d = 0; d < store.indices.size(); ++d) {
      if (!structurally_equal(load.indices[d], store.indices[d])) return false;
    }
    return true;
  }

 private:
  const Plan& plan_;
};

// Works on one allocation. facts: what is known around it.
class Relaxer {
 public:
  Relaxer(const Func& f, const Allocate& allocate, const Analyzer& facts, const MemoryFacts& memory)
      : func_(f), buffer_(allocate.buffer), facts_(facts), memory_(memory), collect_(allocate.buffer) {
    collect_.visit(allocate.body);
  }

  std::optional<Plan> plan() const {
    for (const Access& a : collect_.accesses) {
      if (!a.store) continue;
      for (const Guard& g : a.guards) {
        for (size_t dim = 0; dim < a.indices.size(); ++dim) {
          Expr limit = limit_of(g, a, dim);
          if (!limit.defined() || !limits_all(dim, limit)) continue;
          if (auto plan = relax(dim, limit)) return plan;
        }
      }
    }
    return std::nullopt;
  }

 private:
  // u, when the guard says "index dim <= u" with one u for the whole allocation; else undefined.
  Expr limit_of(const Guard& g, const Access& a, size_t dim) const {
    const auto* n = g.term.as<Binary>();
    if (!n || n->a.type() != kIndex || has_load(g.term) || a.indices[dim].type() != kIndex) return nullptr;
    Expr excess;  // <= 0
    if (n->op == BinaryOp::lt) excess = n->a - n->b + 1;
    if (n->op == BinaryOp::le) excess = n->a - n->b;
    if (n->op == BinaryOp::gt) excess = n->b - n->a + 1;
    if (n->op == BinaryOp::ge) excess = n->b - n->a;
    if (!excess.defined()) return nullptr;
    Expr limit = facts_.simplify(a.indices[dim] - excess);
    for (const For* loop : a.loops) {
      if (uses_var(limit, loop->var)) return nullptr;
    }
    return limit;
  }

  Analyzer inside(const Access& a) const {
    Analyzer facts = facts_;
    for (const For* loop : a.loops)
      facts.bind(loop->var, loop->min, loop->extent);
    return facts;
  }

  const Guard* guard_with(const Access& a, size_t dim, const Expr& limit) const {
    for (const Guard& g : a.guards) {
      Expr u = limit_of(g, a, dim);
      if (u.defined() && structurally_equal(u, limit)) return &g;
    }
    return nullptr;
  }

  bool limits_all(size_t dim, const Expr& limit) const {
    for (const Access& a : collect_.accesses) {
      if (guard_with(a, dim, limit)) continue;
      // A load also under a condition that says it of all of a tile; a store must be what fills the elements beyond.
      Analyzer facts = inside(a);
      if (!a.store) {
        for (const Guard& g : a.guards)
          facts.assume(g.term);
      }
      if (!facts.can_prove(a.indices[dim] <= limit)) return false;
    }
    return true;
  }

  // All stores under the limit, or none.
  std::optional<Plan> relax(size_t dim, const Expr& limit) const {
    Plan plan;
    for (const Access& a : collect_.accesses) {
      const Guard* guard = a.store ? guard_with(a, dim, limit) : nullptr;
      if (!guard) continue;
      const If& statement = *guard->statement;
      if (statement.else_body || !stores_only_to(buffer_, statement.then_body) ||
          has_loading_condition(statement.then_body))
        return std::nullopt;
      Analyzer facts = inside(a);
      for (const Guard& other : a.guards) {
        if (other.term.get() != guard->term.get()) facts.assume(other.term);
      }
      if (!is_inside(facts, a.indices, buffer_)) return std::nullopt;
      plan.dropped.emplace(&statement, guard->term.get());
      if (loads_are_safe(*a.store, a, *guard, facts)) continue;
      bool is_shared = buffer_.scope() == Scope::shared && !loads_from(a.store->value, buffer_);
      if (!is_shared && !is_vectorized(a, guard->term)) return std::nullopt;
      plan.selected.emplace(a.store, guard->term);
    }
    // A store whose place follows from the guard (that of the last column) would be made for other places, too.
    for (const Access& a : collect_.accesses) {
      const bool is_relaxed = std::any_of(a.guards.begin(), a.guards.end(), [&](const Guard& g) {
        return plan.dropped.contains({g.statement, g.term.get()});
      });
      if (a.store && is_relaxed && !guard_with(a, dim, limit)) return std::nullopt;
    }
    if (buffer_.scope() == Scope::shared || is_filled(plan, dim))
      plan.filled = FilledDim{buffer_, dim, limit};
    return plan;
  }

  // Whether stores whose guards go reach the end of the dimension: a packed panel with fewer columns than it has room for.
  bool is_filled(const Plan& plan, size_t dim) const {
    return std::any_of(collect_.accesses.begin(), collect_.accesses.end(), [&](const Access& a) {
      if (!a.store || loads_from(a.store->value, buffer_)) return false;
      bool is_relaxed = false;
      for (const Guard& g : a.guards) {
        const bool is_own = uses_any_var(g.term, [&](const VarNode* v) {
          return std::any_of(a.loops.begin(), a.loops.end(),
                             [&](const For* loop) { return loop->var.get() == v; });
        });
        if (!plan.dropped.contains({g.statement, g.term.get()})) {
          if (is_own) return false;
        } else {
          is_relaxed = true;
        }
      }
      Expr last = a.indices[dim];
      for (size_t i = a.loops.size(); i-- > 0;)
        last = substitute(last, {{a.loops[i]->var.get(), a.loops[i]->min + a.loops[i]->extent - 1}});
      return is_relaxed && facts_.can_prove(last >= buffer_.shape()[dim] - 1);
    });
  }

  static bool is_vectorized(const Access& a, const Expr& term) {
    for (const For* loop : a.loops) {
      if (loop->loop == LoopKind::vectorized && uses_var(term, loop->var)) return true;
    }
    return false;
  }

  static bool is_inside(const Analyzer& facts, const std::vector<Expr>& indices, const Buffer& buffer) {
    for (size_t i = 0; i < indices.size(); ++i) {
      if (has_load(indices[i]) || indices[i].type() != kIndex) return false;
      if (!facts.can_prove(indices[i] >= Expr(0)) || !facts.can_prove(indices[i] < buffer.shape()[i]))
        return false;
    }
    return true;
  }

  // Whether the store's loads may be done without the guard: inside their buffers, and of written elements.
  bool loads_are_safe(const Store& store, const Access& a, const Guard& guard, const Analyzer& facts) const {
    bool safe = true, is_selected = false;
    for_each_expr(Evaluate::make(store.value),
                  [&](const Expr& e) { is_selected |= e.as<Select>() != nullptr; });
    for_each_expr(Evaluate::make(store.value), [&](const Expr& e) {
      const auto* load = e.as<Load>();
      if (!load) return;
      // What a select leaves out may be done in some iterations alone.
      const bool is_done = is_done_anyway(*load, a, guard, facts);
      const bool is_written =
          is_done || is_param(load->buffer) || load->buffer.same_as(buffer_) || is_there(*load, guard);
      safe &= (is_done && !is_selected) || (is_written && is_inside(facts, load->indices, load->buffer));
    });
    return safe;
  }

  // Whether an element of memory that other statements fill is there without the guard: because that says what dimension it is filled
  // to, or, of shared memory, nothing about the element.
  bool is_there(const Load& load, const Guard& guard) const {
    if (memory_.guarded_as_a_whole.contains(load.buffer.get())) return false;
    bool is_related = load.buffer.scope() != Scope::shared || uses_any_var(guard.term, [&](const VarNode* v) {
                        return std::any_of(load.indices.begin(), load.indices.end(), [&](const Expr& index) {
                          return uses_any_var(index, [&](const VarNode* w) { return v == w; });
                        });
                      });
    if (!is_related) return true;
    return std::any_of(memory_.filled.begin(), memory_.filled.end(), [&](const FilledDim& f) {
      if (!f.buffer.same_as(load.buffer)) return false;
      Expr limit = limit_of(guard, Access{load.indices, {}, {}, nullptr}, f.dim);
      return limit.defined() && structurally_equal(limit, f.limit);
    });
  }

  bool is_param(const Buffer& buffer) const {
    for (const Buffer& b : func_.params) {
      if (b.same_as(buffer)) return true;
    }
    return false;
  }

  // Whether the load is the same in the first iteration of the loops that its index does not depend on, and the guard
  // holds there.
  static bool is_done_anyway(const Load& load, const Access& a, const Guard& guard, const Analyzer& facts) {
    Expr term = guard.term;
    for (size_t i = a.loops.size(); i-- > 0;) {
      bool is_used = false;
      for (const Expr& index : load.indices)
        is_used |= uses_var(index, a.loops[i]->var);
      if (!is_used) term = substitute(term, {{a.loops[i]->var.get(), a.loops[i]->min}});
    }
    return facts.can_prove(term);
  }

  const Func& func_;
  const Buffer& buffer_;
  const Analyzer& facts_;
  const MemoryFacts& memory_;
  CollectAccesses collect_;
};

class RelaxGuards : public ScopedMutator {
 public:
  explicit RelaxGuards(const Func& f) : func_(f) { analyzer_ = size_facts(f); }

 protected:
  using ScopedMutator::on;
  Stmt on(const Allocate& n, const Stmt& self) override {
    Stmt current = self;
    while (auto plan = Relaxer(func_, *current.as<Allocate>(), analyzer_, memory_).plan()) {
      if (plan->filled) memory_.filled.push_back(*plan->filled);
      current = Allocate::make(n.buffer, ApplyPlan(*plan).mutate(current.as<Allocate>()->body));
    }
    if (n.buffer.scope() == Scope::shared && is_guarded_as_a_whole(*current.as<Allocate>())) {
      memory_.guarded_as_a_whole.insert(n.buffer.get());
    }
    return Mutator::on(*current.as<Allocate>(), current);
  }

 private:
  static bool is_guarded_as_a_whole(const Allocate& allocate) {
    CollectAccesses collect(allocate.buffer);
    collect.visit(allocate.body);
    for (const Access& a : collect.accesses) {
      for (const Guard& g : a.guards) {
        bool is_inside = std::any_of(a.loops.begin(), a.loops.end(),
                                     [&](const For* l) { return uses_var(g.term, l->var); });
        if (a.store && !is_inside) return true;
      }
    }
    return false;
  }

  const Func& func_;
  MemoryFacts memory_;
};

}  // namespace

Func relax_guards(const Func& f) {
  Func out = f;
  out.body = RelaxGuards(f).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
