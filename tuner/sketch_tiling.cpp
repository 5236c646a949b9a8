// Multi-level tiling of a contraction.
//
//   for S0 (some with S1 fused, parallel): for S1:
//     init
//     for R0: for S2: for R1: for S3 (the last in vectors): acc += ...
//     consumer, or a copy out of the accumulators     [or after S0]
//
// Ansor's (OSDI'20, table 1) and MetaSchedule's (NeurIPS'22) rules for CPUs as decisions: four factors of each spatial
// axis, two of each reduce axis; a cache of results with its consumer fused at the first or second level; where producers
// that cannot disappear are computed; how much is unrolled. Beyond theirs, extents may be padded by up to a quarter, so that
// odd ones can be tiled, too.
#include <algorithm>

#include "tuner/answers.h"
#include "tuner/rules.h"
#include "tuner/sketches.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kMaxInner = 64;
constexpr int64_t kJobsPerCore = 16;

// Data is reused: some operand stands still along a spatial axis.
bool needs_tiling(const BlockInfo& info) {
  if (!info.is_reduction || info.iterations() == 0 || info.spatial < 2) return false;
  return std::any_of(info.loads.begin(), info.loads.end(), [&](const Access& load) {
    for (size_t a = 0; a < info.axes.size(); ++a) {
      if (!info.axes[a].is_reduce && info.axes[a].extent > 1 && load.strides[a] == 0) return true;
    }
    return false;
  });
}

enum Level { S0, S1, R0, S2, R1, S3, kLevels };

class Tiling {
 public:
  Tiling(Draft& draft, BlockInfo info)
      : d_(draft), s_(draft.schedule), t_(draft.target), info_(std::move(info)) {}

  void run() {
    lanes_ = t_.lanes(std::max(info_.element_bits, 32));
    find_axes();
    for (size_t a = 0; a < info_.axes.size(); ++a)
      split_axis(a);
    reorder();
    std::string consumer = consumer_of(s_, info_);
    choose_host();
    fuse_outer();
    place_consumer(consumer);
    decompose();
    vectorize();
    place_producers();
  }

 private:
  void find_axes() {
    for (size_t a = 0; a < info_.axes.size(); ++a) {
      if (info_.axes[a].is_reduce || info_.axes[a].extent < 2) continue;
      if (info_.store.strides[a] == 1) vector_ = static_cast<int>(a);
    }
    for (size_t a = 0; a < info_.axes.size(); ++a) {
      if (info_.axes[a].is_reduce || static_cast<int>(a) == vector_) continue;
      if (row_ < 0 || info_.axes[a].extent > info_.axes[static_cast<size_t>(row_)].extent)
        row_ = static_cast<int>(a);
    }
  }

  // The extent that is divided: a little more than the axis's own where that divides better.
  int64_t choose_extent(size_t a) {
    int64_t extent = info_.axes[a].extent;
    std::vector<int64_t> options{extent};
    int64_t preferred = extent;
    auto add = [&](int64_t multiple) {
      int64_t padded = (extent + multiple - 1) / multiple * multiple;
      if (4 * padded <= 5 * extent && std::find(options.begin(), options.end(), padded) == options.end()) {
        options.push_back(padded);
      }
    };
    if (static_cast<int>(a) == vector_) {
      if (extent > lanes_ && extent % lanes_ != 0) add(lanes_);
      preferred = options.back();
    } else if (!info_.axes[a].is_reduce && extent > 4 && largest_divisor(extent, 16) < 4) {
      for (int64_t multiple : {2, 4, 6, 8})
        add(multiple);
    }
    return options.size() == 1 ? extent : d_.decide.choose(axis_name(a) + ".pad", options, preferred);
  }

  std::string axis_name(size_t a) const {
    return info_.name + (info_.axes[a].is_reduce ? ".r" : ".s") + std::to_string(a);
  }

