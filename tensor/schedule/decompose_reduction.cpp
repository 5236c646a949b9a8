// decompose_reduction(block="sum", loop="sum.k")
//
//   for i: for k: sum (init s[i] = 0): s[i] = s[i] + x[i, k]
// becomes
//   for i:
//     sum.init: s[i] = 0
//     for k: sum: s[i] = s[i] + x[i, k]
//
// The init's block has copies, named block.init.<loop>, of those loops from `loop` inwards to which spatial axes are bound.
//
// 1. The block has an init.
// 2. The loop is one of the block's loops, at or outside of all its reduce loops, inside of all its scan loops; of a block without
//    reduce axes at or outside of its scan loops.
// 3. The block does not run anew, as a whole, in several iterations of the loop or those below (after compute_at).
// 4. No condition of the block's predicate mixes reduce loops with others.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/separation.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const DecomposeReduction& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const Block& block = *site->block;
  if (!block.init) {
    return refuse(RefusalCode::not_a_reduction,
                  text("expected block ", step.block, " to have an init, got none"));
  }
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  size_t depth =
      static_cast<size_t>(std::find(site->loops.begin(), site->loops.end(), loop) - site->loops.begin());
  if (depth == site->loops.size()) {
    return refuse(RefusalCode::not_nested,
                  text("expected a loop around block ", step.block, ", got ", step.loop));
  }
  const bool is_of_scan = block.kind_of_steps() == AxisKind::scan;
  for (size_t i = 0; i < depth; ++i) {
    AxisKinds kinds = axes_bound_to(block, site->loops[i]->var);
    if (is_of_scan ? kinds.scan : kinds.reduce) {
      return refuse(RefusalCode::dependence,
                    text("expected all ", is_of_scan ? "scan" : "reduce", " loops of ", step.block,
                         " at or inside of ", step.loop, ", got ", site->loops[i]->var.name(), " outside"));
    }
  }
  for (size_t i = depth; i < site->loops.size(); ++i) {
    if (!is_of_scan && axes_bound_to(block, site->loops[i]->var).scan) {
      return refuse(RefusalCode::dependence, text("expected all scan loops of ", step.block, " outside of ",
                                                  step.loop, ", got ", site->loops[i]->var.name()));
    }
  }
  if (is_recomputed(block) && repeats_instances(f, *site, depth, site->loops.size())) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", step.block, " to run once in one iteration of the loops around ",
                       step.loop, ", got it recomputed below"));
  }
  Names names(f);
  std::string name = names.unique(step.block + ".init");
  if (name != step.block + ".init") {
    return refuse(RefusalCode::bad_argument,
                  text("expected the name ", step.block, ".init to be free, got it taken"));
  }

  // Spatial axes, and scan axes of a reduction as they are.
  auto* init = new Block;
  Stmt owner = handle(init);
  init->name = name;
  set_recomputed(init, is_recomputed(block));
  std::vector<Expr> values;
  VarMap axes;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    const Axis& a = block.axes[i];
    if (a.kind == block.kind_of_steps()) continue;
    Var var(a.var.name());
    axes[a.var.get()] = var;
    init->axes.push_back({var, a.domain, a.kind});
    values.push_back(block.values[i]);
  }
  std::optional<Binding> binding = follow_loops(*site, depth, values, name, names);
  if (!binding) {
    return refuse(RefusalCode::not_affine, text("expected conditions of block ", step.block,
                                                " on reduce loops or on others, got one that mixes them"));
  }
  init->values = binding->values;
  init->predicate = binding->predicate;
  init->body = substitute(block.init, axes);
  Stmt nest = make_nest(binding->loops, make_block(init));

  Block* update = block.copy();
  update->init = nullptr;
  Func result = f;
  result.body = insert_before(f.body, handle(loop), nest);
  result.body = replace_stmt(result.body, &block, make_block(update));
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
