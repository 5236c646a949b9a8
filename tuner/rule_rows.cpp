// Reductions along rows.
//
//   for row (parallel):
//     for each block of the chain: in vectors along the row
//
// A sum along the row runs in several vectors of partial results (rfactor), which are combined at its end by halves.
// Intermediates of a row stay in the first-level cache.
#include <algorithm>

#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Windows that slide along the row of the result: short, and next to one another or overlapping. Vectors run along the results
// instead.
bool is_sliding_window(const BlockInfo& info, const Target& target) {
  const AxisInfo& last = info.axes.back();
  if (last.extent >= target.lanes(32)) return false;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce || info.store.strides[a] != 1 || info.axes[a].extent < target.lanes(32) / 2)
      continue;
    for (const Access& load : info.loads) {
      int64_t step = load.strides[a];
      // A window of several lines, or neighbours that have elements in common.
      bool has_lines = false;
      for (size_t r = 0; r + 1 < info.axes.size(); ++r)
        has_lines |= info.axes[r].is_reduce && info.axes[r].extent > 1 && load.strides[r] > last.extent;
      if (step > 0 && (step < last.extent || (step == last.extent && has_lines))) return true;
    }
  }
  return false;
}

bool is_row_reduction(const BlockInfo& info, const Target& target) {
  if (!info.is_reduction || info.is_contraction || is_sliding_window(info, target)) return false;
  // Contiguous along the last reduce axis.
  size_t last = info.axes.size() - 1;
  return info.axes[last].is_reduce &&
         std::all_of(info.loads.begin(), info.loads.end(),
                     [&](const Access& l) { return l.strides[last] <= 1; }) &&
         std::any_of(info.loads.begin(), info.loads.end(),
                     [&](const Access& l) { return l.strides[last] == 1; });
}

// The loops of a block inside of one of them; all for "".
std::vector<std::string> loops_in_row(const Schedule& s, const std::string& block,
                                      const std::string& row_loop) {
  std::vector<std::string> loops = s.loop_names_of(block);
  if (row_loop.empty()) return loops;
  auto at = std::find(loops.begin(), loops.end(), row_loop);
  if (at == loops.end()) return {};
  return {at + 1, loops.end()};
}

class Rows {
 public:
  explicit Rows(Draft& draft) : d_(draft), s_(draft.schedule), t_(draft.target) {}

  bool run() {
    split_off_result();
    for (const std::string& name : s_.block_names()) {
      std::optional<BlockInfo> info = analyze(s_, name);
      if (!info) return false;
      // Everything in the group is about the same rows, or the rule does not fit.
      if (info->is_reduction && !is_row_reduction(*info, t_)) return false;
      blocks_.push_back(*info);
      if (info->is_reduction) reductions_.push_back(*info);
    }
    if (reductions_.empty()) return false;
    if (is_one_row()) {
      schedule_one_row();
      return true;
    }
    if (!find_root() || !fuse_rows()) return false;
    for (size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].name != root_.name) try_step(d_, ComputeAt{blocks_[i].name, row_loop_});
    }
    for (const BlockInfo& info : blocks_) {
      if (info.is_reduction) {
        vectorize_row_reduction(d_, info.name, row_loop_);
      } else {
        vectorize_row_map(d_, info.name, row_loop_);
      }
    }
    return true;
  }

 private:
  // A reduction that makes the result gives it to a block of its own: then it stands with its partial results under the
  // row loop as every other block does.
  void split_off_result() {
    const std::string last = s_.block_names().back();
    std::optional<BlockInfo> info = analyze(s_, last);
    if (info && is_row_reduction(*info, t_) && is_output(s_.func(), info->store.buffer)) {
      try_step(d_, CacheWrite{last, info->store.buffer.name(), "global", last + ".out"});
    }
  }

  // Reductions over everything.
  bool is_one_row() const {
    return std::all_of(reductions_.begin(), reductions_.end(),
                       [](const BlockInfo& r) { return r.spatial == 1; });
  }

  // Each block by itself: there is no loop over rows to bring them together.
  void schedule_one_row() {
    for (const BlockInfo& info : blocks_) {
      if (info.is_reduction) {
        vectorize_row_reduction(d_, info.name, "");
      } else {
        schedule_pointwise(d_, info.name);
      }
    }
  }

  // The last block; all others feed it.
  bool find_root() {
    root_ = blocks_.back();
    return is_output(s_.func(), root_.store.buffer);
  }

  // The leading axes that the root shares with the reductions become one loop.
  bool fuse_rows() {
    size_t shared = root_.axes.size();
    for (const BlockInfo& r : reductions_) {
      size_t same = 0;
      while (same < shared && same < r.axes.size() && !r.axes[same].is_reduce &&
             r.axes[same].extent == root_.axes[same].extent && !root_.axes[same].is_reduce) {
        ++same;
      }
      shared = std::min(shared, same);
    }
    std::vector<std::string> outer;
    int64_t rows = 1;
    for (size_t i = 0; i < shared; ++i) {
      outer.push_back(root_.axes[i].loop);
      rows *= root_.axes[i].extent;
    }
    if (outer.empty()) return false;
    row_loop_ = outer[0];
    if (outer.size() > 1) {
      row_loop_ = root_.name + ".rows";
      must_step(d_, Fuse{outer, row_loop_});
    }
    int64_t work = 0;
    for (const BlockInfo& b : blocks_)
      work += b.iterations() * (b.has_math_call ? 8 : 1);
    double us = estimate_us(static_cast<double>(work), static_cast<double>(work) * 2, t_);
    if (rows > 1 && choose_parallel(d_, root_.name, us)) {
      std::string parallel = choose_grain(rows);
      try_step(d_, Parallel{parallel});
    }
    return true;
  }

  // Rows that one thread takes at a time; the loop over those lots.
  std::string choose_grain(int64_t rows) {
    std::vector<int64_t> options{1};
    for (int64_t n = 4; rows % n == 0 && rows / n >= 2 * t_.cores && n <= 64; n *= 4)
      options.push_back(n);
    int64_t grain = options.size() == 1 ? 1 : d_.decide.choose(root_.name + ".grain", options, 1);
    std::string outer = row_loop_;
    if (grain > 1) {
      outer = root_.name + ".lot";
      std::string inner = root_.name + ".row";
      must_step(d_, Split{row_loop_, {0, grain}, {outer, inner}});
      row_loop_ = inner;
    }
    return outer;
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  std::vector<BlockInfo> blocks_, reductions_;
  BlockInfo root_;
  std::string row_loop_;
};

}  // namespace

