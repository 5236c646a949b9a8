// Products of one row, or two, on a GPU (a step of a language model), which wait for weights that lie along the sum, numbers of few bits or of
// 16: warps along the sum.
//
//   bound i @{block.y}: bound j.b @{block.x}                         a row, some columns
//     bound j.w @{thread.y}: bound k.t @{thread.x}: for k.n:          each thread some words, which it asks for at once, of every part
//       unrolled j.c: the numbers of these words, unrolled            of the sum, unpacked in registers,
//         unrolled k.v: a thread's part of column j.c                 times those of the row, which all columns share
//     unrolled j.c: bound j.w @{thread.y}: bound k.t @{thread.x}      the threads of a warp combine their parts (shuffles)
//     bound j @{thread.x}                                             the elementwise consumer
#include <algorithm>
#include <bit>
#include <utility>

#include "tensor/grid.h"
#include "tensor/instructions.h"
#include "tensor/schedule/tree.h"
#include "tensor/schedule/weight_order.h"
#include "tuner/grid_product.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// More share what is read: tiles. So do two with tensor cores, but where they stand for one of open sizes.
constexpr int64_t kMostRows = 2;
constexpr int64_t kMostNumbers = 32, kBytesAtOnce = 16;  // of a column that a thread asks for at once

struct FewRows {
  std::string unpacks;  // the block that makes numbers of words; empty where these are numbers
  std::string words;    // the buffer that has them; empty where none has
  std::string k;        // the loop along the sum
  int64_t columns = 1, depth = 1;
  int64_t numbers = 1;  // of a thread's words
};

// What there is of the weights that the block reads: words that another block unpacks for it alone, or numbers of 16 bits.
std::optional<FewRows> weights_of(const Schedule& s, const BlockInfo& info, const Access& w) {
  FewRows out;
  if (bit_width(w.buffer.element()) == 16 && is_weight(s.func(), w.buffer)) {
    out.words = w.buffer.name();
    out.numbers = kBytesAtOnce / byte_size(w.buffer.element());
    return out;
  }
  for (const std::string& unpacks : unpacked_for(s, info)) {
    const std::optional<BlockInfo> made = analyze(s, unpacks);
    if (!made->store.buffer.same_as(w.buffer)) continue;
    out.unpacks = unpacks;
    for (const Access& l : made->loads) {
      const int64_t count = count_of(l.buffer);
      if (l.buffer.element() != ElementType::u32 || count == 0) continue;
      const auto in_word = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(made->spatial / count)));
      out.words = l.buffer.name();
      out.numbers = std::min(kMostNumbers, kBytesAtOnce / byte_size(ElementType::u32) * in_word);
    }
    return out;
  }
  return std::nullopt;
}

std::optional<FewRows> as_few_rows(const Draft& draft, const BlockInfo& info) {
  const Schedule& s = draft.schedule;
  if (!info.is_contraction || info.is_nested || info.loads.size() != 2 ||
      info.store.buffer.element() != ElementType::f32)
    return std::nullopt;
  const std::optional<SumAxes> axes = sum_axes(info);
  if (!axes || info.axes[axes->column].extent < 2) return std::nullopt;
  const bool is_first = info.loads[0].strides[axes->column] != 0;
  const Access &w = info.loads[is_first ? 0 : 1], &x = info.loads[is_first ? 1 : 0];
  int64_t rows = 1;
  for (size_t row : axes->rows) {
    if (w.strides[row] != 0) return std::nullopt;
    rows *= info.axes[row].extent;
  }
  if (rows > kMostRows || w.strides[axes->reduce] != 1 || x.strides[axes->reduce] != 1 ||
      x.strides[axes->column] != 0)
    return std::nullopt;
  const bool are_for_tensor_cores =
      bit_width(w.buffer.element()) == 16 && multiplies_matrices(draft.target.gpu, w.buffer.element());
  if (rows > 1 && are_for_tensor_cores && draft.open_loops.empty()) return std::nullopt;
  std::optional<FewRows> out = weights_of(s, info, w);
  if (!out) return std::nullopt;
  out->k = info.axes[axes->reduce].loop;
  out->columns = info.axes[axes->column].extent;
  out->depth = info.axes[axes->reduce].extent;
  while (out->numbers > 1 && out->depth % out->numbers != 0)
    out->numbers /= 2;
  const bool is_long = out->numbers > 1 && out->depth >= 2 * out->numbers;
  return is_long ? out : std::nullopt;
}

class GridFewRows {
 public:
  GridFewRows(Draft& draft, const std::string& block, const FewRows& product)
      : d_(draft),
        s_(draft.schedule),
        block_(block),
        part_(block + ".part"),
        words_(block + ".words"),
        p_(product) {}

