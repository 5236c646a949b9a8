// Sums along an axis between whose elements other results lie (means of pictures with their channels last, a vector times a matrix),
// where there are fewer of them than threads; and reductions of which neighbours go through the same elements (ranks among these):
//
//   bound @{block.y}: bound c.b @{block.x}
//     bound k.t @{thread.y}: bound c @{thread.x}: for k.n: unrolled k.u: a part of the sum of result c, into shared memory
//     bound c @{thread.x}: the sum of its parts, and what takes it
//
// Long sums of so few results that most multiprocessors would have none are divided between blocks first, and added up by a launch more.
#include <algorithm>
#include <bit>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr const char* kRule = "sums over columns";
constexpr int64_t kSector = 8;  // neighbours of 32 bits that the memory gives at once
constexpr int64_t kTurns = 4;   // of a thread whose elements are under way together
constexpr int64_t kLong = 128;  // a sum whose result has fewer neighbours than a sector, for several threads to have it

// Loads that move along a reduced axis: what is summed. The others there is one of for each result (its mean).
std::vector<const Access*> summed_by(const BlockInfo& info) {
  std::vector<const Access*> summed;
  for (const Access& load : info.loads) {
    for (size_t n = 0; n < info.axes.size(); ++n) {
      if (!info.axes[n].is_reduce || load.strides[n] == 0) continue;
      summed.push_back(&load);
      break;
    }
  }
  return summed;
}

// A vector times a matrix whose rows lie along the results is one, too, and what goes through the same elements for each of its neighbours.
bool is_column_sum(const Schedule& s, const BlockInfo& info, const Gpu& gpu, int64_t fewest) {
  if (!info.is_reduction || info.is_nested || (info.is_contraction && is_grid_product(s, info.name))) return false;
  size_t last = info.axes.size();
  while (last > 0 && info.axes[last - 1].is_reduce)
    --last;
  const bool reduces_last =
      std::all_of(info.axes.begin(), info.axes.begin() + static_cast<std::ptrdiff_t>(last),
                  [](const auto& axis) { return !axis.is_reduce; });
  if (!reduces_last) return false;
  const std::vector<const Access*> summed = summed_by(info);
  const bool is_shared_by_all = share_rows(info, gpu);
  auto are_neighbours = [&](size_t axis) {
    auto is_along = [&](const Access* l) { return l->strides[axis] == 1; };
    auto is_shared = [&](const Access* l) { return l->strides[axis] == 0; };  // the vector
    return info.store.strides[axis] == 1 && (is_shared_by_all || std::any_of(summed.begin(), summed.end(), is_along)) &&
           std::all_of(summed.begin(), summed.end(),
                       [&](const Access* l) { return is_along(l) || ((is_shared_by_all || info.is_contraction) && is_shared(l)); });
  };
  size_t row = 0;  // of the results that are neighbours
  while (row < last && !are_neighbours(row))
    ++row;
  return !summed.empty() && row < last && info.reduce >= fewest &&
         info.spatial < int64_t{gpu.multiprocessors} * gpu.threads_per_multiprocessor / 4;
}

// Results that are neighbours.
int64_t neighbours_of(const BlockInfo& info) {
  int64_t neighbours = 1;
  for (size_t n = 0; n < info.axes.size(); ++n) {
    if (info.store.strides[n] == 1) neighbours = std::max(neighbours, info.axes[n].extent);
  }
  return neighbours;
}

// Neighbours that a block can have, in sectors; all of them where they are fewer.
std::vector<int64_t> lanes_of(const BlockInfo& info) {
  const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(neighbours_of(info))));
  return all < kSector ? std::vector{all} : std::vector{kSector, 2 * kSector, 4 * kSector};
}

// So many that all multiprocessors have some, and no more than there are.
int64_t choose_lanes(const BlockInfo& info, const Gpu& gpu) {
  const std::vector<int64_t> options = lanes_of(info);
  int64_t lanes = options.back();
  while (lanes > options.front() && (info.spatial / lanes < gpu.multiprocessors || lanes / 2 >= neighbours_of(info)))
    lanes /= 2;
  return lanes;
}

// Threads that one sum can have.
std::vector<int64_t> threads_of(const BlockInfo& info, int64_t lanes, const Gpu& gpu) {
  std::vector<int64_t> options{2};
  while (options.back() * 4 <= info.reduce && options.back() * 2 * lanes <= gpu.threads_per_block / 2)
    options.push_back(options.back() * 2);
  return options;
}

// The block that sums a share of the outermost reduced axis for each of several blocks, where that pays for the launch that adds
// up; else the block itself.
std::string divide_columns(Draft& draft, const BlockInfo& info) {
  constexpr double kTurnUs = 0.2;  // until what a thread has asked for has come
  const Gpu& gpu = draft.target.gpu;
  const int64_t lanes = choose_lanes(info, gpu), blocks = ceil_div64(info.spatial, lanes);
  const double us = kTurnUs * static_cast<double>(info.reduce) / static_cast<double>(kTurns * threads_of(info, lanes, gpu).back());
  const AxisInfo& axis = *std::find_if(info.axes.begin(), info.axes.end(), [](const AxisInfo& a) { return a.is_reduce; });
  std::vector<int64_t> options{1};
  int64_t shares = 1;
  for (int64_t n = 2; n <= axis.extent && blocks * n <= 2 * gpu.multiprocessors; ++n) {
    if (axis.extent % n != 0 || info.reduce / n < gpu.warp) continue;
    options.push_back(n);
    if (us / static_cast<double>(n) + gpu.launch_us + kTurnUs < us) shares = n;
  }
  if (options.size() > 1) shares = draft.decide.choose(info.name + ".shares", options, shares);
  const std::string share = info.name + ".share", loop = axis.loop;
  const bool is_divided = shares > 1 && try_all(draft, {"sums in parts", info.name, "the sum as a whole"}, [&] {
                            must_step(draft, Split{loop, {shares, 0}, {loop + ".share", loop}});
                            must_step(draft, Rfactor{info.name, loop + ".share", share, 0});
                            return static_cast<bool>(draft.refusal);
                          });
  return is_divided ? share : info.name;
}

