// compute_at(block="pad", loop="conv.y")
//
//   for y, x: pad: pad[y, x] = ...
//   for y, x, ky, kx: conv: conv[y, x] += pad[y + ky, x + kx] * ...
// becomes
//   for y:
//     for pad.y in 0..3, pad.x in 0..W+2: pad: pad[y + pad.y, pad.x] = ...
//     for x, ky, kx: conv: ...
//
// The block's old loops are dropped. Each axis gets one new loop, block.axis, over what its consumers read in one iteration of
// the loop, or a box around that; axes that the store's indices do not determine, and reduce axes, run over their domains.
//
// 1. The block writes one buffer, an intermediate that no other block writes; it has no scan axes.
// 2. The loop is not one of the block's own; a reader of the buffer is below it. Others are below it, too, or come after all
//    of its iterations, which then make the whole buffer.
// 3. Nothing that the block reads is written between its old and its new place.
// 4. What it reads in one iteration has been made there.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/separation.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

Outcome check_producer(const Func& f, const std::vector<BlockSite>& sites, const Block& block,
                       Buffer* buffer) {
  *buffer = only_buffer_written(block);
  if (!*buffer || !is_intermediate(f, *buffer)) {
    return refuse(RefusalCode::is_output,
                  text("expected block ", block.name, " to write one intermediate buffer, got ",
                       *buffer ? "output " + buffer->name() : "several buffers"));
  }
  bool scans = std::any_of(block.axes.begin(), block.axes.end(),
                           [](const Axis& a) { return a.kind == AxisKind::scan; });
  if (scans) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", block.name, " without scan axes, got one with"));
  }
  if (reads_buffer(block, *buffer) && !block.init) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", block.name, " to initialise what it updates in ", buffer->name(),
                       ", got an update of earlier contents"));
  }
  for (const BlockSite& site : sites) {
    if (site.block != &block && writes_buffer(*site.block, *buffer)) {
      return refuse(RefusalCode::dependence,
                    text("expected ", buffer->name(), " to be written by ", block.name, " alone, got ",
                         site.block->name, " writing it too"));
    }
  }
  return applied();
}

// The readers of the buffer below the loop, in program order, and the last one that comes after all of its iterations.
struct Consumers {
  std::vector<const BlockSite*> below;
  const BlockSite* after = nullptr;
};

Outcome find_consumers(const std::vector<BlockSite>& sites, const Block& block, const Buffer& buffer,
                       const For* loop, Consumers* consumers) {
  for (const BlockSite& site : sites) {
    if (site.block == &block || !reads_buffer(*site.block, buffer)) continue;
    if (is_under(site, loop)) {
      consumers->below.push_back(&site);
    } else if (!consumers->below.empty() && common_loops(site, *consumers->below[0]) == 0) {
      consumers->after = &site;
    } else {
      return refuse(RefusalCode::not_nested,
                    text("expected all readers of ", buffer.name(), " below loop ", loop->var.name(),
                         " or after all of its iterations, got block ", site.block->name, " elsewhere"));
    }
  }
  if (consumers->below.empty()) {
    return refuse(RefusalCode::not_nested, text("expected a reader of ", buffer.name(), " below loop ",
                                                loop->var.name(), ", got none"));
  }
  return applied();
}

// Whether the loops around the block have it run for every element of its spatial axes' domains, in whatever order.
bool runs_everywhere(const Func& f, const BlockSite& site) {
  const RegionAnalysis regions = regions_at(f, site, 0);
  std::vector<Expr> extents;
  Box all{{}, true};
  for (const Axis& axis : axes_of_kind(*site.block, AxisKind::spatial)) {
    if (!is_int(axis.domain.min, 0)) return false;
    extents.push_back(axis.domain.extent);
    all.dims.push_back({0, regions.analyzer().simplify(axis.domain.extent - 1), true});
  }
  const Box run = regions.box(values_of_kind(*site.block, AxisKind::spatial), extents);
  return run.exact && predicate_is_domain(regions, *site.block) && regions.covers(run, all, extents);
}

}  // namespace

Outcome apply_step(const ComputeAt& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  const Block& block = *site->block;
  if (is_under(*site, loop)) {
    return refuse(RefusalCode::not_nested,
                  text("expected a loop that is not around block ", step.block, ", got ", step.loop));
  }
  Buffer buffer;
  if (Outcome o = check_producer(f, sites, block, &buffer); !o) return o;
  Consumers consumers;
  if (Outcome o = find_consumers(sites, block, buffer, loop, &consumers); !o) return o;
  const BlockSite& first = *consumers.below[0];
  size_t depth =
      static_cast<size_t>(std::find(first.loops.begin(), first.loops.end(), loop) - first.loops.begin()) + 1;
  size_t from = site_index(sites, &block);
  if (Outcome o = check_reads_move(sites, from, site_index(sites, first.block), depth); !o) return o;
  const auto* store = block.body.as<Store>();
  if (store == nullptr) {
    return refuse(RefusalCode::not_injective,
                  text("expected block ", step.block, " to be one store, got another body"));
  }

  std::optional<Box> needed;
  for (const BlockSite* consumer : consumers.below) {
    RegionAnalysis inside = regions_at(f, *consumer, depth);
    std::optional<Box> box = box_read(inside, *consumer->block, buffer);
    needed = needed ? inside.unite(*needed, *box, buffer.shape()) : box;
  }
  BlockSite place = first;
  place.loops.resize(depth);
  RegionAnalysis regions = regions_at(f, place, depth);
  for (size_t d = 0; d < needed->dims.size(); ++d) {
    Expr last = buffer.shape()[d] - 1;
    if (regions.analyzer().can_prove(needed->dims[d].width >= last)) needed->dims[d] = {0, last, false};
  }
  std::vector<std::optional<AxisSolution>> solutions = solve_axes(store->indices, block.axes);
  std::vector<std::optional<Stretch>> ranges = axis_stretches(regions, solutions, *needed);
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (block.axes[i].kind != AxisKind::spatial) ranges[i].reset();
  }

  Func result = f;
  Stmt anchor = first.loops.size() > depth ? handle(first.loops[depth]) : handle(first.block);
  Func rest = f;
  rest.body = replace_stmt(f.body, &block, nullptr);
  Names names(rest);
  Binding binding = run_axes(regions, step.block, block.axes, ranges, names);
  Block* moved = block.copy();
  moved->values = binding.values;
  moved->predicate = binding.predicate;
  Stmt nest = make_nest(binding.loops, Block::make(moved));
  result.body = replace_stmt(insert_before(f.body, anchor, nest), &block, nullptr);
  std::vector<BlockSite> after = block_sites(result.body);
  const BlockSite& there = *find_site(after, step.block);
  if (!reads_are_covered(result, after, there)) {
    return refuse(RefusalCode::region_not_covered,
                  text("expected all that block ", step.block, " reads in one iteration of ", step.loop,
                       " to be made there, which is not certain"));
  }
  if (consumers.after != nullptr && !runs_everywhere(result, there)) {
    return refuse(RefusalCode::region_not_covered,
                  text("expected loop ", step.loop, " to make all of ", buffer.name(), ", which block ",
                       consumers.after->block->name, " reads after it, and that is not certain"));
  }
  bool repeats = repeats_instances(result, there, 0, depth);
  if (repeats != is_recomputed(block)) {
    Block* marked = there.block->copy();
    set_recomputed(marked, repeats);
    result.body = replace_stmt(result.body, there.block, Block::make(marked));
  }
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
