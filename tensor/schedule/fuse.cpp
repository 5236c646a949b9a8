// fuse(loops=["y", "x"])
//
//   for y in 0..4: for x in 0..56: block(a = y, b = x)
// becomes
//   for y_x in 0..224: block(a = y_x // 56, b = y_x %% 56)
//
// 1. There are at least two loops, each directly inside the one before, all serial.
// 2. No loop's bounds depend on another one of them.
// 3. All are bound to axes of one sort: spatial, reduce or scan (spatial and others do not mix).
// 4. A loop that repeats a block is not fused with a reduce loop of that.
// 5. The name, when given, is well-formed and new (the loops' own names are free).
#include <algorithm>

#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

Outcome find_chain(const Fuse& step, const Schedule& schedule, std::vector<const For*>* chain) {
  if (step.loops.size() < 2) {
    return refuse(RefusalCode::bad_argument, text("expected at least two loops, got ", step.loops.size()));
  }
  for (const std::string& name : step.loops) {
    const For* loop = schedule.find_loop(name);
    if (loop == nullptr) return refuse_loop(name);
    if (Outcome o = require_serial(loop); !o) return o;
    if (!chain->empty() && chain->back()->body.get() != loop) {
      return refuse(RefusalCode::not_perfect,
                    text("expected loop ", name, " directly inside ", chain->back()->var.name(),
                         ", got something between them"));
    }
    for (const For* outer : *chain) {
      if (uses_var(loop->min, outer->var) || uses_var(loop->extent, outer->var)) {
        return refuse(RefusalCode::not_affine, text("expected bounds of loop ", name, " independent of ",
                                                    outer->var.name(), ", got ", to_text(loop->extent)));
      }
    }
    chain->push_back(loop);
  }
  return applied();
}

Outcome check_kinds(const std::vector<const For*>& chain) {
  AxisKinds all;
  for (const For* loop : chain) {
    AxisKinds kinds = axes_bound_below(chain.back()->body, loop->var);
    all.spatial |= kinds.spatial;
    all.reduce |= kinds.reduce;
    all.scan |= kinds.scan;
  }
  if (all.spatial + all.reduce + all.scan > 1) {
    return refuse(RefusalCode::dependence,
                  "expected loops of one kind of axis, got a mix of spatial, reduce or scan");
  }
  for (const BlockSite& site : block_sites(chain.back()->body)) {
    bool reduces = std::any_of(chain.begin(), chain.end(),
                               [&](const For* l) { return axes_bound_to(*site.block, l->var).reduce; });
    for (const For* loop : chain) {
      bool binds = axes_bound_to(*site.block, loop->var).any() || uses_var(site.block->predicate, loop->var);
      if (!reduces || binds || is_int(loop->extent, 1)) continue;
      return refuse(RefusalCode::dependence,
                    text("expected loops that all bind reduce axes of block ", site.block->name, ", got ",
                         loop->var.name(), ", which repeats it"));
    }
  }
  return applied();
}

}  // namespace

Outcome apply_step(const Fuse& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<const For*> chain;
  if (Outcome o = find_chain(step, schedule, &chain); !o) return o;
  if (Outcome o = check_kinds(chain); !o) return o;
  Names names(f);
  std::string name = step.name;
  bool reuses = std::find(step.loops.begin(), step.loops.end(), name) != step.loops.end();
  if (name.empty()) {
    name = names.unique(join(step.loops, "_"));
  } else if (!reuses) {
    if (Outcome o = require_new_name(names, name); !o) return o;
  }

  Var fused(name);
  Expr extent = 1;
  VarMap map;
  for (size_t i = chain.size(); i-- > 0;) {
    Expr index = floor_div(fused, extent);
    if (i != 0) index = floor_mod(index, chain[i]->extent);
    map[chain[i]->var.get()] = chain[i]->min + index;
    extent = extent * chain[i]->extent;
  }
  Analyzer analyzer = analyzer_at(f, loops_around(f.body, chain[0]));
  extent = analyzer.simplify(extent);
  analyzer.bind(fused, 0, extent);
  Stmt body = rebind(chain.back()->body, map, true_value(), analyzer);
  Annotations annotations;
  for (const For* loop : chain)
    annotations.insert(loop->annotations.begin(), loop->annotations.end());
  Func result = f;
  result.body = replace_stmt(f.body, chain[0],
                             For::make(fused, 0, extent, LoopKind::serial, body, std::move(annotations)));
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
