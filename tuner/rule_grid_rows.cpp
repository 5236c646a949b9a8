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
// What is made for a row stays in registers while it is short, then in shared memory. Short rows share a block of threads; of few rows of
// many elements each part is a row, and what the parts give is another, in a launch of its own.
#include <algorithm>
#include <numeric>

#include "support/text.h"
#include "tensor/grid.h"
#include "tensor/schedule/tree.h"
#include "tuner/answers.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kInRegisters = 16;  // elements of a row that one thread keeps of one buffer

// Windows of which there is one for each thread: what they share is read again and again by threads that each have a part of one.
bool are_windows(const BlockInfo& info, const Gpu& gpu) {
  bool overlap = false;
  for (size_t n = 0; n < info.axes.size(); ++n)
    overlap |= !info.axes[n].is_reduce && windows_overlap(info, n);
  return overlap && info.spatial >= int64_t{2} * gpu.warp * gpu.multiprocessors;
}

// A sum of products of which no operand is used twice (a matrix times a vector) is one, too.
bool is_row_reduction(const Schedule& s, const BlockInfo& info, const Gpu& gpu) {
  if (!info.is_reduction || !is_shuffled(info.store.buffer.element()) || are_windows(info, gpu) ||
      share_rows(info, gpu))
    return false;
  if (info.is_contraction && is_grid_product(s, info.name)) return false;
  size_t last = info.axes.size() - 1;
  auto is_along = [&](const Access& l) { return l.strides[last] == 1; };
  if (!info.axes[last].is_reduce) return false;
  return info.is_contraction ? std::all_of(info.loads.begin(), info.loads.end(), is_along)
                             : std::any_of(info.loads.begin(), info.loads.end(), is_along);
}

// A divisor of a row's length: parts that keep the multiprocessors busy, each with enough for a block of threads. 1: the rows do.
int64_t parts_of_rows(int64_t rows, int64_t length, const Gpu& gpu) {
  constexpr int64_t kLeast = 1024, kLong = 64 * kLeast;  // elements of a part, and of a row that is worth more launches
  if (8 * rows > gpu.multiprocessors || length < kLong) return 1;
  const int64_t parts = largest_divisor(length, std::min(2 * gpu.multiprocessors / rows, length / kLeast));
  return parts >= 8 ? parts : 1;
}

class GridRows {
 public:
  // in_steps: the blocks are all of a step of a recurrence up to some place, and stay where they are.
  GridRows(Draft& draft, std::vector<std::string> names, bool in_steps)
      : d_(draft),
        s_(draft.schedule),
        gpu_(draft.target.gpu),
        names_(std::move(names)),
        in_steps_(in_steps) {}

  // Whether the blocks have this form; takes a step at most, which gives the last result a block of its own.
  bool find() {
    if (!in_steps_) split_off_result();
    for (const std::string& name : names_) {
      if ((axes_of(name).size() < s_.find_block(name)->axes.size()) != in_steps_) return false;
      std::optional<BlockInfo> info = analyze(s_, name);
      if (!info || (info->is_reduction && !is_row_reduction(s_, *info, gpu_)) || info->is_nested) return false;
      blocks_.push_back(*info);
      if (info->is_reduction) longest_ = std::max(longest_, info->reduce);
    }
    if (longest_ < gpu_.warp) return false;
    for (const BlockInfo& info : blocks_)
      closed_.push_back(is_closed(info));
    // The first whose result is needed elsewhere has the loop over rows; the others go there.
    root_ = static_cast<size_t>(std::find(closed_.begin(), closed_.end(), false) - closed_.begin());
    return root_ < blocks_.size() && !blocks_[root_].is_reduction && follow_root() && find_shared_axes() && are_maps_as_long();
  }

  // The first of the reductions.
  const std::string& block() const {
    return std::find_if(blocks_.begin(), blocks_.end(), [](const BlockInfo& b) { return b.is_reduction; })->name;
  }

