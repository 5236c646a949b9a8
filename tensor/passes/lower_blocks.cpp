#include "tensor/passes/lower_blocks.h"

#include <set>

#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

using VarSet = std::set<const VarNode*>;

VarMap bindings(const Block& block) {
  VarMap map;
  for (size_t i = 0; i < block.axes.size(); ++i)
    map.emplace(block.axes[i].var.get(), block.values[i]);
  return map;
}

// A loop and all that is perfectly nested in it, down to a block.
struct Nest {
  std::vector<const For*> loops;
  const Block* block = nullptr;
};

Nest perfect_nest(const For& outermost) {
  Nest nest{{&outermost}, nullptr};
  while (const auto* inner = nest.loops.back()->body.as<For>())
    nest.loops.push_back(inner);
  nest.block = nest.loops.back()->body.as<Block>();
  return nest;
}

class LowerBlocks : public Mutator {
 protected:
  using Mutator::on;

  Stmt on(const For& n, const Stmt&) override {
    Stmt init = init_before(n);
    loops_.push_back(&n);
    Stmt body = mutate(n.body);
    loops_.pop_back();
    if (!body) return init;
    Annotations annotations = n.annotations;
    if (scan_vars_.contains(n.var.node())) annotations["scan"] = 1;
    Stmt loop = For::make(n.var, n.min, n.extent, n.loop, body, std::move(annotations));
    return init ? Seq::make({init, loop}) : loop;
  }

  Stmt on(const Block& n, const Stmt&) override {
    VarMap map = bindings(n);
    for (size_t i = 0; i < n.axes.size(); ++i) {
      if (n.axes[i].kind == AxisKind::scan) mark_scan(n.values[i]);
    }
    Stmt body = mutate(substitute(n.body, map));
    if (n.init && !hoisted_.contains(&n)) {
      std::vector<Expr> first;
      for (size_t i = 0; i < n.axes.size(); ++i) {
        if (n.axes[i].kind == n.kind_of_steps()) {
          first.push_back(n.values[i] == substitute(n.axes[i].domain.min, map));
        }
      }
      body = Seq::make({guarded(conjunction(first), substitute(n.init, map)), body});
    }
    return guarded(n.predicate, body);
  }

 private:
  static Stmt guarded(const Expr& condition, const Stmt& body) {
    return is_true(condition) || !body ? body : If::make(condition, body);
  }

  void mark_scan(const Expr& value) {
    for (const For* loop : loops_) {
      if (uses_var(value, loop->var)) scan_vars_.insert(loop->var.node());
    }
  }

  // The init of the block in this loop, as loops of its own, when n is its outermost reduce loop and nothing else is
  // inside n; undefined when the init must stay under a condition.
  Stmt init_before(const For& n) {
    Nest nest = perfect_nest(n);
    if (!nest.block || !nest.block->init || hoisted_.contains(nest.block)) return nullptr;
    const Block& block = *nest.block;
    VarSet reduced = reduce_loops(block, nest);
    if (!reduced.contains(n.var.node())) return nullptr;
    for (const For* outer : loops_) {
      if (reduced.contains(outer->var.node())) return nullptr;
    }
    auto is_reduced = [&](const VarNode* v) { return reduced.contains(v); };
    VarMap first;  // reduce loops at their first iteration
    for (const For* loop : nest.loops) {
      if (uses_any_var(loop->min, is_reduced)) return nullptr;
      if (is_reduced(loop->var.node())) {
        first.emplace(loop->var.get(), loop->min);
      } else if (uses_any_var(loop->extent, is_reduced)) {
        return nullptr;
      }
    }
    VarMap map = bindings(block);
    for (size_t i = 0; i < block.axes.size(); ++i) {
      const Axis& axis = block.axes[i];
      if (axis.kind != AxisKind::reduce) {
        if (uses_any_var(block.values[i], is_reduced)) return nullptr;
      } else if (!is_int(simplify(substitute(block.values[i], first) - substitute(axis.domain.min, map)),
                         0)) {
        return nullptr;
      }
    }
    hoisted_.insert(&block);
    Stmt init = guarded(substitute(block.predicate, first), substitute(substitute(block.init, map), first));
    for (size_t i = nest.loops.size(); i-- > 0;) {
      const For& loop = *nest.loops[i];
      if (is_reduced(loop.var.node())) continue;
      Var copy(loop.var.name());
      init = For::make(copy, loop.min, loop.extent, loop.loop, substitute(init, {{loop.var.get(), copy}}),
                       loop.annotations);
    }
    return init;
  }

  // The loops whose variables the block's reduce axes are bound to.
  VarSet reduce_loops(const Block& block, const Nest& nest) const {
    VarSet out;
    std::vector<const For*> all = loops_;
    all.insert(all.end(), nest.loops.begin(), nest.loops.end());
    for (size_t i = 0; i < block.axes.size(); ++i) {
      if (block.axes[i].kind != AxisKind::reduce) continue;
      for (const For* loop : all) {
        if (uses_var(block.values[i], loop->var)) out.insert(loop->var.node());
      }
    }
    return out;
  }

  std::vector<const For*> loops_;
  std::set<const Block*> hoisted_;
  VarSet scan_vars_;
};

}  // namespace

Func lower_blocks(const Func& f) {
  Func out = f;
  out.body = LowerBlocks().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