  bool run() {
    if (epilogue_of(s_, block_).empty())
      must_step(d_, CacheWrite{block_, only_buffer_written(*s_.find_block(block_)).name(), "global",
                               block_ + ".out"});
    take_ = epilogue_of(s_, block_);
    if (take_.empty()) return false;
    choose();
    if (!divide() || !place_parts() || !place_sums()) return false;
    place_results();
    if (!p_.unpacks.empty())
      must_step(d_, SetScope{only_buffer_written(*s_.find_block(p_.unpacks)).name(), "local"});
    if (s_.find_block(words_) != nullptr) must_step(d_, SetScope{words_, "local"});
    must_step(d_, SetScope{part_, "local"});
    must_step(d_, SetScope{sums_.name(), "shared"});
    return static_cast<bool>(d_.refusal);
  }

 private:
  // Threads along the sum as far as these have words; as many columns a thread as leave enough blocks.
  void choose() {
    const Gpu& gpu = d_.target.gpu;
    const auto shares = static_cast<uint64_t>(std::max<int64_t>(p_.depth / p_.numbers, 1));
    threads_ = std::min<int64_t>(gpu.warp, static_cast<int64_t>(std::bit_ceil(shares)));
    // A block's columns, where there are fewer, would not be so many.
    auto from_to = [](int64_t least, int64_t most, int64_t columns) {
      std::vector<int64_t> options;
      for (int64_t n = least; n <= std::min(most, columns); n *= 2)
        options.push_back(n);
      return options;
    };
    constexpr int64_t kFewestWarps = 2, kWarps = 4, kMostWarps = 8, kMostEach = 4;
    const std::vector<int64_t> warps = from_to(kFewestWarps, kMostWarps, p_.columns);
    warps_ = warps.size() == 1 ? kFewestWarps
                               : d_.decide.choose(block_ + ".warps", warps, std::min(kWarps, warps.back()));
    constexpr int64_t kBlocks = 2;  // for each multiprocessor
    const std::vector<int64_t> columns = from_to(1, kMostEach, p_.columns / warps_);
    int64_t each = columns.back();
    while (each > 1 && p_.columns < each * warps_ * kBlocks * gpu.multiprocessors)
      each /= 2;
    each_ = columns.size() == 1 ? 1 : d_.decide.choose(block_ + ".columns", columns, each);
  }

  // Blocks by the consumer's rows and columns, parts of the sum by threads.
  bool divide() {
    sums_ = only_buffer_written(*s_.find_block(block_));
    const std::optional<BlockInfo> info = analyze(s_, take_);
    if (!info) return false;
    const auto read = std::find_if(info->loads.begin(), info->loads.end(),
                                   [&](const Access& l) { return l.buffer.same_as(sums_); });
    if (read == info->loads.end()) return false;
    std::string column;
    std::vector<std::string> rows;
    for (size_t n = 0; n < info->axes.size(); ++n) {
      if (read->strides[n] == 1 && info->axes[n].extent == p_.columns && column.empty()) {
        column = info->axes[n].loop;
      } else {
        rows.push_back(info->axes[n].loop);
      }
    }
    if (column.empty()) return false;
    host_ = take_ + ".b";
    must_step(d_, Split{column, {0, warps_, each_}, {host_, take_ + ".w", take_ + ".j"}});
    std::vector<std::string> order = rows;
    order.insert(order.end(), {host_, take_ + ".w", take_ + ".j"});
    must_step(d_, Reorder{order});
    const std::string row = rows.size() == 1 ? rows[0] : take_ + ".i";
    if (rows.size() > 1) must_step(d_, Fuse{rows, row});
    if (!rows.empty()) must_step(d_, Bind{row, "block.y"});
    must_step(d_, Bind{host_, "block.x"});
    if (!p_.words.empty())
      must_step(d_, CacheRead{p_.unpacks.empty() ? block_ : p_.unpacks, p_.words, "global", words_});
    const std::string share = block_ + ".k.t";
    must_step(d_, Split{p_.k, {0, threads_, p_.numbers}, {block_ + ".k.n", share, block_ + ".k.v"}});
    must_step(d_, Rfactor{block_, share, part_, 0});
    must_step(d_, ComputeAt{block_, host_});
    must_step(d_, ComputeAt{part_, host_});
    return static_cast<bool>(d_.refusal);
  }

  std::vector<std::string> below_host(const std::string& block) const {
    std::vector<std::string> loops = s_.loop_names_of(block);
    return {std::find(loops.begin(), loops.end(), host_) + 1, loops.end()};
  }

  // A loop of several iterations over the block's columns: by warps, and each of a warp's.
  std::vector<std::string> by_warps(const std::string& block, const std::string& column) {
    must_step(d_, Split{column, {warps_, each_}, {block + ".w", block + ".c"}});
    return {block + ".w", block + ".c"};
  }