  Answer preferred_tile(size_t a, int64_t extent) const {
    if (info_.axes[a].is_reduce) {
      int64_t inner = largest_divisor(extent, 4);
      return {extent / inner, inner};
    }
    Answer tile{extent, 1, 1, 1};
    if (static_cast<int>(a) == vector_) {
      tile[3] = extent % lanes_ == 0 ? (extent % (2 * lanes_) == 0 ? 2 * lanes_ : lanes_)
                                     : largest_divisor(extent, lanes_);
      tile[3] = std::min(tile[3], kMaxInner);
    } else if (static_cast<int>(a) == row_) {
      tile[2] = largest_divisor(extent, t_.vector_registers >= 32 ? 12 : 6);
    }
    tile[0] = extent / (tile[2] * tile[3]);
    return tile;
  }

  void split_axis(size_t a) {
    const AxisInfo& axis = info_.axes[a];
    const bool is_reduce = axis.is_reduce;
    std::vector<Level> levels = is_reduce ? std::vector{R0, R1} : std::vector{S0, S1, S2, S3};
    if (axis.extent == 1) {
      loops_[levels[0]].push_back({axis.loop, 1, static_cast<int>(a)});
      return;
    }
    int64_t extent = choose_extent(a);
    Answer preferred = preferred_tile(a, extent);
    Answer tile =
        d_.decide.tile(axis_name(a), extent, static_cast<int64_t>(levels.size()), kMaxInner, preferred);
    if (!is_reduce) {
      inner_[0] *= tile[1] * tile[2] * tile[3];
      inner_[1] *= tile[2] * tile[3];
    }
    // Levels of one iteration need no loop.
    Split split{axis.loop, {}, {}};
    std::vector<Level> used;
    for (size_t l = 0; l < tile.size(); ++l) {
      if (tile[l] == 1) continue;
      split.factors.push_back(tile[l]);
      split.names.push_back(axis.loop + ".t" + std::to_string(l));
      used.push_back(levels[l]);
    }
    if (used.size() == 1) {
      loops_[used[0]].push_back({axis.loop, axis.extent, static_cast<int>(a)});
      return;
    }
    must_step(d_, split);
    for (size_t i = 0; i < used.size(); ++i) {
      loops_[used[i]].push_back({split.names[i], split.factors[i], static_cast<int>(a)});
    }
  }

  void reorder() {
    // The vector axis goes innermost.
    std::stable_partition(loops_[S3].begin(), loops_[S3].end(),
                          [&](const Loop& l) { return l.axis != vector_; });
    std::vector<std::string> order;
    for (const auto& level : loops_) {
      for (const Loop& l : level)
        order.push_back(l.name);
    }
    if (order.size() > 1) must_step(d_, Reorder{order});
  }

  // After which level results leave their cache.
  void choose_host() {
    const bool has_first = !loops_[S0].empty(), has_second = !loops_[S1].empty();
    host_level_ = has_second ? 2 : 1;
    if (has_first && has_second) {
      host_level_ = static_cast<int>(d_.decide.choose(info_.name + ".out.place", {1, 2}, 2));
    }
    if (has_first) host_ = loops_[S0].back().name;
    if (has_second && host_level_ == 2) host_ = loops_[S1].back().name;
  }

  // Outer loops become one until there are jobs enough for all cores; never one below the host.
  void fuse_outer() {
    std::vector<Loop> outer = loops_[S0];
    if (host_level_ == 2) outer.insert(outer.end(), loops_[S1].begin(), loops_[S1].end());
    if (outer.empty()) return;
    std::vector<std::string> fused;
    int64_t jobs = 1;
    for (const Loop& l : outer) {
      if (fused.size() >= loops_[S0].size() && jobs >= kJobsPerCore * t_.cores) break;
      fused.push_back(l.name);
      jobs *= l.extent;
    }
    outer_ = fused[0];
    if (fused.size() > 1) {
      outer_ = info_.name + ".outer";
      must_step(d_, Fuse{fused, outer_});
      if (std::find(fused.begin(), fused.end(), host_) != fused.end()) host_ = outer_;
    }
    auto work = static_cast<double>(info_.iterations());
    if (jobs > 1 && choose_parallel(d_, info_.name, estimate_us(2 * work, 0, t_)))
      try_step(d_, Parallel{outer_});
  }

