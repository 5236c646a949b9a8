// Products of bytes with a few rows on a GPU (a classifier's head, a step of a decoder), which wait for the weights: panels of four
// columns, whose words of four bytes along the sum lie one behind the other, by dot products (dp4a).
//
//   bound j.b @{block.x}                                   four columns
//     bound t @{thread.x}: for k.n: for i:                  each thread every n-th word of them, 16 bytes at once, for all rows
//       a dot product of the row's word and of four columns
//     bound t @{thread.x}: for i: for j                      the threads combine their parts (shuffles)
//     bound i, j @{thread.x}                                 the elementwise consumer
#include <algorithm>

#include "tensor/grid.h"
#include "tensor/instructions.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kColumns = 4, kBytes = 4, kMostRows = 8, kFewestThreads = 16;

// The most threads that share out so many words evenly, a power of two.
int64_t shares(int64_t words) { return words & -words; }

struct ByteRows {
  std::string k;  // the loop over words
  int64_t rows = 1, columns = 1, words = 1;
  const Instruction* instruction = nullptr;
};

std::optional<ByteRows> as_byte_rows(const BlockInfo& info, const Target& target) {
  if (!info.is_contraction || info.is_nested || info.loads.size() != 2 || info.axes.size() < 3 || info.axes.size() > 4 ||
      info.store.buffer.element() != ElementType::i32)
    return std::nullopt;
  const size_t byte = info.axes.size() - 1, k = byte - 1;
  for (size_t n = 0; n < info.axes.size(); ++n) {
    if (info.axes[n].is_reduce != (n >= k)) return std::nullopt;
  }
  ByteRows p;
  std::optional<size_t> column, row;
  for (size_t n = 0; n < k; ++n)
    (info.store.strides[n] == 1 ? column : row) = n;
  if (!column || (row && *column < *row) || info.axes[byte].extent != kBytes) return std::nullopt;
  const bool first_moves = info.loads[0].strides[*column] != 0;
  const Access &w = info.loads[first_moves ? 0 : 1], &a = info.loads[first_moves ? 1 : 0];
  auto are = [&](const Access& access, int64_t by_column, int64_t by_word) {
    return access.strides[*column] == by_column && access.strides[k] == by_word && access.strides[byte] == 1;
  };
  if (!are(w, kBytes, kBytes * kColumns) || !are(a, 0, kBytes) || w.buffer.element() != ElementType::i8) return std::nullopt;
  if (row && (w.strides[*row] != 0 || a.strides[*row] % kBytes != 0)) return std::nullopt;
  p.instruction = dot_instruction(target, a.buffer.element());
  p.rows = row ? info.axes[*row].extent : 1;
  p.columns = info.axes[*column].extent;
  p.words = info.axes[k].extent;
  if (!p.instruction || p.rows > kMostRows || p.columns % kColumns != 0 || shares(p.words) < kFewestThreads) return std::nullopt;
  p.k = info.axes[k].loop;
  return p;
}

class GridByteRows {
 public:
  GridByteRows(Draft& draft, const std::string& block, const ByteRows& product)
      : d_(draft), s_(draft.schedule), block_(block), part_(block + ".part"), p_(product) {}

  bool run() {
    if (epilogue_of(s_, block_).empty())
      must_step(d_, CacheWrite{block_, only_buffer_written(*s_.find_block(block_)).name(), "global", block_ + ".out"});
    take_ = epilogue_of(s_, block_);
    if (take_.empty()) return false;
    const std::string host = divide();
    if (host.empty()) return false;
    if (!place_parts(host) || !place_sums(host)) return false;
    place_results(host);
    must_step(d_, SetScope{part_, "local"});
    must_step(d_, SetScope{sums_.name(), "shared"});
    return static_cast<bool>(d_.refusal);
  }

 private:
  // So many that each has some words, and that the multiprocessors are busy.
  int64_t choose_threads() {
    constexpr int64_t kWords = 4;
    const Gpu& gpu = d_.target.gpu;
    const int64_t blocks = p_.columns / kColumns, wanted = int64_t{gpu.multiprocessors} * gpu.threads_per_multiprocessor / 2;
    // No condition stands in the sum: threads have the same number of words.
    std::vector<int64_t> options{std::min(int64_t{gpu.warp}, shares(p_.words))};
    while (options.back() * 2 <= gpu.threads_per_block / 2 && shares(p_.words) % (2 * options.back()) == 0)
      options.push_back(options.back() * 2);
    int64_t threads = options[0];
    while (2 * threads <= options.back() && 2 * threads * kWords <= p_.words && blocks * threads < wanted)
      threads *= 2;
    return options.size() == 1 ? threads : d_.decide.choose(block_ + ".threads", options, threads);
  }

