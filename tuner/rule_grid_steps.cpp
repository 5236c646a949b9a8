// Recurrences whose steps have enough to do for all multiprocessors (LSTM, GRU, RNN): the host carries out the loop over steps, and each
// step is a launch, or one for each sum that waits for all of another one's results:
//
//   for t: bound b.o @{block.y}: bound c.o @{block.x}
//     bound gate, c.i @{thread.y}: bound k.t @{thread.x}: for k.n: unrolled b.i, k.v: a share of a sum, in registers
//     bound gate, c.i @{thread.y}: bound k.t @{thread.x}: for b.i: the sum of the shares, into shared memory
//     bound b.i, c.i @{thread.x}: what takes the sums: gates, cell, state
//
// What is found along rows in front of the first sum (a state's least and largest, by which it is rounded) is a launch of its own in each
// step, by the rule of rows.
//
// A warp reads a row of the weights, which lies along the sum, once for some rows of the batch. The alternative is one block of threads
// for each row of the batch (rule_grid_recurrence.cpp), which reads all weights in each step, and launches nothing.
#include <algorithm>

#include "support/text.h"
#include "tensor/grid.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kWarps = 8;     // of a block
constexpr int64_t kMostRows = 8;  // of the batch, that a thread has sums of
constexpr int64_t kVector = 4;    // neighbours along the sum that a thread loads at once
constexpr int64_t kMostLaunches = 8192;

// A block of a step: columns lie next to each other, rows (of the batch) do not.
struct StepBlock {
  std::string name;
  std::string column, row;  // axes; row: empty where there is one only
  int64_t columns = 1, rows = 1;
  int64_t depth = 0;  // of a sum
  double bytes = 0;   // that a step of one row reads
  bool is_sum() const { return depth > 0; }
};

// Blocks that one launch computes: a sum, and what takes its results at its own places.
struct Stage {
  std::vector<StepBlock> blocks;
  int64_t columns() const { return blocks.back().columns; }
  int64_t gates() const { return blocks.front().columns / columns(); }
};

std::optional<StepBlock> as_step_block(const Schedule& s, const std::string& name, const std::string& steps) {
  const std::vector<const For*> loops = s.loops_of(name);
  const Block& block = *s.find_block(name);
  const std::optional<BlockInfo> info = analyze(s, name);
  const bool is_plain = info && !loops.empty() && loops[0]->var.name() == steps &&
                        loops.size() == info->axes.size() + 1 && block.axes.size() == loops.size() &&
                        block.axes[0].kind == AxisKind::scan;
  if (!is_plain || info->element_bits != 32) return std::nullopt;
  StepBlock out;
  out.name = name;
  for (size_t n = 0; n < info->axes.size(); ++n) {
    const AxisInfo& axis = info->axes[n];
    const std::string axis_name = block.axes[n + 1].var.name();
    if (axis.is_reduce) {
      if (out.depth > 0 || n + 1 != info->axes.size()) return std::nullopt;
      out.depth = axis.extent;
    } else if (info->store.strides[n] == 1 && out.column.empty()) {
      out.column = axis_name;
      out.columns = axis.extent;
    } else if (axis.extent > 1) {
      if (!out.row.empty()) return std::nullopt;
      out.row = axis_name;
      out.rows = axis.extent;
    }
  }
  if (out.column.empty() || (!info->is_injective && !info->is_contraction)) return std::nullopt;
  for (const Access& load : info->loads) {
    double elements = 1;
    for (size_t n = 0; n < info->axes.size(); ++n)
      if (load.strides[n] != 0 && block.axes[n + 1].var.name() != out.row)
        elements *= static_cast<double>(info->axes[n].extent);
    out.bytes += 4 * elements;
  }
  return out;
}

// The blocks of a step in front of its first sum of products.
std::vector<std::string> leading_blocks(const Schedule& s, const std::string& steps) {
  std::vector<std::string> names;
  for (const BlockSite& site : block_sites(s.find_loop(steps)->body)) {
    const std::optional<BlockInfo> info = analyze(s, site.block->name);
    if (!info || info->is_contraction) break;
    names.push_back(site.block->name);
  }
  return names;
}