  bool run() {
    name_axes();
    choose_threads();
    in_steps_ ? join_rows() : gather_rows();
    for (size_t n = 0; n < blocks_.size(); ++n) {
      if (!d_.refusal) return false;
      blocks_[n].is_reduction ? reduce(blocks_[n], closed_[n])
                              : map(blocks_[n], closed_[n], in_steps_ || n == root_);
    }
    for (const auto& [buffer, scope] : scopes_)
      must_step(d_, SetScope{buffer, scope});
    return static_cast<bool>(d_.refusal);
  }

 private:
  // A reduction that makes the result gives it to a block of its own.
  void split_off_result() {
    const std::string last = names_.back(), out = last + ".out";
    std::optional<BlockInfo> info = analyze(s_, last);
    if (info && is_row_reduction(s_, *info, gpu_) &&
        try_step(d_, CacheWrite{last, info->store.buffer.name(), "global", out})) {
      names_.push_back(out);
    }
  }

  // Whether what the block makes is for these blocks only.
  bool is_closed(const BlockInfo& info) const {
    if (is_output(s_.func(), info.store.buffer)) return false;
    std::vector<std::string> readers = s_.consumers(info.name);
    return std::all_of(readers.begin(), readers.end(), [&](const std::string& reader) {
      return std::find(names_.begin(), names_.end(), reader) != names_.end();
    });
  }

  // Whether blocks behind the first result read it, or one that does: what goes to its loop has to read what is made there.
  bool follow_root() const {
    for (size_t n = root_ + 1; n < blocks_.size(); ++n) {
      const bool is_read = std::any_of(blocks_.begin() + static_cast<std::ptrdiff_t>(root_), blocks_.begin() + static_cast<std::ptrdiff_t>(n), [&](const BlockInfo& before) {
        const std::vector<std::string> readers = s_.consumers(before.name);
        return std::find(readers.begin(), readers.end(), blocks_[n].name) != readers.end();
      });
      if (!is_read) return false;
    }
    return true;
  }

  // Which of a block's axes the rows have: the leading ones that all blocks have, or those along which maps read what is made for rows.
  bool find_shared_axes() {
    if (!find_leading_axes() && !find_axes_of_sums()) return false;
    for (size_t n : row_axes_[0])
      count_ *= blocks_[0].axes[n].extent;
    return true;
  }

