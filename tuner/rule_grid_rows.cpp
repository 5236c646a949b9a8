// Reductions along rows on a GPU (softmax, normalisations, sums, means of pictures): all blocks of the group row by row, the
// threads of thread.x along the row.
//
//   bound row.b @{block.x}
//     for each reduction:
//       bound row.t @{thread.y}: bound t @{thread.x}: its part of the row, every n-th element, into a register
//       bound row.t @{thread.y}: bound t @{thread.x}: the threads combine their parts (shuffles); all of them get the sum
//     for each map:
//       bound row.t @{thread.y}: bound t @{thread.x}: for i: element i * n + t
//
// What is made for a row stays in registers while it is short, then in shared memory. Short rows share a block of threads.
#include <algorithm>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kInRegisters = 16;  // elements of a row that one thread keeps of one buffer

bool is_row_reduction(const BlockInfo& info) {
  if (!info.is_reduction || info.is_contraction || bit_width(info.store.buffer.element()) != 32) return false;
  size_t last = info.axes.size() - 1;
  return info.axes[last].is_reduce && std::any_of(info.loads.begin(), info.loads.end(),
                                                  [&](const Access& l) { return l.strides[last] == 1; });
}

class GridRows {
 public:
  explicit GridRows(Draft& draft) : d_(draft), s_(draft.schedule), gpu_(draft.target.gpu) {}

  bool run() {
    split_off_result();
    for (const std::string& name : s_.block_names()) {
      std::optional<BlockInfo> info = analyze(s_, name);
      if (!info || (info->is_reduction && !is_row_reduction(*info)) || info->is_nested) return false;
      blocks_.push_back(*info);
      if (info->is_reduction) longest_ = std::max(longest_, info->reduce);
    }
    if (longest_ < gpu_.warp || !is_output(s_.func(), blocks_.back().store.buffer)) return false;
    if (!name_axes()) return false;
    choose_threads();
    const std::string root = blocks_.back().name;
    must_step(d_, Split{root + ".row", {0, rows_}, {root + ".row.b", root + ".row.t"}});
    host_ = root + ".row.b";
    must_step(d_, Bind{host_, "block.x"});
    for (size_t i = blocks_.size() - 1; i-- > 0;)
      must_step(d_, ComputeAt{blocks_[i].name, host_});
    for (const BlockInfo& info : blocks_) {
      if (!d_.refusal) return false;
      info.is_reduction ? reduce(info) : map(info);
    }
    for (const auto& [buffer, scope] : scopes_)
      must_step(d_, SetScope{buffer, scope});
    return static_cast<bool>(d_.refusal);
  }

 private:
  // A reduction that makes the result gives it to a block of its own.
  void split_off_result() {
    const std::string last = s_.block_names().back();
    std::optional<BlockInfo> info = analyze(s_, last);
    if (info && is_row_reduction(*info) && is_output(s_.func(), info->store.buffer)) {
      try_step(d_, CacheWrite{last, info->store.buffer.name(), "global", last + ".out"});
    }
  }