// The stages of a step behind the first so many blocks; empty where these are of another sort.
std::vector<Stage> stages_of(const Schedule& s, const std::string& steps, size_t leading) {
  std::vector<Stage> stages;
  for (const BlockSite& site : block_sites(s.find_loop(steps)->body)) {
    if (leading > 0) {
      --leading;
      continue;
    }
    const std::optional<StepBlock> block = as_step_block(s, site.block->name, steps);
    if (!block) return {};
    if (block->is_sum()) {
      stages.push_back({{*block}});
      continue;
    }
    // Followers of one stage have the same columns, by which the sum's can be counted.
    const bool fits = !stages.empty() && stages.back().blocks.front().columns % block->columns == 0 &&
                      (stages.back().blocks.size() == 1 || stages.back().columns() == block->columns) &&
                      stages.back().blocks.front().rows == block->rows;
    if (!fits) return {};
    stages.back().blocks.push_back(*block);
  }
  return stages;
}

// Microseconds of a step with a block of threads for each row: what it reads comes to one multiprocessor (an H200, weights of 1 MB:
// 41 us), or is in the cache that it has for itself, behind a few barriers.
double row_us(const std::vector<Stage>& stages, const Gpu& gpu) {
  constexpr double kBytesACycle = 13, kCachedBytesACycle = 40, kCached = 128 << 10, kBarriersUs = 1.5;
  double bytes = 0;
  for (const Stage& stage : stages)
    for (const StepBlock& block : stage.blocks)
      bytes += block.bytes;
  const auto rounds = static_cast<double>(ceil_div64(stages[0].blocks[0].rows, gpu.multiprocessors));
  return rounds * (kBarriersUs + bytes / (bytes < kCached ? kCachedBytesACycle : kBytesACycle) / (gpu.ghz * 1e3));
}

// With a launch for each stage, and so many others.
double launches_us(const std::vector<Stage>& stages, int64_t others, const Gpu& gpu) {
  constexpr double kProductsACycle = 32;  // of a multiprocessor whose warps fetch both factors
  double us = static_cast<double>(others) * gpu.launch_us;
  for (const Stage& stage : stages) {
    const StepBlock& sum = stage.blocks.front();
    const double products =
        static_cast<double>(sum.rows) * static_cast<double>(sum.columns) * static_cast<double>(sum.depth);
    us += gpu.launch_us + products / (kProductsACycle * gpu.multiprocessors * gpu.ghz * 1e3);
  }
  return us;
}

int64_t largest_divisor(int64_t n, int64_t most) {
  int64_t divisor = std::min(n, most);
  while (n % divisor != 0)
    --divisor;
  return divisor;
}

class LaunchStage {
 public:
  LaunchStage(Draft& draft, Stage stage)
      : d_(draft),
        s_(draft.schedule),
        stage_(std::move(stage)),
        sum_(stage_.blocks.front()),
        columns_(largest_divisor(stage_.columns(), std::max<int64_t>(kWarps / stage_.gates(), 1))),
        rows_(largest_divisor(sum_.rows, kMostRows)) {}

  bool run() {
    if (stage_.gates() > kWarps || sum_.depth < d_.target.gpu.warp) return false;
    divide_sum();
    if (!d_.refusal) return false;
    std::vector<std::string> names = {part_};
    for (const StepBlock& block : stage_.blocks)
      names.push_back(block.name);
    for (const std::string& name : names)
      make_tiles(name);
    const std::string host = join(names);
    if (!d_.refusal) return false;
    bind_shares();
    bind_sum();
    must_step(d_, SetScope{part_, "local"});
    for (size_t n = 1; n < stage_.blocks.size(); ++n)
      bind_follower(stage_.blocks[n].name);
    if (d_.refusal) keep_scratch(d_, host, "shared");
    return static_cast<bool>(d_.refusal);
  }

