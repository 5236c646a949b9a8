// Windows over pictures with their channels last (depthwise convolutions, pooling): neighbouring channels in vectors, and neighbouring
// results of a thread share what their windows have in common.
//
//   bound @{block.x}: bound @{thread.x}     a run of channels of some results next to each other
//     for kh: unrolled kw: unrolled each: vectorized lane     its sums, in registers
//     unrolled each: vectorized lane                          and what takes them
#include <algorithm>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kMostResults = 4;
constexpr int64_t kMostUnrolled = 32;  // places of windows in straight code
constexpr int64_t kMostReduced = 256;  // of a window

// The last axis, along which everything that moves with it is contiguous; its place in `axes`, if the block is such a window.
std::optional<size_t> row_of_channels(const BlockInfo& info) {
  if (!info.is_reduction || info.is_nested || info.reduce > kMostReduced || info.loads.empty()) return std::nullopt;
  size_t last = info.axes.size();
  while (last > 0 && info.axes[last - 1].is_reduce)
    --last;
  if (last < 2 || last == info.axes.size()) return std::nullopt;
  --last;
  const bool reduces_last = std::none_of(info.axes.begin(), info.axes.begin() + static_cast<std::ptrdiff_t>(last),
                                         [](const AxisInfo& axis) { return axis.is_reduce; });
  const bool is_row = info.store.strides[last] == 1 &&
                      std::all_of(info.loads.begin(), info.loads.end(), [&](const Access& a) { return a.strides[last] == 1; });
  return reduces_last && is_row ? std::optional<size_t>(last) : std::nullopt;
}

// Elements that all accesses can move at once.
int64_t most_lanes(const BlockInfo& info, size_t row) {
  int64_t lanes = kVectorBytes;
  for (const Access& a : info.loads)
    lanes = std::min<int64_t>(lanes, kVectorBytes / std::max<int64_t>(byte_size(a.buffer.element()), 2));
  auto is_aligned = [&](const Access& a) {
    for (size_t n = 0; n < info.axes.size(); ++n) {
      if (n != row && a.strides[n] % lanes != 0) return false;
    }
    return true;
  };
  while (lanes > 1 && (info.axes[row].extent % lanes != 0 || !std::all_of(info.loads.begin(), info.loads.end(), is_aligned)))
    lanes /= 2;
  return lanes;
}

}  // namespace

bool schedule_grid_windows(Draft& draft, const std::string& block) {
  Schedule& s = draft.schedule;
  const Gpu& gpu = draft.target.gpu;
  std::optional<BlockInfo> info = analyze(s, block);
  const std::optional<size_t> row = info && draft.refusal ? row_of_channels(*info) : std::nullopt;
  const int64_t most = row ? most_lanes(*info, *row) : 1;
  // As many lanes and results as leave each multiprocessor some warps.
  const int64_t fewest = int64_t{8} * gpu.warp * gpu.multiprocessors;
  if (most == 1 || info->spatial < fewest) return false;
  return try_all(draft, {"windows in vectors of channels", block}, [&] {
    sum_in_register(draft, block);
    const std::string take = epilogue_of(s, block);
    const std::optional<BlockInfo> taken = take.empty() ? std::nullopt : analyze(s, take);
    if (!taken || taken->store.strides.back() != 1 || taken->axes.back().extent != info->axes[*row].extent) return false;
    const Buffer sums = only_buffer_written(*s.find_block(block));

    // Results share weights and what their windows have in common, so they come first.
    const AxisInfo& beside = info->axes[*row - 1];
    std::vector<int64_t> options{1};
    int64_t lanes = 2, results = 1;
    for (int64_t n = 2; n <= kMostResults && beside.extent % n == 0; n *= 2) {
      options.push_back(n);
      if (info->spatial / lanes / n >= fewest && windows_overlap(*info, *row - 1)) results = n;
    }
    if (options.size() > 1) results = draft.decide.choose(block + ".results", options, results);
    options.clear();
    for (int64_t n = 2; n <= most; n *= 2) {
      options.push_back(n);
      if (info->spatial / results / n >= fewest) lanes = n;
    }
    if (options.size() > 1) lanes = draft.decide.choose(block + ".lanes", options, lanes);
    const int64_t threads = draft.decide.choose(block + ".threads", {32, 64, 128, 256},
                                                std::min<int64_t>(choose_threads(gpu, info->spatial / lanes / results), 128));

    const std::string all = block + ".all", each = block + ".each", lane = block + ".lane", thread = block + ".thread";
    must_step(draft, Split{info->axes[*row].loop, {0, lanes}, {info->axes[*row].loop, lane}});
    must_step(draft, Split{beside.loop, {0, results}, {beside.loop, each}});
    std::vector<std::string> spread, order, window;
    for (const AxisInfo& axis : info->axes)
      (axis.is_reduce ? window : spread).push_back(axis.loop);
    order = spread;
    order.insert(order.end(), window.begin(), window.end());
    order.insert(order.end(), {each, lane});
    must_step(draft, Reorder{order});
    must_step(draft, Fuse{spread, all});
    must_step(draft, Split{all, {0, threads}, {block + ".block", thread}});
    must_step(draft, Bind{block + ".block", "block.x"});
    must_step(draft, Bind{thread, "thread.x"});
    must_step(draft, ReverseComputeAt{take, thread});
    must_step(draft, DecomposeReduction{block, window.front()});
    if (!draft.refusal) return false;

    auto unroll_below = [&](const std::string& of) {
      std::vector<std::string> loops = s.loop_names_of(of);
      loops.erase(loops.begin(), std::find(loops.begin(), loops.end(), thread) + 1);
      if (loops.empty()) return false;
      try_step(draft, Vectorize{loops.back()});
      for (size_t n = 0; n + 1 < loops.size(); ++n)
        must_step(draft, Unroll{loops[n]});
      return true;
    };
    must_step(draft, Vectorize{lane});
    must_step(draft, Unroll{each});
    int64_t copies = results;
    for (size_t n = window.size(); n-- > 0;) {
      copies *= info->axes[*row + 1 + n].extent;
      if (copies > kMostUnrolled) break;
      must_step(draft, Unroll{window[n]});
    }
    if (!unroll_below(block + ".init") || !unroll_below(take)) return false;
    must_step(draft, SetScope{sums.name(), "registers"});
    return static_cast<bool>(draft.refusal);
  });
}

}  // namespace mcc::tuner