  // Blocks by the columns of the consumer, parts of the sum by threads. The loop over blocks.
  std::string divide() {
    sums_ = only_buffer_written(*s_.find_block(block_));
    std::optional<BlockInfo> info = analyze(s_, take_);
    if (!info) return "";
    const auto read = std::find_if(info->loads.begin(), info->loads.end(), [&](const Access& l) { return l.buffer.same_as(sums_); });
    if (read == info->loads.end()) return "";
    std::string column;
    std::vector<std::string> rows;
    for (size_t n = 0; n < info->axes.size(); ++n) {
      if (read->strides[n] == 1 && info->axes[n].extent == p_.columns) {
        column = info->axes[n].loop;
      } else {
        rows.push_back(info->axes[n].loop);
      }
    }
    if (column.empty()) return "";
    const std::string host = take_ + ".b", lane = take_ + ".j";
    must_step(d_, Split{column, {0, kColumns}, {host, lane}});
    rows.insert(rows.begin(), host);
    rows.push_back(lane);
    must_step(d_, Reorder{rows});
    must_step(d_, Bind{host, "block.x"});
    const std::string thread = block_ + ".k.t";
    threads_ = choose_threads();
    must_step(d_, Split{p_.k, {0, threads_}, {block_ + ".k.n", thread}});
    must_step(d_, Rfactor{block_, thread, part_, 0});
    must_step(d_, ComputeAt{block_, host});
    must_step(d_, ComputeAt{part_, host});
    return d_.refusal ? host : "";
  }

  std::vector<std::string> below(const std::string& block, const std::string& host) const {
    std::vector<std::string> loops = s_.loop_names_of(block);
    return {std::find(loops.begin(), loops.end(), host) + 1, loops.end()};
  }

  // Loops thread, turn, row, column, byte.
  bool place_parts(const std::string& host) {
    std::string byte, thread, turn;
    std::vector<std::string> results;  // in the order of the block's axes: row, column
    for (const std::string& loop : below(part_, host)) {
      const AxisKinds kinds = axes_bound_to(*s_.find_block(part_), s_.find_loop(loop)->var);
      if (kinds.reduce) {
        (loop.ends_with(".k.n") ? turn : byte) = loop;
      } else if (loop.ends_with(".k.t")) {
        thread = loop;
      } else {
        results.push_back(loop);
      }
    }
    if (byte.empty() || thread.empty() || results.size() != (p_.rows > 1 ? 2U : 1U)) return false;
    std::vector<std::string> order{thread};
    if (!turn.empty()) order.push_back(turn);
    order.insert(order.end(), results.begin(), results.end());
    order.push_back(byte);
    must_step(d_, Reorder{order});
    must_step(d_, Bind{thread, "thread.x"});
    must_step(d_, DecomposeReduction{part_, turn.empty() ? order[1] : turn});
    must_step(d_, Tensorize{results.back(), p_.instruction->name});
    if (p_.rows > 1) must_step(d_, Unroll{results[0]});
    constexpr int64_t kStraight = 8;  // words
    int64_t turns = 0;
    if (!turn.empty() && as_int(s_.find_loop(turn)->extent, &turns) && turns * p_.rows <= 2 * kStraight) must_step(d_, Unroll{turn});
    for (const std::string& loop : below(part_ + ".init", host)) {
      if (!is_thread_loop(*s_.find_loop(loop))) must_step(d_, Unroll{loop});
    }
    return static_cast<bool>(d_.refusal);
  }

  bool place_sums(const std::string& host) {
    std::vector<std::string> results, order;
    std::string share;
    for (const std::string& loop : below(block_, host)) {
      if (axes_bound_to(*s_.find_block(block_), s_.find_loop(loop)->var).reduce) {
        share = loop;
      } else {
        results.push_back(loop);
      }
    }
    if (share.empty() || results.empty()) return false;
    order = results;
    order.push_back(share);
    must_step(d_, Reorder{order});
    must_step(d_, DecomposeReduction{block_, share});
    must_step(d_, Bind{share, "thread.x"});
    for (const std::string& loop : results)
      must_step(d_, Unroll{loop});
    return static_cast<bool>(d_.refusal);
  }

  // A thread for each: they take longer than to go by way of shared memory.
  void place_results(const std::string& host) {
    const std::vector<std::string> loops = below(take_, host);
    const std::string all = loops.size() > 1 ? take_ + ".all" : loops[0], thread = take_ + ".t";
    if (loops.size() > 1) must_step(d_, Fuse{loops, all});
    must_step(d_, Split{all, {0, threads_}, {take_ + ".n", thread}});
    must_step(d_, Bind{thread, "thread.x"});
  }

  Draft& d_;
  Schedule& s_;
  const std::string block_, part_;
  const ByteRows p_;
  std::string take_;
  int64_t threads_ = 32;
  Buffer sums_;
};

}  // namespace

bool schedule_grid_byte_rows(Draft& draft, const std::string& block) {
  const std::optional<BlockInfo> info = analyze(draft.schedule, block);
  const std::optional<ByteRows> product = info && draft.refusal ? as_byte_rows(*info, draft.target) : std::nullopt;
  if (!product) return false;
  return try_all(draft, {"products of bytes with few rows", block}, [&] { return GridByteRows(draft, block, *product).run(); });
}

}  // namespace mcc::tuner