 private:
  // The loop that the axis is bound to.
  std::string loop_of(const std::string& block, const std::string& axis) const {
    const Block& b = *s_.find_block(block);
    for (size_t n = 0; n < b.axes.size(); ++n) {
      const auto* loop = b.axes[n].var.name() == axis ? b.values[n].as<VarNode>() : nullptr;
      if (loop) return loop->name;
    }
    return "";
  }
  bool has_gates() const { return stage_.gates() > 1; }
  bool has_rows() const { return !sum_.row.empty(); }

  // Columns by gates; shares of the sum by the lanes of a warp.
  void divide_sum() {
    if (has_gates()) {
      const Buffer result = only_buffer_written(*s_.find_block(sum_.name));
      must_step(d_, SplitAxis{sum_.name, sum_.column, stage_.columns(), kGate});
      const std::string rows = result.rank() > 1 ? "b, " : "", width = text(stage_.columns());
      must_step(d_, TransformLayout{result.name(),
                                    text("(", rows, "c) -> (", rows, "c // ", width, ", c %% ", width, ")")});
    }
    if (!d_.refusal) return;
    const std::string k = s_.loop_names_of(sum_.name).back();
    const int64_t warp = d_.target.gpu.warp;
    share_ = k + ".t";
    turn_ = k + ".n";
    if (sum_.depth % (warp * kVector) == 0) {
      vector_ = k + ".v";
      must_step(d_, Split{k, {0, warp, kVector}, {turn_, share_, vector_}});
    } else {
      must_step(d_, Split{k, {0, warp}, {turn_, share_}});
    }
    part_ = sum_.name + ".share";
    must_step(d_, Rfactor{sum_.name, share_, part_, 0});
  }

  // The block's columns, and its rows, in those of a launch's block of threads and inside of it.
  void make_tiles(const std::string& block) {
    if (!d_.refusal) return;
    std::vector<std::string> order;
    const std::string column = loop_of(block, column_of(block)),
                      row = has_rows() ? loop_of(block, row_of(block)) : "";
    if (has_rows()) {
      must_step(d_, Split{row, {0, rows_}, {block + ".b.o", block + ".b.i"}});
      order.push_back(block + ".b.o");
    }
    must_step(d_, Split{column, {0, columns_}, {block + ".c.o", block + ".c.i"}});
    order.push_back(block + ".c.o");
    if (has_rows()) order.push_back(block + ".b.i");
    if (!d_.refusal) return;
    const std::vector<std::string> loops = s_.loop_names_of(block);
    for (auto at = std::find(loops.begin(), loops.end(), steps()) + 1; at != loops.end(); ++at)
      if (std::find(order.begin(), order.end(), *at) == order.end()) order.push_back(*at);
    must_step(d_, Reorder{order});
  }
  std::string steps() const { return s_.loop_names_of(sum_.name)[0]; }
  // Of the shares' block as of the sum's.
  std::string column_of(const std::string& block) const {
    const auto at = std::find_if(stage_.blocks.begin(), stage_.blocks.end(),
                                 [&](const StepBlock& b) { return b.name == block; });
    return at == stage_.blocks.end() ? sum_.column : at->column;
  }
  std::string row_of(const std::string& block) const {
    const auto at = std::find_if(stage_.blocks.begin(), stage_.blocks.end(),
                                 [&](const StepBlock& b) { return b.name == block; });
    return at == stage_.blocks.end() ? sum_.row : at->row;
  }

  // All blocks below one loop over blocks of threads, which is returned.
  std::string join(const std::vector<std::string>& blocks) {
    std::string host;
    for (const auto& [suffix, axis] : {std::pair{".b.o", "block.y"}, {".c.o", "block.x"}}) {
      if (suffix == std::string(".b.o") && !has_rows()) continue;
      std::vector<std::string> loops;
      for (const std::string& block : blocks)
        loops.push_back(block + suffix);
      const std::string name = text(sum_.name, ".step", suffix);
      must_step(d_, FuseSiblings{loops, name});
      must_step(d_, Bind{name, axis});
      if (host.empty()) host = name;
    }
    return host;
  }