  // A loop over results: that over columns, of which there is one, or one of a single iteration: the row.
  bool take_over_results(const std::string& loop, std::string& column,
                         std::vector<std::string>& single) const {
    if (is_int(s_.find_loop(loop)->extent, 1)) {
      single.push_back(loop);
      return true;
    }
    return std::exchange(column, loop).empty();
  }

  bool place_parts() {
    std::string thread, turn, number, column;
    std::vector<std::string> single;
    for (const std::string& loop : below_host(part_)) {
      const AxisKinds kinds = axes_bound_to(*s_.find_block(part_), s_.find_loop(loop)->var);
      if (kinds.reduce) {
        (loop.ends_with(".k.n") ? turn : number) = loop;
      } else if (loop.ends_with(".k.t")) {
        thread = loop;
      } else if (!take_over_results(loop, column, single)) {
        return false;
      }
    }
    if (thread.empty() || number.empty() || column.empty()) return false;
    const std::vector<std::string> columns = by_warps(part_, column);
    std::vector<std::string> order = single;
    order.insert(order.end(), {columns[0], thread});
    if (!turn.empty()) order.push_back(turn);
    order.insert(order.end(), {columns[1], number});
    must_step(d_, Reorder{order});
    must_step(d_, Bind{columns[0], "thread.y"});
    must_step(d_, Bind{thread, "thread.x"});
    must_step(d_, DecomposeReduction{part_, turn.empty() ? columns[1] : turn});
    if (!p_.unpacks.empty()) must_step(d_, ComputeAt{p_.unpacks, columns[1]});
    if (!d_.refusal) return false;
    ask_for_words(turn.empty() ? thread : turn);
    must_step(d_, Unroll{columns[1]});
    must_step(d_, Unroll{number});
    for (const std::string& block : {part_ + ".init", p_.unpacks}) {
      if (s_.find_block(block) == nullptr) continue;
      for (const std::string& loop : below_host(block)) {
        if (s_.find_loop(loop)->loop == LoopKind::serial && loop != turn) try_step(d_, Unroll{loop});
      }
    }
    return static_cast<bool>(d_.refusal);
  }

  // The words of all columns, before anything waits for one of them.
  void ask_for_words(const std::string& around) {
    if (s_.find_block(words_) == nullptr) return;
    must_step(d_, ComputeAt{words_, around});
    const std::vector<std::string> loops = s_.loop_names_of(words_);
    for (auto at = std::find(loops.begin(), loops.end(), around) + 1; d_.refusal && at < loops.end(); ++at) {
      if (at + 1 < loops.end() || !try_step(d_, Vectorize{*at})) try_step(d_, Unroll{*at});
    }
  }

  bool place_sums() {
    std::string share, column;
    std::vector<std::string> single;
    for (const std::string& loop : below_host(block_)) {
      if (axes_bound_to(*s_.find_block(block_), s_.find_loop(loop)->var).reduce) {
        share = loop;
      } else if (!take_over_results(loop, column, single)) {
        return false;
      }
    }
    if (share.empty() || column.empty()) return false;
    const std::vector<std::string> columns = by_warps(block_, column);
    std::vector<std::string> order = single;
    order.insert(order.end(), {columns[1], columns[0], share});
    must_step(d_, Reorder{order});
    must_step(d_, Bind{columns[0], "thread.y"});
    must_step(d_, DecomposeReduction{block_, columns[1]});
    must_step(d_, Bind{share, "thread.x"});
    must_step(d_, Unroll{columns[1]});
    return static_cast<bool>(d_.refusal);
  }

  // All by the first warp.
  void place_results() {
    const std::string all = take_ + ".all";
    must_step(d_, Fuse{{take_ + ".w", take_ + ".j"}, all});
    must_step(d_, Split{all, {0, threads_}, {take_ + ".n", take_ + ".t"}});
    must_step(d_, Reorder{{take_ + ".t", take_ + ".n"}});
    must_step(d_, Bind{take_ + ".t", "thread.x"});
  }

  Draft& d_;
  Schedule& s_;
  const std::string block_, part_, words_;
  const FewRows p_;
  std::string take_, host_;
  int64_t threads_ = 32, warps_ = 4, each_ = 4;
  Buffer sums_;
};

}  // namespace

bool schedule_grid_few_rows(Draft& draft, const std::string& block) {
  const std::optional<BlockInfo> info = analyze(draft.schedule, block);
  const std::optional<FewRows> product = info && draft.refusal ? as_few_rows(draft, *info) : std::nullopt;
  if (!product) return false;
  return try_all(draft, {"products of few rows", block},
                 [&] { return GridFewRows(draft, block, *product).run(); });
}

}  // namespace mcc::tuner