  // The leading axes that all blocks have. The others of a reduction have to be reduced.
  bool find_leading_axes() {
    const BlockInfo& first = blocks_[0];
    auto all_have = [&](size_t n) {
      return std::all_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
        return n < b.axes.size() && !b.axes[n].is_reduce && b.axes[n].extent == first.axes[n].extent;
      });
    };
    size_t shared = 0;
    while (shared < first.axes.size() && all_have(shared))
      ++shared;
    std::vector<size_t> leading(shared);
    std::iota(leading.begin(), leading.end(), size_t{0});
    row_axes_.assign(blocks_.size(), leading);
    return std::all_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
      // Nothing but a row.
      if (b.is_reduction && shared == 0 && b.spatial != 1) return false;
      return b.is_reduction ? all_reduced(b, shared) : reads_rows_along(b, shared);
    });
  }

  // Of few rows, that no map has so many more elements than the sums that it has work for many blocks.
  bool are_maps_as_long() const {
    return std::all_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
      return b.is_reduction || parts_of_rows(count_, b.spatial / count_, gpu_) == 1 || b.spatial / count_ <= longest_;
    });
  }

  // Whether what the map reads of each row is another one's along each of its first axes.
  bool reads_rows_along(const BlockInfo& info, size_t axes) const {
    int64_t rows = 1;
    for (size_t n = 0; n < axes; ++n)
      rows *= info.axes[n].extent;
    return std::all_of(info.loads.begin(), info.loads.end(), [&](const Access& l) {
      const bool is_of_rows = std::any_of(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) {
        return b.spatial == rows && b.store.buffer.same_as(l.buffer);
      });
      for (size_t n = 0; is_of_rows && n < axes; ++n) {
        if (l.strides[n] == 0 && info.axes[n].extent > 1) return false;
      }
      return true;
    });
  }

  // The block's axes as its analysis has them: without the steps that it is under.
  std::vector<Axis> axes_of(const std::string& block) const {
    std::vector<Axis> axes = s_.find_block(block)->axes;
    std::erase_if(axes, [](const Axis& axis) { return axis.kind == AxisKind::scan; });
    return axes;
  }

  bool all_reduced(const BlockInfo& info, size_t from) const {
    const std::vector<Axis> axes = axes_of(info.name);
    return std::all_of(axes.begin() + static_cast<std::ptrdiff_t>(from), axes.end(),
                       [](const Axis& axis) { return axis.kind == AxisKind::reduce; });
  }

  // The axes of the first sum, which stand elsewhere among those of the blocks that read it.
  bool find_axes_of_sums() {
    const BlockInfo& sum = blocks_[0];
    if (!sum.is_reduction) return false;
    size_t rank = 0;
    while (rank < sum.axes.size() && !sum.axes[rank].is_reduce)
      ++rank;
    row_axes_.clear();
    for (const BlockInfo& b : blocks_) {
      std::vector<size_t> axes;
      for (size_t k = 0; k < rank; ++k) {
        for (size_t n = 0; n < b.axes.size(); ++n) {
          const bool is_of_row = b.axes[n].extent == sum.axes[k].extent && !b.axes[n].is_reduce && moves_along(b, n, sum.store.strides[k]);
          if (is_of_row) axes.push_back(n);
        }
      }
      if (rank == 0 || axes.size() != rank || (b.is_reduction && (axes.back() + 1 != rank || !all_reduced(b, rank)))) return false;
      row_axes_.push_back(axes);
    }
    return true;
  }

  // Whether what the block has of each row, or reads of what others make for each, lies so far apart along its axis.
  bool moves_along(const BlockInfo& info, size_t axis, int64_t stride) const {
    if (info.store.buffer.shape().size() == blocks_[0].store.buffer.shape().size()) return info.store.strides[axis] == stride;
    return std::any_of(info.loads.begin(), info.loads.end(), [&](const Access& l) {
      const bool is_of_group = std::any_of(blocks_.begin(), blocks_.end(),
                                           [&](const BlockInfo& b) { return b.store.buffer.same_as(l.buffer); });
      return is_of_group && l.strides[axis] == stride;
    });
  }

  // The shared axes become axis "row" of each block; what reductions reduce becomes "k", what is left of the others "i".
  void name_axes() {
    for (size_t n = 0; n < blocks_.size(); ++n) {
      const BlockInfo& b = blocks_[n];
      std::vector<std::string> row, rest;
      const std::vector<Axis> axes = axes_of(b.name);
      for (size_t axis : row_axes_[n])
        row.push_back(axes[axis].var.name());
      for (const Axis& axis : axes) {
        if (std::find(row.begin(), row.end(), axis.var.name()) == row.end()) rest.push_back(axis.var.name());
      }
      must_step(d_, FuseAxes{b.name, row, "row"});
      if (!rest.empty()) must_step(d_, FuseAxes{b.name, rest, b.is_reduction ? "k" : "i"});
      if (!row_axes_[n].empty() && row_axes_[n][0] != 0) must_step(d_, Reorder{{b.name + ".row", b.name + ".i"}});
      if (!d_.refusal) return;
    }
  }

  // Whether so many rows that follow each other are whole ranges of the shared axes.
  bool is_box(int64_t rows) const {
    for (size_t n = row_axes_[0].size(); n-- > 0;) {
      const int64_t extent = blocks_[0].axes[n].extent;
      if (extent % rows == 0) return true;
      if (rows % extent != 0) return false;
      rows /= extent;
    }
    return rows == 1;
  }

  // Threads along the row: so many that each has some elements; more when there are few rows.
  void choose_threads() {
    const std::string& name = blocks_[root_].name;
    int64_t per_thread = count_ >= 4 * gpu_.multiprocessors ? 8 : 2, along = gpu_.warp;
    while (along < 512 && along * per_thread < longest_)
      along *= 2;
    // No more than have as many elements then: of 768 elements 384 threads have two each.
    const int64_t turns = ceil_div64(longest_, along);
    along = round_up64(ceil_div64(longest_, turns), gpu_.warp);
    std::vector<int64_t> options{gpu_.warp};
    while (options.back() * 2 <= gpu_.threads_per_block && options.back() < longest_)
      options.push_back(options.back() * 2);
    if (const auto next = std::lower_bound(options.begin(), options.end(), along); next == options.end() || *next != along)
      options.insert(next, along);
    threads_ = options.size() == 1 ? along : d_.decide.choose(name + ".threads", options, along);
    if (in_steps_) return;
    int64_t rows = 1;
    while (rows * threads_ < 128 && is_box(2 * rows) && count_ / (2 * rows) >= gpu_.multiprocessors)
      rows *= 2;
    options = {1};
    while (2 * options.back() * threads_ <= gpu_.threads_per_block / 2 && is_box(2 * options.back()))
      options.push_back(2 * options.back());
    rows_ = options.size() == 1 ? rows : d_.decide.choose(name + ".rows", options, rows);
  }

  // All blocks under the root's loop over rows.
  void gather_rows() {
    const std::string root = blocks_[root_].name;
    must_step(d_, Split{root + ".row", {0, rows_}, {root + ".row.b", root + kRow}});
    host_ = root + ".row.b";
    must_step(d_, Bind{host_, "block.x"});
    // Later ones first: they may read earlier ones, too.
    for (size_t n = root_ + 1; n < blocks_.size(); ++n)
      must_step(d_, ReverseComputeAt{blocks_[n].name, host_});
    for (size_t n = root_; n-- > 0;)
      must_step(d_, ComputeAt{blocks_[n].name, host_});
  }

  // The same where they follow each other already.
  void join_rows() {
    std::vector<std::string> loops;
    for (const BlockInfo& block : blocks_) {
      loops.push_back(block.name + ".row.b");
      must_step(d_, Split{block.name + ".row", {0, rows_}, {loops.back(), block.name + kRow}});
    }
    host_ = blocks_[root_].name + ".rows";
    must_step(d_, FuseSiblings{loops, host_});
    must_step(d_, Bind{host_, "block.x"});
  }

  // Splits loop `name` of the block between the threads; the loops in the order thread, turn.
  bool spread(const std::string& loop) {
    must_step(d_, Split{loop, {0, threads_}, {loop + ".n", loop + ".t"}});
    return static_cast<bool>(d_.refusal);
  }

  // has_split_row: its loop over rows is split, one part of it that over blocks of threads.
  void map(const BlockInfo& info, bool is_closed, bool has_split_row) {
    const std::string row = info.name + (has_split_row ? kRow : ".row"), element = info.name + ".i";
    const Buffer result = info.store.buffer;
    if (s_.find_loop(element) == nullptr) {
      // One value a row: each thread computes it for itself.
      must_step(d_, Bind{row, "thread.y"});
      if (is_closed) scopes_.emplace_back(result.name(), "local");
      return;
    }
    if (!spread(element)) return;
    must_step(d_, Reorder{{row, element + ".t", element + ".n"}});
    must_step(d_, Bind{row, "thread.y"});
    must_step(d_, Bind{element + ".t", "thread.x"});
    if (is_closed) keep(info);
    unroll(element + ".n");
  }

  // A thread's elements of a row: each has a register of its own where no index is a variable.
  void unroll(const std::string& loop) {
    int64_t turns = 0;
    const For* found = s_.find_loop(loop);
    if (found != nullptr && as_int(found->extent, &turns) && turns <= kInRegisters) try_step(d_, Unroll{loop});
  }

  // Elements that only the thread that made them reads, in registers; others in shared memory.
  void keep(const BlockInfo& info) {
    const Buffer& b = info.store.buffer;
    int64_t extent = info.spatial / count_, turns = (extent + threads_ - 1) / threads_;
    int64_t bytes = rows_ * extent * byte_size(b.element());
    size_t last = b.shape().size() - 1;
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

  void reduce(const BlockInfo& info, bool is_closed) {
    const std::string name = info.name, k = name + ".k", part = name + ".part";
    if (!spread(k)) return;
    must_step(d_, Rfactor{name, k + ".t", part, 0});
    if (!d_.refusal) return;
    // The parts: loops row, t, n.
    std::vector<std::string> loops = below_host(part);
    std::string row, thread, turn, idle;  // idle: a single turn, of more threads than elements
    for (const std::string& loop : loops) {
      AxisKinds kinds = axes_bound_to(*s_.find_block(part), s_.find_loop(loop)->var);
      if (kinds.reduce) {
        turn = loop;
      } else if (loop.find(k + ".t") != std::string::npos) {
        thread = loop;
      } else if (kinds.spatial) {
        row = loop;
      } else if (loop.ends_with(".n")) {
        idle = loop;
      }
    }
    std::vector<std::string> order;
    for (const std::string& loop : {row, thread, turn, idle}) {
      if (!loop.empty()) order.push_back(loop);
    }
    if (order.size() > 1) must_step(d_, Reorder{order});
    if (!row.empty()) must_step(d_, Bind{row, "thread.y"});
    must_step(d_, Bind{thread, "thread.x"});
    if (!turn.empty()) {
      must_step(d_, DecomposeReduction{part, turn});
      unroll(turn);
    }
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
    if (is_closed) scopes_.emplace_back(info.store.buffer.name(), "local");
  }

  std::vector<std::string> below_host(const std::string& block) const {
    std::vector<std::string> loops = s_.loop_names_of(block);
    auto at = std::find(loops.begin(), loops.end(), host_);
    if (at == loops.end()) return {};
    return {at + 1, loops.end()};
  }

  static constexpr const char* kRow = ".row.t";  // of a block of threads

  Draft& d_;
  Schedule& s_;
  const Gpu& gpu_;
  std::vector<std::string> names_;
  const bool in_steps_;
  std::vector<BlockInfo> blocks_;
  std::vector<bool> closed_;  // of each block: whether its result is for the others only
  size_t root_ = 0;                            // the block with the loop over rows
  std::vector<std::vector<size_t>> row_axes_;  // of each block, in the order of the first, whose axes they lead
  int64_t longest_ = 0, count_ = 1, threads_ = 32, rows_ = 1;
  std::string host_;
  std::vector<std::pair<std::string, std::string>> scopes_;  // set when all is bound
};

}  // namespace

