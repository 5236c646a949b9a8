// fuse_axes(block="conv", axes=["n", "y", "x"], name="m")
//
//   for n in 2: for c in 64: for y in 7: for x in 7: conv(n, c, y, x)
// becomes
//   for m in 98: for c in 64: conv(m, c)          with m // 49 for n, m // 7 %% 7 for y, m %% 7 for x
//
// Unlike fuse, which changes the loops around a block, this changes the block: what it reads and writes along the axes is one
// stretch of the new axis. The loop block.name stands where the loop of the first of the axes was. No axes at all become a
// spatial one of extent 1, whose loop is the outermost.
//
// 1. The block stands under serial loops, one for each axis, and has no predicate; all axes begin at 0. The loops of the fused axes
//    are its own, and so are those inside of them; loops around may have other blocks, too (the steps of a scan).
// 2. The axes are of one sort, spatial or reduce; no extent depends on a loop. A single one gets a new name.
// 3. The name is new in the block, and block.name in the function (the names of the fused axes and their loops are free).
#include <algorithm>

#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const FuseAxes& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const Block& block = *site->block;
  bool is_plain = site->loops.size() == block.axes.size() && is_true(block.predicate);
  if (!site->loops.empty()) is_plain &= site->loops.back()->body.get() == &block;
  size_t own = 0;  // the outermost loop that has nothing else inside
  while (own < site->loops.size() && chain_from(site->loops[own]).size() != site->loops.size() - own)
    ++own;
  for (size_t i = 0; is_plain && i < block.axes.size(); ++i) {
    is_plain = block.values[i].same_as(site->loops[i]->var) && is_int(block.axes[i].domain.min, 0) &&
               site->loops[i]->loop == LoopKind::serial;
  }
  if (!is_plain) {
    return refuse(
        RefusalCode::not_nested,
        text("expected block ", block.name, " to stand under serial loops of its own, one for each axis"));
  }
  std::vector<size_t> fused;
  for (const std::string& name : step.axes) {
    auto it = std::find_if(block.axes.begin(), block.axes.end(),
                           [&](const Axis& a) { return a.var.name() == name; });
    auto index = static_cast<size_t>(it - block.axes.begin());
    bool is_one_sort = it != block.axes.end() && it->kind != AxisKind::scan &&
                       (fused.empty() || it->kind == block.axes[fused[0]].kind) &&
                       std::find(fused.begin(), fused.end(), index) == fused.end();
    if (!is_one_sort || (!fused.empty() && uses_any(it->domain.extent, site->loops))) {
      return refuse(
          RefusalCode::bad_argument,
          text("expected different axes of block ", block.name,
               ", all spatial or all reduce axes, of extents that depend on no loop, got \"", name, "\""));
    }
    fused.push_back(index);
  }
  if (own != 0 && (fused.empty() || *std::min_element(fused.begin(), fused.end()) < own)) {
    return refuse(RefusalCode::not_nested, text("expected loops of block ", block.name, " alone, got ",
                                                site->loops[0]->var.name(), ", which has other blocks, too"));
  }
  auto is_fused = [&](size_t i) { return std::find(fused.begin(), fused.end(), i) != fused.end(); };
  Names names(f);
  const std::string loop_name = text(block.name, ".", step.name);
  bool is_free = !names.taken(loop_name);
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (is_fused(i)) {
      is_free |= site->loops[i]->var.name() == loop_name;
    } else if (block.axes[i].var.name() == step.name) {
      return refuse(RefusalCode::bad_argument,
                    text("expected a new name, got ", step.name, ", which is an axis"));
    }
  }
  if (!is_free || !is_name(step.name)) {
    return refuse(RefusalCode::bad_argument, text("expected a new name, got \"", step.name, "\""));
  }

  Var axis(step.name), loop(loop_name);
  Expr extent = 1;
  VarMap map;
  for (size_t n = fused.size(); n-- > 0;) {
    const Axis& old = block.axes[fused[n]];
    Expr part = floor_div(axis, extent);
    if (n != 0) part = floor_mod(part, old.domain.extent);
    map.emplace(old.var.get(), part);
    extent = extent * old.domain.extent;
  }
  extent = simplify(extent);
  Block* made = block.copy();
  made->axes.clear();
  made->values.clear();
  std::vector<LoopSpec> loops;
  auto add = [&](AxisKind kind) {
    made->axes.push_back({axis, {0, extent}, kind});
    made->values.push_back(loop);
    loops.push_back({loop, extent});
  };
  if (fused.empty()) add(AxisKind::spatial);
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (!fused.empty() && i == *std::min_element(fused.begin(), fused.end())) add(block.axes[i].kind);
    if (is_fused(i)) continue;
    made->axes.push_back(block.axes[i]);
    made->values.push_back(block.values[i]);
    if (i >= own) loops.push_back({site->loops[i]->var, site->loops[i]->extent});
  }
  made->body = substitute(block.body, map);
  if (block.init) made->init = substitute(block.init, map);
  Stmt with_axis = make_block(made);
  Func result = f;
  const StmtNode* before = site->loops.empty() ? static_cast<const StmtNode*>(&block) : site->loops[own];
  result.body = replace_stmt(f.body, before, make_nest(loops, simplify_accesses(f, *with_axis.as<Block>())));
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