  void bind_shares() {
    const std::string row = has_rows() ? part_ + ".b.i" : "", gate = has_gates() ? loop_of(part_, kGate) : "";
    std::vector<std::string> order;
    if (!gate.empty()) order.push_back(gate);
    order.push_back(part_ + ".c.i");
    order.push_back(share_);
    order.push_back(turn_);
    if (!row.empty()) order.push_back(row);
    if (!vector_.empty()) order.push_back(vector_);
    must_step(d_, Reorder{order});
    const std::string warp = fuse_warps(part_, gate);
    must_step(d_, Bind{warp, "thread.y"});
    must_step(d_, Bind{share_, "thread.x"});
    must_step(d_, DecomposeReduction{part_, turn_});
    if (!vector_.empty()) must_step(d_, Vectorize{vector_});
    if (!row.empty()) try_step(d_, Unroll{row});
  }
  std::string fuse_warps(const std::string& block, const std::string& gate) {
    if (gate.empty()) return block + ".c.i";
    must_step(d_, Fuse{{gate, block + ".c.i"}, block + ".w"});
    return block + ".w";
  }

  void bind_sum() {
    const std::string row = has_rows() ? sum_.name + ".b.i" : "",
                      gate = has_gates() ? loop_of(sum_.name, kGate) : "";
    if (!d_.refusal) return;
    const std::string share = s_.loop_names_of(sum_.name).back();
    std::vector<std::string> order;
    if (!row.empty()) order.push_back(row);
    if (!gate.empty()) order.push_back(gate);
    order.push_back(sum_.name + ".c.i");
    order.push_back(share);
    must_step(d_, Reorder{order});
    const std::string warp = fuse_warps(sum_.name, gate);
    must_step(d_, DecomposeReduction{sum_.name, row.empty() ? warp : row});
    must_step(d_, Bind{warp, "thread.y"});
    must_step(d_, Bind{share, "thread.x"});
    must_step(d_, Bind{text(sum_.name, ".init.", suffix_of(warp)), "thread.y"});
  }
  std::string suffix_of(const std::string& loop) const {
    return loop.starts_with(sum_.name + ".") ? loop.substr(sum_.name.size() + 1) : loop;
  }

  // By the threads of one warp.
  void bind_follower(const std::string& block) {
    const std::string column = block + ".c.i", row = block + ".b.i", all = block + ".all",
                      lane = block + ".lane";
    if (has_rows()) must_step(d_, Fuse{{row, column}, all});
    must_step(d_, Split{has_rows() ? all : column, {0, d_.target.gpu.warp}, {block + ".turn", lane}});
    must_step(d_, Reorder{{lane, block + ".turn"}});
    must_step(d_, Bind{lane, "thread.x"});
  }

  static constexpr const char* kGate = "gate";

  Draft& d_;
  Schedule& s_;
  const Stage stage_;
  const StepBlock& sum_;
  const int64_t columns_, rows_;  // of a block of threads, of each gate
  std::string part_, share_, turn_, vector_;
};

}  // namespace

bool launch_steps(Draft& draft, const std::string& steps) {
  Schedule& s = draft.schedule;
  const Gpu& gpu = draft.target.gpu;
  const For* loop = s.find_loop(steps);
  int64_t count = 0;
  if (!as_int(loop->extent, &count)) return false;
  const std::vector<std::string> leading = leading_blocks(s, steps);
  const std::vector<Stage> stages = stages_of(s, steps, leading.size());
  const int64_t others = leading.empty() ? 0 : 1;
  if (stages.empty() || count * (static_cast<int64_t>(stages.size()) + others) > kMostLaunches) return false;
  constexpr double kWorthwhile = 0.8;  // launches are the driver's work, too
  const bool pays = launches_us(stages, others, gpu) < kWorthwhile * row_us(stages, gpu);
  if (draft.decide.choose(steps + ".launches", {0, 1}, pays ? 1 : 0) == 0) return false;
  return try_all(
      draft,
      {"steps of a recurrence as launches", stages[0].blocks[0].name, "a block of threads for each row"},
      [&] {
        if (!leading.empty() && !schedule_grid_rows(draft, leading, true)) return false;
        return std::all_of(stages.begin(), stages.end(),
                           [&](const Stage& stage) { return LaunchStage(draft, stage).run(); });
      });
}

}  // namespace mcc::tuner