  void place_consumer(const std::string& consumer) {
    if (host_.empty()) return;
    if (!consumer.empty() && try_step(d_, ReverseComputeAt{consumer, host_})) {
      write_back_ = consumer;
    } else if (d_.decide.choose(info_.name + ".cache", {0, 1}, 1) != 0) {
      std::string copy = info_.name + ".out";
      must_step(d_, CacheWrite{info_.name, info_.store.buffer.name(), "global", copy});
      must_step(d_, ReverseComputeAt{copy, host_});
      write_back_ = copy;
    }
    if (write_back_.empty()) return;
    // Registers hold what they can hold; larger tiles stay in memory of the thread.
    int64_t elements = inner_[host_level_ == 2 ? 1 : 0];
    const Block* block = s_.find_block(info_.name);
    if (block != nullptr && vector_factor() % lanes_ == 0 && elements / lanes_ <= t_.vector_registers - 2) {
      must_step(d_, SetScope{block->writes[0].buffer.name(), "registers"});
    }
  }

  int64_t vector_factor() const {
    return loops_[S3].empty() || loops_[S3].back().axis != vector_ ? 1 : loops_[S3].back().extent;
  }

  void decompose() {
    const auto& outermost = loops_[R0].empty() ? loops_[R1] : loops_[R0];
    if (!outermost.empty()) must_step(d_, DecomposeReduction{info_.name, outermost[0].name});
  }

  void vectorize() {
    // Loops inside out, without the vectors.
    std::vector<Loop> inside;
    for (Level level : {R0, S2, R1, S3})
      inside.insert(inside.end(), loops_[level].begin(), loops_[level].end());
    if (vector_factor() > 1) {
      Loop last = inside.back();
      inside.pop_back();
      std::string lane = last.name;
      if (last.extent > lanes_) {
        lane = last.name + ".lane";
        must_step(d_, Split{last.name, {0, lanes_}, {last.name + ".vec", lane}});
        inside.push_back({last.name + ".vec", (last.extent + lanes_ - 1) / lanes_, last.axis});
      }
      try_step(d_, Vectorize{lane});
    }
    int64_t steps = d_.decide.choose(info_.name + ".unroll", {0, 16, 64, 512}, 64), copies = 1;
    for (size_t i = inside.size(); i-- > 0;) {
      copies *= inside[i].extent;
      if (copies > steps) break;
      if (inside[i].extent > 1) try_step(d_, Unroll{inside[i].name});
    }
    vectorize_below(d_, info_.name + ".init", host_, lanes_);
    if (!write_back_.empty()) vectorize_below(d_, write_back_, host_, lanes_);
  }

  // Producers that could not disappear (padded inputs): as a whole, for each outer iteration, or for each reduction tile.
  void place_producers() {
    for (const std::string& producer : s_.producers(info_.name)) {
      std::optional<BlockInfo> p = analyze(s_, producer);
      if (!p || !p->is_injective || !is_free(s_, *p)) continue;
      std::vector<std::string> places{""};
      if (!outer_.empty()) places.push_back(outer_);
      if (!loops_[R0].empty()) places.push_back(loops_[R0].back().name);
      if (places.size() == 1) continue;
      std::vector<int64_t> options;
      for (size_t i = 0; i < places.size(); ++i)
        options.push_back(static_cast<int64_t>(i));
      auto place = static_cast<size_t>(d_.decide.choose(producer + ".place", options, 0));
      if (place == 0 || !try_step(d_, ComputeAt{producer, places[place]})) continue;
      vectorize_below(d_, producer, places[place], lanes_);
    }
  }

  struct Loop {
    std::string name;
    int64_t extent = 1;
    int axis = 0;
  };

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  BlockInfo info_;
  int64_t lanes_ = 16;
  int vector_ = -1, row_ = -1;  // axes: contiguous in the result; the longest other one
  std::vector<Loop> loops_[kLevels];
  int64_t inner_[2] = {1, 1};  // results below S0, below S1
  int host_level_ = 2;
  std::string host_, outer_, write_back_;
};

}  // namespace

bool sketch_tiling(Draft& draft) {
  inline_producers(draft);
  Schedule& s = draft.schedule;
  std::optional<BlockInfo> main;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> info = analyze(s, name);
    if (info && needs_tiling(*info) && is_free(s, *info) &&
        (!main || info->iterations() > main->iterations()))
      main = info;
  }
  if (!main) return false;
  Tiling(draft, *main).run();
  schedule_rest(draft);
  return true;
}

}  // namespace mcc::tuner
