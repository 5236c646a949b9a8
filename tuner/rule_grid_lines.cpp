// Reductions along an axis between whose elements other results lie (softmax or the greatest over the channels of a picture), of so
// many or so short lines that each has a thread of its own: all blocks of the group in one launch.
//
//   bound line.b @{block.x}: bound line.t @{thread.x}
//     for each reduction: for k: into a register
//     for i: the elements of the result along the line
//
// Neighbouring threads have neighbouring lines. What is made for each element on the way is computed where it is needed.
#include <algorithm>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kShort = 32;  // elements that a thread has summed before another launch would begin

class GridLines {
 public:
  GridLines(Draft& draft, const std::vector<std::string>& names) : d_(draft), s_(draft.schedule), names_(names) {}

  // Whether the group is of this form, and has lines enough, or short ones.
  bool fits() {
    const Gpu& gpu = d_.target.gpu;
    for (const std::string& name : names_) {
      std::optional<BlockInfo> info = analyze(s_, name);
      if (!info || info->is_nested || info->is_contraction || (!info->is_reduction && !info->is_injective)) return false;
      blocks_.push_back(*info);
    }
    const BlockInfo& root = blocks_.back();
    const auto reductions = std::count_if(blocks_.begin(), blocks_.end(), [](const BlockInfo& b) { return b.is_reduction; });
    if (reductions == 0 || root.is_reduction || root.axes.empty()) return false;
    find_lines();
    const bool is_more_than_one_launch = reductions > 1 || lines_.size() < root.axes.size();
    const bool are_short = std::all_of(blocks_.begin(), blocks_.end(),
                                       [](const BlockInfo& b) { return !b.is_reduction || b.reduce <= kShort; });
    return is_more_than_one_launch && are_lines() &&
           (are_short || count_ >= int64_t{gpu.multiprocessors} * gpu.threads_per_multiprocessor / 8);
  }

  bool run() {
    const std::string root = names_.back(), line = root + ".line", host = root + ".thread";
    std::vector<std::string> order, lines;
    for (size_t n = 0; n < blocks_.back().axes.size(); ++n)
      (is_line(n) ? lines : order).push_back(blocks_.back().axes[n].loop);
    order.insert(order.begin(), lines.begin(), lines.end());
    if (order.size() > 1) must_step(d_, Reorder{order});
    if (lines.size() > 1) must_step(d_, Fuse{lines, line});
    const int64_t threads = d_.decide.choose(root + ".threads", {64, 128, 256}, choose_threads(d_.target.gpu, count_));
    must_step(d_, Split{lines.size() > 1 ? line : lines[0], {0, threads}, {root + ".block", host}});
    must_step(d_, Bind{root + ".block", "block.x"});
    must_step(d_, Bind{host, "thread.x"});
    for (size_t n = names_.size() - 1; n-- > 0;) {
      if (!blocks_[n].is_reduction) must_step(d_, ComputeInline{names_[n]});
    }
    for (size_t n = names_.size() - 1; n-- > 0;) {
      if (blocks_[n].is_reduction) reduce(blocks_[n], host);
    }
    return static_cast<bool>(d_.refusal);
  }

 private:
  bool is_line(size_t axis) const { return std::find(lines_.begin(), lines_.end(), axis) != lines_.end(); }

  // The result's axes along which what was reduced, or made of that, is read at different places.
  void find_lines() {
    const BlockInfo& root = blocks_.back();
    for (size_t n = 0; n < root.axes.size(); ++n) {
      const bool moves = std::any_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
        return (b.is_reduction || b.spatial < root.spatial) && std::any_of(root.loads.begin(), root.loads.end(), [&](const Access& l) {
                 return l.buffer.same_as(b.store.buffer) && l.strides[n] != 0;
               });
      });
      if (!moves) continue;
      lines_.push_back(n);
      count_ *= root.axes[n].extent;
    }
  }

  // Each reduction has a result a line, and what neighbouring threads read and write are neighbours.
  bool are_lines() const {
    const BlockInfo& root = blocks_.back();
    if (lines_.empty() || root.store.strides[lines_.back()] != 1) return false;
    return std::all_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
      if (!b.is_reduction) return true;
      auto neighbours = [&](size_t n) {
        return !b.axes[n].is_reduce && b.store.strides[n] == 1 &&
               std::any_of(b.loads.begin(), b.loads.end(), [&](const Access& l) { return l.strides[n] == 1; });
      };
      bool has_neighbours = false;
      for (size_t n = 0; n < b.axes.size(); ++n)
        has_neighbours |= neighbours(n);
      return b.spatial == count_ && has_neighbours && !is_output(s_.func(), b.store.buffer);
    });
  }

  void reduce(const BlockInfo& info, const std::string& host) {
    must_step(d_, ComputeAt{info.name, host});
    if (!d_.refusal) return;
    for (const std::string& loop : s_.loop_names_of(info.name)) {
      if (!axes_bound_to(*s_.find_block(info.name), s_.find_loop(loop)->var).reduce) continue;
      must_step(d_, DecomposeReduction{info.name, loop});
      break;
    }
    must_step(d_, SetScope{info.store.buffer.name(), "local"});
  }

  Draft& d_;
  Schedule& s_;
  const std::vector<std::string>& names_;
  std::vector<BlockInfo> blocks_;
  std::vector<size_t> lines_;  // axes of the last block
  int64_t count_ = 1;
};

}  // namespace

bool schedule_grid_lines(Draft& draft, const std::vector<std::string>& blocks) {
  GridLines rule(draft, blocks);
  return draft.refusal && blocks.size() > 1 && rule.fits() && try_all(draft, {"lines of results", blocks.back()}, [&] { return rule.run(); });
}

}  // namespace mcc::tuner