void vectorize_row_map(Draft& draft, const std::string& block, const std::string& row_loop) {
  const Schedule& s = draft.schedule;
  std::vector<std::string> loops = loops_in_row(s, block, row_loop);
  if (loops.empty()) return;
  int64_t lanes = draft.target.lanes(32), extent = 0;
  std::string last = loops.back();
  if (!as_int(s.find_loop(last)->extent, &extent) || extent < 2) return;
  std::string vectors;
  if (extent > lanes) {
    int64_t count = choose_vectors(draft, block, extent, lanes, 4);
    if (count > 1) {
      vectors = last + ".vecs";
      if (!try_step(draft, Split{last, {0, count, lanes}, {last + ".vec", vectors, last + ".lane"}})) return;
    } else if (!try_step(draft, Split{last, {0, lanes}, {last + ".vec", last + ".lane"}})) {
      return;
    }
    last += ".lane";
  }
  try_step(draft, Vectorize{last});
  if (!vectors.empty()) try_step(draft, Unroll{vectors});
}

void vectorize_row_reduction(Draft& draft, const std::string& block, const std::string& row_loop) {
  const Schedule& s = draft.schedule;
  std::vector<std::string> loops = loops_in_row(s, block, row_loop);
  if (loops.empty()) return;
  int64_t lanes = draft.target.lanes(32), extent = 0;
  std::string last = loops.back();
  if (!as_int(s.find_loop(last)->extent, &extent)) return;
  std::string partial = block + ".part";
  if (extent >= lanes) {
    // As many vectors of partial results as hide the latency of an addition, if they divide the row or the row is so long
    // that what is masked at its end does not matter.
    int64_t width = lanes;
    auto fits = [&](int64_t w) { return extent % w == 0 ? extent >= 2 * w : extent >= 3 * w; };
    while (width < 4 * lanes && fits(2 * width))
      width *= 2;
    std::vector<int64_t> options;
    for (int64_t w = lanes; w <= 8 * lanes && w <= extent; w *= 2) {
      if (w == width || extent % w == 0) options.push_back(w);
    }
    if (options.size() > 1) width = draft.decide.choose(block + ".width", options, width);
    std::string lane = last + ".lane";
    must_step(draft, Split{last, {0, width}, {last + ".vec", lane}});
    if (!try_step(draft, Rfactor{block, lane, partial, 0})) return;
    std::vector<std::string> partial_loops = loops_in_row(s, partial, row_loop);
    // The partial block: reduction outside, lanes inside.
    std::vector<std::string> order;
    for (const std::string& l : partial_loops) {
      if (l != lane) order.push_back(l);
    }
    order.push_back(lane);
    if (!order.empty() && order.size() > 1) try_step(draft, Reorder{order});
    if (try_step(draft, DecomposeReduction{partial, order[0]})) {
      std::vector<std::string> init = loops_in_row(s, partial + ".init", row_loop);
      if (!init.empty()) try_step(draft, Vectorize{init.back()});
    }
    try_step(draft, Vectorize{lane});
    const Block* made = s.find_block(partial);
    if (made) try_step(draft, SetScope{made->writes[0].buffer.name(), "registers"});
    loops = loops_in_row(s, block, row_loop);
    if (loops.empty()) return;
    last = loops.back();
  }
  if (try_step(draft, DecomposeReduction{block, loops.front()})) try_step(draft, Vectorize{last});
}

bool schedule_rows(Draft& draft) {
  const RuleScope scope(draft, {"reductions along rows", draft.schedule.block_names().back()});
  const Schedule before = draft.schedule;
  if (Rows(draft).run()) return true;
  draft.schedule = before;
  return false;
}

}  // namespace mcc::tuner
