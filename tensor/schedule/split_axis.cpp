// split_axis(block="conv", axis="oc", width=4, name="group")
//
//   for oc in 32: for x in 49: for c in 4: conv(oc, x, c)             that reads in[oc // 4 * 4 + c, x]
// becomes
//   for group in 8: for oc in 4: for x in 49: for c in 4: conv(group, oc, x, c)   that reads in[group * 4 + c, x]
//
// The inverse of fuse_axes: what was the axis is group * width + axis, in all that the block reads and writes. The axis and its loop
// keep their names; the loop block.name stands just outside of it.
//
// 1. The block stands under serial loops, one for each axis, and has no predicate; all axes begin at 0. The axis' loop is its own, and
//    so are those inside of it; loops around may have other blocks, too (the steps of a scan).
// 2. The axis is a spatial or a reduce axis of constant extent, a multiple of the width, which is at least 1.
// 3. The name is new in the block, and block.name in the function.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const SplitAxis& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const Block& block = *site->block;
  const auto at = std::find_if(block.axes.begin(), block.axes.end(), [&](const Axis& a) { return a.var.name() == step.axis; });
  int64_t extent = 0;
  const bool fits = at != block.axes.end() && at->kind != AxisKind::scan && as_int(at->domain.extent, &extent) && step.width >= 1 &&
                    extent % step.width == 0;
  const auto place = static_cast<size_t>(at - block.axes.begin());
  if (Outcome o = require_own_loops(*site, std::min(place, block.axes.size())); !o) return o;
  if (!fits) {
    return refuse(RefusalCode::bad_argument, text("expected a spatial or a reduce axis of block ", block.name,
                                                  ", whose extent is a multiple of a width of at least 1, got \"", step.axis,
                                                  "\" and ", step.width));
  }
  const bool is_axis = std::any_of(block.axes.begin(), block.axes.end(), [&](const Axis& a) { return a.var.name() == step.name; });
  if (is_axis) return refuse(RefusalCode::bad_argument, text("expected a new name, got ", step.name, ", which is an axis"));
  const std::string loop_name = text(block.name, ".", step.name);
  Names names(f);
  if (Outcome o = require_new_name(names, loop_name); !o) return o;

  const Var outer(step.name), inner(step.axis), loop(loop_name);
  Block* made = block.copy();
  made->axes.clear();
  made->values.clear();
  std::vector<LoopSpec> loops;  // from that of the axis inwards
  for (size_t i = 0; i < block.axes.size(); ++i) {
    const Axis& axis = block.axes[i];
    if (i != place) {
      made->axes.push_back(axis);
      made->values.push_back(block.values[i]);
      if (i > place) loops.push_back({site->loops[i]->var, site->loops[i]->extent});
      continue;
    }
    made->axes.push_back({outer, {0, extent / step.width}, axis.kind});
    made->axes.push_back({inner, {0, step.width}, axis.kind});
    made->values.emplace_back(loop);
    made->values.push_back(block.values[i]);
    loops.push_back({loop, extent / step.width});
    loops.push_back({site->loops[i]->var, step.width});
  }
  const VarMap map{{at->var.get(), outer * step.width + inner}};
  made->body = substitute(block.body, map);
  if (block.init) made->init = substitute(block.init, map);
  Stmt with_axes = make_block(made);
  Func result = f;
  result.body = replace_stmt(f.body, site->loops[place],
                             make_nest(loops, simplify_accesses(f, *with_axes.as<Block>())));
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