void divide_grid_rows(Draft& draft) {
  Schedule& s = draft.schedule;
  for (const std::string& name : s.block_names()) {
    const std::vector<const For*> loops = s.loops_of(name);
    const bool is_free = std::all_of(loops.begin(), loops.end(), [](const For* l) { return l->loop == LoopKind::serial; });
    std::optional<BlockInfo> info = is_free ? analyze(s, name) : std::nullopt;
    if (!info || info->is_nested || info->is_contraction || !is_row_reduction(s, *info, draft.target.gpu)) continue;
    const int64_t parts = parts_of_rows(info->spatial, info->reduce, draft.target.gpu);
    if (parts == 1 || draft.decide.choose(name + ".parts", {1, parts}, parts) == 1) continue;
    try_all(draft, {"rows in parts", name, "a row by one block"}, [&] {
      std::vector<std::string> reduced;
      for (const Axis& axis : s.find_block(name)->axes) {
        if (axis.kind == AxisKind::reduce) reduced.push_back(axis.var.name());
      }
      const std::string all = name + ".row_all", part = name + ".row_part", element = name + ".row_element";
      must_step(draft, FuseAxes{name, reduced, "row_all"});
      must_step(draft, Split{all, {parts, 0}, {part, element}});
      must_step(draft, Rfactor{name, part, name + ".parts", 0});
      return static_cast<bool>(draft.refusal);
    });
  }
}

bool schedule_grid_rows(Draft& draft, const std::vector<std::string>& blocks, bool in_steps) {
  if (!draft.refusal) return false;
  const Schedule before = draft.schedule;
  GridRows rows(draft, blocks, in_steps);
  if (rows.find() && try_all(draft, {"reductions along rows", rows.block()}, [&] { return rows.run(); })) return true;
  draft.schedule = before;
  return false;
}

}  // namespace mcc::tuner
