// Sums along an axis between whose elements other results lie (means of pictures with their channels last), where there are fewer
// of them than threads:
//
//   bound c.b @{block.x}
//     bound k.t @{thread.y}: bound c @{thread.x}: for k.n: unrolled k.u: a part of the sum of result c, into shared memory
//     bound c @{thread.x}: the sum of its parts, and what takes it
#include <algorithm>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kSector = 8;  // neighbours of 32 bits that the memory gives at once
constexpr int64_t kTurns = 4;   // of a thread whose elements are under way together

bool is_column_sum(const BlockInfo& info, const Gpu& gpu) {
  if (!info.is_reduction || info.is_contraction || info.is_nested || info.loads.size() != 1) return false;
  size_t last = info.axes.size();
  while (last > 0 && info.axes[last - 1].is_reduce)
    --last;
  const bool reduces_last =
      std::all_of(info.axes.begin(), info.axes.begin() + static_cast<std::ptrdiff_t>(last),
                  [](const auto& axis) { return !axis.is_reduce; });
  if (last == 0 || !reduces_last || info.loads[0].strides[last - 1] != 1 || info.store.strides[last - 1] != 1)
    return false;
  return info.axes[last - 1].extent >= kSector && info.reduce >= gpu.warp &&
         info.spatial < int64_t{gpu.multiprocessors} * gpu.threads_per_multiprocessor / 4;
}

}  // namespace

bool schedule_grid_columns(Draft& draft, const std::string& block) {
  const Gpu& gpu = draft.target.gpu;
  Schedule& s = draft.schedule;
  std::optional<BlockInfo> info = analyze(s, block);
  if (!info || !draft.refusal || !is_column_sum(*info, gpu)) return false;
  return try_all(draft, [&] {
    sum_in_register(draft, block);
    const std::string take = epilogue_of(s, block), part = block + ".part", sum = block + ".k";
    if (take.empty()) return false;
    info = analyze(s, block);
    const std::optional<BlockInfo> taken = analyze(s, take);
    // Neighbours in sectors, so that all multiprocessors have some.
    int64_t lanes = gpu.warp;
    while (lanes > kSector && info->spatial / lanes < gpu.multiprocessors)
      lanes /= 2;
    lanes = draft.decide.choose(block + ".lanes", {kSector, 2 * kSector, 4 * kSector}, lanes);
    std::vector<int64_t> options{2};
    while (options.back() * 4 <= info->reduce && options.back() * 2 * lanes <= gpu.threads_per_block / 2)
      options.push_back(options.back() * 2);
    const int64_t threads =
        options.size() == 1 ? 2 : draft.decide.choose(block + ".threads", options, options.back());

    std::vector<std::string> reduced, outer;
    for (const Axis& axis : s.find_block(block)->axes) {
      if (axis.kind == AxisKind::reduce) reduced.push_back(axis.var.name());
    }
    must_step(draft, FuseAxes{block, reduced, "k"});
    must_step(draft, Split{sum, {0, kTurns, threads}, {sum + ".n", sum + ".u", sum + ".t"}});
    must_step(draft, Rfactor{block, sum + ".t", part, 0});
    for (const auto& axis : taken->axes)
      outer.push_back(axis.loop);
    const std::string lane = take + ".lane", place = outer.size() > 1 ? take + ".b" : outer.back() + ".b";
    must_step(draft, Split{outer.back(), {0, lanes}, {outer.back() + ".b", lane}});
    outer.back() += ".b";
    if (outer.size() > 1) must_step(draft, Fuse{outer, place});
    must_step(draft, Bind{place, "block.x"});
    must_step(draft, Bind{lane, "thread.x"});
    must_step(draft, ComputeAt{block, lane});
    must_step(draft, ComputeAt{part, place});
    if (!draft.refusal) return false;
    std::vector<std::string> loops = s.loop_names_of(part), order = {"", ""};
    loops.erase(loops.begin(), std::find(loops.begin(), loops.end(), place) + 1);
    for (const std::string& loop : loops) {
      const AxisKinds kinds = axes_bound_to(*s.find_block(part), s.find_loop(loop)->var);
      if (kinds.reduce) {
        order.push_back(loop);
      } else if (loop.ends_with(".t")) {
        order[0] = loop;
      } else if (!is_int(s.find_loop(loop)->extent, 1)) {
        if (!order[1].empty()) return false;
        order[1] = loop;
      }
    }
    if (order[0].empty() || order[1].empty()) return false;
    must_step(draft, Reorder{order});
    must_step(draft, Bind{order[0], "thread.y"});
    must_step(draft, Bind{order[1], "thread.x"});
    must_step(draft, Unroll{order.back()});
    must_step(draft, SetScope{part, "shared"});
    return static_cast<bool>(draft.refusal);
  });
}

}  // namespace mcc::tuner