  // The leading axes, which all blocks share, become axis "row" of each; what reductions reduce becomes "k", what is left of
  // the others "i".
  bool name_axes() {
    size_t shared = 0;
    const BlockInfo& first = blocks_[0];
    auto all_have = [&](size_t n) {
      return std::all_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
        return n < b.axes.size() && !b.axes[n].is_reduce && b.axes[n].extent == first.axes[n].extent;
      });
    };
    while (shared < first.axes.size() && all_have(shared))
      ++shared;
    if (shared == 0) return false;
    for (BlockInfo& b : blocks_) {
      std::vector<std::string> row, rest;
      const Block& block = *s_.find_block(b.name);
      for (size_t n = 0; n < block.axes.size(); ++n) {
        if (n >= shared && b.is_reduction && block.axes[n].kind != AxisKind::reduce) return false;
        (n < shared ? row : rest).push_back(block.axes[n].var.name());
      }
      must_step(d_, FuseAxes{b.name, row, "row"});
      if (!rest.empty()) must_step(d_, FuseAxes{b.name, rest, b.is_reduction ? "k" : "i"});
      if (!d_.refusal) return false;
    }
    for (size_t n = 0; n < shared; ++n)
      count_ *= first.axes[n].extent;
    return true;
  }

  // Threads along the row: so many that each has some elements; more when there are few rows.
  void choose_threads() {
    int64_t per_thread = count_ >= 4 * gpu_.multiprocessors ? 8 : 2;
    threads_ = gpu_.warp;
    while (threads_ < 512 && threads_ * per_thread < longest_)
      threads_ *= 2;
    rows_ = 1;
    while (rows_ * threads_ < 128 && count_ % (2 * rows_) == 0 &&
           count_ / (2 * rows_) >= gpu_.multiprocessors)
      rows_ *= 2;
  }

  // Splits loop `name` of the block between the threads; the loops in the order thread, turn.
  bool spread(const std::string& loop) {
    must_step(d_, Split{loop, {0, threads_}, {loop + ".n", loop + ".t"}});
    return static_cast<bool>(d_.refusal);
  }

  // The loop over the rows of the block, which stands outermost below the host.
  void bind_rows(const std::string& block, const std::string& row) {
    (void)block;
    if (s_.find_loop(row) != nullptr) must_step(d_, Bind{row, "thread.y"});
  }

  void map(const BlockInfo& info) {
    bool is_root = info.name == blocks_.back().name;
    const std::string row = is_root ? info.name + ".row.t" : info.name + ".row", element = info.name + ".i";
    const Buffer result = info.store.buffer;
    if (s_.find_loop(element) == nullptr) {
      // One value a row: each thread computes it for itself.
      if (is_root) {
        must_step(d_, Bind{row, "thread.y"});
      } else {
        must_step(d_, Bind{row, "thread.y"});
        scopes_.emplace_back(result.name(), "local");
      }
      return;
    }
    if (!spread(element)) return;
    must_step(d_, Reorder{{row, element + ".t", element + ".n"}});
    must_step(d_, Bind{row, "thread.y"});
    must_step(d_, Bind{element + ".t", "thread.x"});
    if (!is_root && !is_output(s_.func(), result)) keep(info, element);
    int64_t turns = 0;
    if (as_int(s_.find_loop(element + ".n")->extent, &turns) && turns <= kInRegisters)
      try_step(d_, Unroll{element + ".n"});
  }

  // Elements that only the thread that made them reads, in registers; others in shared memory.
  void keep(const BlockInfo& info, const std::string& element) {
    const Buffer& b = info.store.buffer;
    int64_t extent = info.spatial / count_, turns = (extent + threads_ - 1) / threads_;
    int64_t bytes = rows_ * extent * byte_size(b.element());
    size_t last = b.shape().size() - 1;
    (void)element;
    if (turns <= kInRegisters && info.store.strides.back() == 1 && is_read_by_its_thread(info)) {
      std::vector<std::string> from, to;
      for (size_t n = 0; n <= last; ++n)
        from.push_back(text("d", n));
      to = from;
      to.back() = text("d", last, " // ", threads_);
      to.push_back(text("d", last, " %% ", threads_));
      int64_t size = 0;
      if (as_int(b.shape()[last], &size) && size == extent &&
          try_step(d_,
                   TransformLayout{b.name(), text("(", tensor_join(from), ") -> (", tensor_join(to), ")")})) {
        scopes_.emplace_back(b.name(), "local");
        return;
      }
    }
    if (bytes <= gpu_.shared_per_block / 2) {
      scopes_.emplace_back(b.name(), "shared");
    }
  }
  static std::string tensor_join(const std::vector<std::string>& list) { return join(list, ", "); }

  // Whether all readers walk the row as its writer does.
  bool is_read_by_its_thread(const BlockInfo& info) const {
    for (const BlockInfo& reader : blocks_) {
      for (const Access& l : reader.loads) {
        if (!l.buffer.same_as(info.store.buffer)) continue;
        if (reader.axes.size() != info.axes.size() || l.strides != info.store.strides) return false;
      }
    }
    return true;
  }

  void reduce(const BlockInfo& info) {
    const std::string name = info.name, k = name + ".k", part = name + ".part";
    if (!spread(k)) return;
    must_step(d_, Rfactor{name, k + ".t", part, 0});
    if (!d_.refusal) return;
    // The parts: loops row, t, n.
    std::vector<std::string> loops = below_host(part);
    std::string row, thread, turn;
    for (const std::string& loop : loops) {
      AxisKinds kinds = axes_bound_to(*s_.find_block(part), s_.find_loop(loop)->var);
      if (kinds.reduce) {
        turn = loop;
      } else if (loop.find(".t") != std::string::npos) {
        thread = loop;
      } else if (kinds.spatial) {
        row = loop;
      }
    }
    std::vector<std::string> order;
    for (const std::string& loop : {row, thread, turn}) {
      if (!loop.empty()) order.push_back(loop);
    }
    must_step(d_, Reorder{order});
    if (!row.empty()) must_step(d_, Bind{row, "thread.y"});
    must_step(d_, Bind{thread, "thread.x"});
    if (!turn.empty()) must_step(d_, DecomposeReduction{part, turn});
    scopes_.emplace_back(part, "local");
    // Their sum.
    std::string sum_row, sum_thread;
    for (const std::string& loop : below_host(name)) {
      AxisKinds kinds = axes_bound_to(*s_.find_block(name), s_.find_loop(loop)->var);
      if (kinds.reduce) sum_thread = loop;
      if (kinds.spatial) sum_row = loop;
    }
    if (!sum_row.empty()) must_step(d_, Bind{sum_row, "thread.y"});
    must_step(d_, DecomposeReduction{name, sum_row.empty() ? sum_thread : sum_row});
    must_step(d_, Bind{sum_thread, "thread.x"});
    scopes_.emplace_back(info.store.buffer.name(), "local");
  }

  std::vector<std::string> below_host(const std::string& block) const {
    std::vector<std::string> loops = s_.loop_names_of(block);
    auto at = std::find(loops.begin(), loops.end(), host_);
    if (at == loops.end()) return {};
    return {at + 1, loops.end()};
  }

  Draft& d_;
  Schedule& s_;
  const Gpu& gpu_;
  std::vector<BlockInfo> blocks_;
  int64_t longest_ = 0, count_ = 1, threads_ = 32, rows_ = 1;
  std::string host_;
  std::vector<std::pair<std::string, std::string>> scopes_;  // set when all is bound
};

}  // namespace

bool schedule_grid_rows(Draft& draft) {
  if (!draft.refusal) return false;
  Schedule before = draft.schedule;
  if (GridRows(draft).run()) return true;
  draft.schedule = std::move(before);
  draft.refusal = {};
  return false;
}

}  // namespace mcc::tuner