bool sum_columns(Draft& draft, const std::string& block, int64_t fewest) {
  const Gpu& gpu = draft.target.gpu;
  Schedule& s = draft.schedule;
  std::optional<BlockInfo> info = analyze(s, block);
  if (!info || !is_column_sum(s, *info, gpu, fewest)) return false;
  return try_all(draft, {kRule, block}, [&] {
    if (epilogue_of(s, block).empty()) must_step(draft, CacheWrite{block, info->store.buffer.name(), "global", block + ".out"});
    // A product's sum over its parts has a block of the first name.
    const std::string take = epilogue_of(s, block), sum = block + ".k",
                      part = block + (s.find_block(block + ".part") ? ".parts" : ".part");
    if (take.empty()) return false;
    info = analyze(s, block);
    const std::optional<BlockInfo> taken = analyze(s, take);
    int64_t lanes = choose_lanes(*info, gpu);
    const std::vector<int64_t> lanes_options = lanes_of(*info);
    if (lanes_options.size() > 1) lanes = draft.decide.choose(block + ".lanes", lanes_options, lanes);
    const std::vector<int64_t> options = threads_of(*info, lanes, gpu);
    const int64_t threads =
        options.size() == 1 ? 2 : draft.decide.choose(block + ".threads", options, options.back());

    std::vector<std::string> reduced, outer;
    for (const Axis& axis : s.find_block(block)->axes) {
      if (axis.kind == AxisKind::reduce) reduced.push_back(axis.var.name());
    }
    must_step(draft, FuseAxes{block, reduced, "k"});
    must_step(draft, Split{sum, {0, kTurns, threads}, {sum + ".n", sum + ".u", sum + ".t"}});
    must_step(draft, Rfactor{block, sum + ".t", part, 0});
    for (size_t n = 0; n < taken->axes.size(); ++n) {
      // Neighbours last.
      outer.insert(taken->store.strides[n] == 1 ? outer.end() : outer.begin(), taken->axes[n].loop);
    }
    if (outer.size() > 1) must_step(draft, Reorder{outer});
    const std::string row = outer.back(), lane = take + ".lane", place = row + ".b", others = take + ".b";
    outer.pop_back();
    must_step(draft, Split{row, {0, lanes}, {place, lane}});
    if (outer.size() > 1) must_step(draft, Fuse{outer, others});
    if (!outer.empty()) must_step(draft, Bind{outer.size() > 1 ? others : outer[0], "block.y"});
    must_step(draft, Bind{place, "block.x"});
    must_step(draft, Bind{lane, "thread.x"});
    must_step(draft, ComputeAt{block, lane});
    must_step(draft, ComputeAt{part, place});
    if (!draft.refusal) return false;
    std::vector<std::string> loops = s.loop_names_of(part), order = {"", ""};
    loops.erase(loops.begin(), std::find(loops.begin(), loops.end(), place) + 1);
    for (const std::string& loop : loops) {
      const bool is_reduced = axes_bound_to(*s.find_block(part), s.find_loop(loop)->var).reduce;
      if (is_reduced) {
        order.push_back(loop);
      } else if (loop.ends_with(".t")) {
        order[0] = loop;
      } else if (is_int(s.find_loop(loop)->extent, 1)) {
        order.insert(order.begin() + 2, loop);
      } else {
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

}  // namespace

bool share_rows(const BlockInfo& info, const Gpu& gpu) {
  constexpr int64_t kFewest = 8;  // results for each multiprocessor
  const std::vector<const Access*> summed = summed_by(info);
  if (!info.is_reduction || info.is_contraction || summed.empty() || info.spatial < kFewest * gpu.multiprocessors) return false;
  for (size_t n = 0; n < info.axes.size(); ++n) {
    if (info.axes[n].is_reduce || info.axes[n].extent < gpu.warp || info.store.strides[n] != 1) continue;
    return std::all_of(summed.begin(), summed.end(), [&](const Access* l) { return l->strides[n] == 0; });
  }
  return false;
}

bool schedule_grid_columns(Draft& draft, const std::string& block) {
  constexpr int64_t kFewShares = 8;
  const Gpu& gpu = draft.target.gpu;
  const std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (!info || !draft.refusal || !is_column_sum(draft.schedule, *info, gpu, gpu.warp)) return false;
  if (neighbours_of(*info) < kSector && info->reduce < kLong) return false;
  return try_all(draft, {kRule, block}, [&] {
    const std::string share = divide_columns(draft, *info);
    if (!sum_columns(draft, share, gpu.warp)) return false;
    if (share != block) sum_columns(draft, block, kFewShares);
    return true;
  });
}

}  // namespace mcc::tuner
