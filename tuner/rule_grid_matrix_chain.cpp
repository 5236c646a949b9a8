// Two products with rows between them (attention) as one launch of a GPU, on its tensor cores: what rule_grid_chain.cpp does,
// with the products as in rule_grid_matrix.cpp. 16-bit floats or tf32 are multiplied; scores and what is made of them are f32.
//
//   bound g @{block.y}: bound i.b @{block.x}
//     all threads: queries into shared memory
//     for panel of columns: for k.o: keys into shared memory; tiles of 16 x 8 for each warp; the scores, in shared memory
//     for each reduction along rows: 4 threads for each row
//     for k.o: exponentials, converted, and values into shared memory; tiles of 16 x 8 for each warp
//     the tiles, with their elementwise consumer
//
// Rows that are not too long a warp keeps to itself (Dao: FlashAttention-2, 2023): 16 each, whose scores stay in its registers. They lie
// there as the second product's left operand has to.
//
//     all threads: queries into shared memory
//     for k.o: keys into shared memory; tiles of 16 x 8 for each warp; the scores, in registers
//     for each reduction along rows: 4 threads for each row; the exponentials, in registers
//     for k.o: values into shared memory; exponentials converted; tiles of 16 x 8 for each warp
//     the tiles, with their elementwise consumer
//
// Parts of longer rows, which a recurrence puts together (mcc.Attention's `rolling`), it makes one after the other, so:
//
//     all threads: queries into shared memory; sums begin, in registers
//     for part: keys and values of the next part into shared memory, while
//       tiles of 16 x 8 for each warp: the scores, in registers; what is made of them, as above; tiles of 16 x 8: the part's product
//       the sums so far take the new maximum, and the part
//     the sums, with their elementwise consumer
#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/instructions.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/product_time.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_chain.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kRow = 16;  // bytes of a row that the instruction takes at a time
constexpr int64_t kVector = 2;  // neighbours in a row that a thread has of the sums, and reads and writes at once
constexpr int64_t kHeldStages = 2;  // of keys and values, where scores stay in registers

struct Tile {
  int64_t warps_i, warps_j;
  int64_t rows, columns;     // of a warp, in tiles of 16 and of 8; columns of the first product at a time
  int64_t depth_1, depth_2;  // of k at a time, of both
  int64_t held = 0;          // whether a warp has the scores of its rows in registers: all columns at a time
  int64_t block_i() const { return warps_i * rows * 16; }
  int64_t panel() const { return warps_j * columns * 8; }
  int64_t warps() const { return warps_i * warps_j; }
  int64_t width(const ProductChain& c) const { return round_up64(c.second.j.extent, warps_j * 8); }
};

int64_t shared_bytes(const Tile& t, const ProductChain& c) {
  const int64_t bytes = byte_size(c.first.factor);
  // Where there are more threads than rows, those of the reductions that have none count, too.
  const int64_t rows = std::max(t.block_i(), t.warps() * kWarpRows);
  const int64_t scores = rows * 4 * (round_up64(c.first.j.extent, 32) + kWarpColumns * kVector);
  const int64_t queries = t.block_i() * (round_up64(c.first.k.extent, t.depth_1) * bytes + kRow);
  const int64_t keys = t.panel() * (t.depth_1 * bytes + kRow);
  const int64_t part = t.block_i() * (t.depth_2 * bytes + kRow);
  const int64_t values = t.depth_2 * (t.width(c) * bytes + 2 * kRow);
  if (t.held) return queries + kHeldStages * (keys + values);
  return scores + queries + keys + part + values + 16 * rows;
}

HeldScores held_scores(const Tile& t, const ProductChain& c) {
  return {8 * t.columns, t.width(c), c.rolling.has_value()};
}

// Whether a thread's registers are enough for scores of its own. What is converted on its way to shared memory takes registers, too, the
// more the fewer threads there are.
bool are_held(const Tile& t, const ProductChain& c) {
  constexpr int64_t kMostConverted = 200;
  const HeldScores held = held_scores(t, c);
  auto is_converted = [&](const Operand& o) { return o.buffer.element() != c.first.factor; };
  if (!is_converted(c.first.b) && !is_converted(c.second.b))
    return held.fits(c.first.i.extent % t.block_i() == 0);
  return t.warps() > 1 && held.registers() <= kMostConverted;
}

// Whether the next keys and values are fetched beside the products. What cannot be copied asynchronously takes registers, too: single
// elements, which have places of their own, and all on older GPUs.
bool fetches_ahead(const Tile& t, const ProductChain& c, const Gpu& gpu) {
  constexpr int64_t kMost = 216, kRegister = 4, kOfElement = 3;
  auto registers = [&](const Operand& o, int64_t elements) {
    const int64_t each = ceil_div64(elements, t.warps() * gpu.warp), bytes = byte_size(c.first.factor);
    if (o.vector == 1 && bytes < kRegister) return kOfElement * each;
    return gpu.has_async_copies() ? 0 : ceil_div64(each * bytes, kRegister);
  };
  const int64_t keys = registers(c.first.b, t.panel() * t.depth_1),
                values = registers(c.second.b, t.depth_2 * t.width(c));
  return held_scores(t, c).registers() + (c.rolling ? keys + values : std::max(keys, values)) <= kMost;
}

// An estimate of time: cycles of a multiprocessor.
double score(const Tile& t, const ProductChain& c, const Gpu& gpu) {
  const int64_t m = c.first.i.extent, n = c.first.j.extent, d = c.first.k.extent;
  const int64_t bytes = byte_size(c.first.factor), threads = t.warps() * gpu.warp;
  const int64_t columns_2 = t.width(c) / (8 * t.warps_j), columns = std::max(t.columns, columns_2);
  const int64_t registers =
      t.held ? held_scores(t, c).registers() : 4 * t.rows * columns + 4 * t.rows + 2 * columns + 56;
  const int64_t shared = shared_bytes(t, c);
  constexpr int64_t kBeside = 32;  // registers of addresses, where sums take most of them: less than that spills
  const bool fits = t.held ? are_held(t, c) : registers + kBeside <= gpu.registers_per_thread;
  if (shared > gpu.shared_per_block_max || !fits) return INFINITY;
  const int64_t resident = std::min(
      {gpu.threads_per_multiprocessor / threads, gpu.registers_per_multiprocessor / (registers * threads),
       gpu.shared_per_multiprocessor / (shared + 1024), int64_t{gpu.blocks_per_multiprocessor}});
  if (resident < 1) return INFINITY;
  const double blocks = static_cast<double>(ceil_div64(m, t.block_i()) * c.first.g.extent);
  const double at_once = std::clamp(blocks / gpu.multiprocessors, 1.0, static_cast<double>(resident));
  const double busy = std::min(1.0, at_once * static_cast<double>(t.warps()) / 8);
  constexpr double kSharedBytes = 128, kMemoryBytes = 24;  // a cycle
  constexpr double kWait = 500;                            // cycles until the memory answers
  constexpr double kBegin = 80;                            // of barriers, and of what begins anew behind them
  // left: rows of the left operand that come by way of shared memory.
  auto product = [&](int64_t of_warp, int64_t width, int64_t all, int64_t depth, int64_t step, int64_t left) {
    const double steps = static_cast<double>(ceil_div64(depth, step) * (all / width));
    const double products =
        static_cast<double>(t.block_i() * width * step) * (bytes == 4 ? 2 : 1) / gpu.matrix_fmas;
    const int64_t of_left = left == 0 ? 0 : t.rows * 16;
    const double fragments = static_cast<double>(t.warps() * (of_left + of_warp * 8) * step * bytes);
    const double sides = static_cast<double>((width + left) * step * bytes);
    const double work = std::max(products / busy, (sides + fragments) / kSharedBytes),
                 fetched = sides / kMemoryBytes;
    // Copies that go on beside the products: the first one is waited for.
    if (t.held && steps > 1 && fetches_ahead(t, c, gpu))
      return steps * std::max(at_once * (std::max(work, fetched) + kBegin), kWait) + kWait;
    return steps * std::hypot(at_once * (work + fetched + kBegin), kWait);
  };
  const double first = product(t.columns, t.panel(), round_up64(n, t.panel()), d, t.depth_1, t.block_i());
  const double second = product(columns_2, t.width(c), t.width(c), n, t.depth_2, t.held ? 0 : t.block_i());
  const double row_work = t.held       ? 6
                          : bytes == 2 ? 14
                                       : 24;  // of a score: its maximum, two exponentials; one, and no memory
  const double idle = static_cast<double>(std::max<int64_t>(t.warps() * kWarpRows / t.block_i(), 1));
  const double rows = at_once * static_cast<double>(t.block_i() * n) * row_work / 128 * idle / busy;
  const double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  return rounds * static_cast<double>(c.first.p.extent) * (first + second + rows);
}

// Parts one after the other, each with all of its keys and values at once, which are fetched while the one before is multiplied.
std::vector<Tile> rolling_tiles(const ProductChain& c, const Gpu& gpu) {
  const int64_t step = 2 * kRow / byte_size(c.first.factor);
  std::vector<Tile> tiles;
  if (byte_size(c.first.factor) != 2) return tiles;
  for (int64_t warps_i : {1, 2, 4, 8}) {
    const int64_t n = c.first.j.extent;
    const Tile t{warps_i, 1, 1, ceil_div64(n, 8), round_up64(c.first.k.extent, step), round_up64(n, step), 1};
    if (c.first.i.extent % t.block_i() == 0 && std::isfinite(score(t, c, gpu))) tiles.push_back(t);
  }
  bring_best_first(tiles, [&](const Tile& t) { return score(t, c, gpu); });
  return tiles;
}

// All tiles that the GPU can run, the best first. Rows and columns make at least one whole tile.
std::vector<Tile> legal_tiles(const ProductChain& c, const Gpu& gpu) {
  if (c.rolling) return rolling_tiles(c, gpu);
  const int64_t row = kRow / byte_size(c.first.factor);
  std::vector<Tile> tiles;
  for (int64_t warps_i : {1, 2, 4}) {
    for (int64_t warps_j : {1, 2, 4}) {
      for (int64_t rows : {1, 2}) {
        for (int64_t columns : {1, 2, 4, 8}) {
          for (int64_t depth_1 : {2 * row, 4 * row, 8 * row, 16 * row}) {
            for (int64_t depth_2 : {2 * row, 4 * row, 8 * row}) {
              const Tile t{warps_i, warps_j, rows, columns, depth_1, depth_2};
              const bool is_sensible = t.warps() <= 8 && t.block_i() <= 128 &&
                                       (depth_1 == 2 * row || depth_1 < 2 * c.first.k.extent);
              const bool is_whole = t.block_i() <= c.first.i.extent && t.panel() <= c.first.j.extent;
              if (is_sensible && is_whole && std::isfinite(score(t, c, gpu))) tiles.push_back(t);
            }
          }
        }
      }
    }
  }
  // Rows that registers hold.
  for (int64_t warps_i : {1, 2, 4, 8}) {
    for (int64_t depth_1 : {2 * row, 4 * row, 8 * row, 16 * row}) {
      for (int64_t depth_2 : {2 * row, 4 * row, 8 * row}) {
        const Tile t{warps_i, 1, 1, ceil_div64(c.first.j.extent, 8), depth_1, depth_2, 1};
        const bool is_sensible =
            t.block_i() <= c.first.i.extent && (depth_1 == 2 * row || depth_1 < 2 * c.first.k.extent);
        if (row == 8 && is_sensible && std::isfinite(score(t, c, gpu))) tiles.push_back(t);
      }
    }
  }
  bring_best_first(tiles, [&](const Tile& t) { return score(t, c, gpu); });
  return tiles;
}

class GridMatrixChain : private ChainSchedule {
 public:
  GridMatrixChain(Draft& draft, const ProductChain& chain, const Tile& tile)
      : ChainSchedule(draft, chain, tile.block_i(),
                      {tile.warps(), kWarpRows, kWarpColumns, kVector, tile.held != 0}),
        t_(tile) {}

  bool run() {
    if (c_.rolling) return run_rolling();
    prepare();
    c_.second.a.is_along_k = true;  // what is computed lies as it suits
    operands(first_, c_.first, t_.panel(), t_.depth_1);
    operands(second_, c_.second, t_.width(c_), t_.depth_2);
    inline_maps();
    tile(second_, t_.width(c_) / (8 * t_.warps_j), t_.depth_2, true);
    host_ = second_.loop("i.b");
    if (second_.has_batch()) must_step(d_, Bind{second_.loop("g"), "block.y"});
    must_step(d_, Bind{host_, "block.x"});
    bind_threads(second_.loop("w"), second_.loop("i.l"), second_.loop("j.q"));
    if (!t_.held) make_part(t_.depth_2, kVector);
    must_step(d_, ComputeAt{second_.loop("b"), second_.loop("k.o")});
    fetch_side(second_, "b", c_.second.b, "j");
    if (t_.held) hold_part();
    write_back(second_.last(), host_);
    gather();
    if (t_.held) hold_rows();
    tile(first_, t_.columns, t_.depth_1, false);
    bind_threads(first_.loop("w"), first_.loop("i.l"), first_.loop("j.q"));
    fetch_side(first_, "a", c_.first.a, "i");
    must_step(d_, ComputeAt{first_.loop("b"), first_.loop("k.o")});
    fetch_side(first_, "b", c_.first.b, "j");
    write_back(first_.last(), first_.loop("j.b"));
    place_between([&](const std::string& map) { spread(map); });
    finish(first_, c_.first);
    finish(second_, c_.second);
    if (t_.held) {
      for (const auto& [buffer, scope] : scopes_)
        must_step(d_, SetScope{buffer, scope});
      // Nobody but the products uses shared memory.
      fetch_ahead({first_.loop("k.o"), second_.loop("k.o")});
      return static_cast<bool>(d_.refusal);
    }
    must_step(d_, SetScope{scores_, "shared"});
    // What four rows' threads read or write at once lies in different banks.
    must_step(d_, StorageAlign{scores_, 32, kWarpColumns * kVector});
    return static_cast<bool>(d_.refusal);
  }

 private:
  // The same below the steps of a recurrence.
  bool run_rolling() {
    prepare();
    c_.second.a.is_along_k = true;
    operands(first_, c_.first, t_.panel(), t_.depth_1);
    operands(second_, c_.second, t_.width(c_), t_.depth_2);
    inline_maps();
    must_step(d_, ComputeInline{second_.last()});
    roll();
    must_step(d_, ComputeAt{c_.second.block, host_});
    lead_with_batches(c_.second.block);
    tile(second_, t_.width(c_) / (8 * t_.warps_j), t_.depth_2, false);
    bind_threads(second_.loop("w"), second_.loop("i.l"), second_.loop("j.q"));
    must_step(d_, ComputeAt{second_.loop("b"), host_});
    fetch_side(second_, "b", c_.second.b, "j");
    hold_part();
    gather();
    hold_rows();
    tile(first_, t_.columns, t_.depth_1, false);
    bind_threads(first_.loop("w"), first_.loop("i.l"), first_.loop("j.q"));
    fetch_side(first_, "a", c_.first.a, "i");
    must_step(d_, ComputeAt{first_.loop("b"), host_});
    fetch_side(first_, "b", c_.first.b, "j");
    write_back(first_.last(), first_.loop("j.b"));
    place_between([&](const std::string& map) { spread(map); });
    finish(first_, c_.first);
    place_rolled([&](const std::string& block) { spread(block); });
    lay_out_sums(only_buffer_written(*s_.find_block(c_.rolling->elements)).name());
    finish(second_, c_.second);
    for (const auto& [buffer, scope] : scopes_)
      must_step(d_, SetScope{buffer, scope});
    fetch_ahead({host_});
    return static_cast<bool>(d_.refusal);
  }

  void fetch_ahead(const std::vector<std::string>& loops) {
    if (!fetches_ahead(t_, c_, d_.target.gpu)) return;
    for (const std::string& loop : loops)
      must_step(d_, Annotate{"", loop, kStages, text(kHeldStages)});
  }

  // As a product's sums are.
  void lay_out_sums(const std::string& buffer) {
    const std::string g = batch_indices(buffer, 2);
    must_step(d_, TransformLayout{buffer, text("(", g, "i, j) -> (", g, places("i", t_.block_i(), 16), ", ",
                                               places("j", t_.width(c_), 8),
                                               ", i %% 16 // 8, i %% 8, j %% 8 // 2, j %% 2)")});
  }

  int64_t row() const { return kRow / byte_size(c_.first.factor); }
  int64_t depth_of_instruction() const { return 2 * row(); }
  // Whether the operand is that of the rows, which all parts of the columns read.
  bool is_of_rows(const ChainProduct& p, const Operand& o) const {
    return &p == &first_ && &o == &c_.first.a;
  }
  // Whether the product's left operand is in registers.
  bool is_held(const ChainProduct& p) const { return t_.held && &p == &second_; }

  // Operands as they lie in memory, padded; sums as the instruction gives them to threads.
  void operands(ChainProduct& p, const Product& product, int64_t width, int64_t depth) {
    for (const auto& [name, operand, side] : {std::tuple{"a", &product.a, "i"}, {"b", &product.b, "j"}}) {
      const std::vector<std::string> axes =
          operand->is_along_k ? std::vector<std::string>{side, "k"} : std::vector<std::string>{"k", side};
      const bool is_of_warps = is_held(p) && operand == &product.a;
      must_step(d_, Reindex{product.block, operand->buffer.name(), is_of_warps ? "global" : "shared",
                            p.loop(name), is_of_rows(p, *operand) ? p.with_rows(axes) : p.with_batch(axes)});
      if (is_of_warps) continue;
      const bool is_by_element = row() == 4 && !operand->is_along_k;
      must_step(d_, StorageAlign{p.loop(name), is_by_element ? 32 : 2 * row(), is_by_element ? 8 : row()});
    }
    p.inline_copies();
    must_step(d_, PadEinsum{product.block, {"i", "j", "k"}, {t_.block_i(), width, depth}});
    const std::string g = batch_indices(p.acc(), 2);
    must_step(d_, TransformLayout{
                      p.acc(), text("(", g, "i, j) -> (", g, places("i", t_.block_i(), 16), ", ",
                                    places("j", width, 8), ", i %% 16 // 8, i %% 8, j %% 8 // 2, j %% 2)")});
  }

  static std::string places(const std::string& axis, int64_t tile, int64_t size) {
    return tile == size ? text(axis, " // ", size)
                        : text(axis, " // ", tile, ", ", axis, " %% ", tile, " // ", size);
  }

  // Scores, and what the second product takes of them, lie among the threads as the sums do.
  void hold_rows() {
    const std::string rows = places("i", t_.block_i(), 16), threads = "i %% 16 // 8, i %% 8, ";
    for (const std::string& buffer : {scores_, c_.second.a.buffer.name()}) {
      const std::string batch = batch_indices(buffer, 2);
      must_step(d_, TransformLayout{buffer, text("(", batch, "i, j) -> (", batch, rows, ", j // 8, ", threads,
                                                 "j %% 8 // 2, j %% 2)")});
      scopes_.emplace_back(buffer, "registers");
    }
    const std::string g = batch_indices(second_.loop("a"), 2);
    must_step(d_, TransformLayout{second_.loop("a"),
                                  text("(", g, "i, k) -> (", g, rows, ", k // 16, k %% 16 // 8, ", threads,
                                       "k %% 8 // 2, k %% 2)")});
    scopes_.emplace_back(second_.loop("a"), "warp");
  }

  // What the second product takes at a time, converted by the threads that have it.
  void hold_part() {
    const std::string copy = second_.loop("a"), i = copy + ".i", k = copy + ".k";
    must_step(d_, ComputeAt{copy, second_.loop("k.o")});
    must_step(d_, Split{i, {t_.warps_i, 2, kWarpRows}, {i + ".w", i + ".h", i + ".l"}});
    must_step(d_, Split{k, {0, 2, kWarpColumns, kVector}, {k + ".m", k + ".h", k + ".q", k + ".p"}});
    must_step(d_, Reorder{{i + ".w", i + ".l", k + ".q", k + ".m", k + ".h", i + ".h", k + ".p"}});
    bind_threads(i + ".w", i + ".l", k + ".q");
    for (const std::string& name : {k + ".m", k + ".h", i + ".h"})
      try_step(d_, Unroll{name});
    try_step(d_, Vectorize{k + ".p"});
  }

  // Splits the product's loops; the second one's rows into tiles of blocks, the first one's columns into panels.
  void tile(ChainProduct& p, int64_t columns, int64_t depth, bool is_second) {
    if (is_second) must_step(d_, Reorder{p.loops(p.with_batch({"i", "j", "k"}))});
    std::vector<int64_t> i{t_.warps_i, t_.rows, 2, kWarpRows}, j{t_.warps_j, columns, kWarpColumns, 2};
    std::vector<std::string> of_i{"i.w", "i.m", "i.h", "i.l"}, of_j{"j.w", "j.n", "j.q", "j.p"};
    const std::string outer = is_second ? "i.b" : "j.b";
    (is_second ? i : j).insert((is_second ? i : j).begin(), 0);
    (is_second ? of_i : of_j).insert((is_second ? of_i : of_j).begin(), outer);
    must_step(d_, Split{p.loop("i"), i, p.loops(of_i)});
    must_step(d_, Split{p.loop("j"), j, p.loops(of_j)});
    std::vector<std::string> order{outer, "k.o", "i.w", "j.w", "i.l", "j.q",
                                   "k.m", "i.m", "j.n", "i.h", "j.p"};
    std::vector<std::string> of_k{"k.o", "k.m", "k.i"};
    std::vector<int64_t> k{0, depth / depth_of_instruction(), depth_of_instruction()};
    if (is_held(p)) {
      of_k = {"k.o", "k.m", "k.h", "k.q", "k.i"};
      k = {0, depth / depth_of_instruction(), 2, kWarpColumns, kVector};
    }
    order.insert(order.end(), of_k.begin() + 2, of_k.end());
    must_step(d_, Split{p.loop("k"), k, p.loops(of_k)});
    must_step(d_, Reorder{p.loops(order)});
    must_step(d_, Fuse{p.loops({"i.w", "j.w"}), p.loop("w")});
  }

  void bind_threads(const std::string& w, const std::string& l, const std::string& q) {
    if (t_.warps() > 1) must_step(d_, Bind{w, "thread.z"});
    must_step(d_, Bind{l, "thread.y"});
    must_step(d_, Bind{q, "thread.x"});
  }

  void fetch_side(ChainProduct& p, const std::string& name, const Operand& o, const std::string& side) {
    const bool fits = !t_.held || fetches_ahead(t_, c_, d_.target.gpu);
    constexpr int64_t kManyHeld = 160;
    const int64_t at_once = fits ? 0 : held_scores(t_, c_).registers() > kManyHeld ? 2 : 4;
    fetch(p.loop(name), o.is_along_k ? side : "k", o.is_along_k ? "k" : side, o.vector, at_once);
  }

  void write_back(const std::string& block, const std::string& at) {
    must_step(d_, ReverseComputeAt{block, at});
    spread(block);
  }

  // The elements of a tile among the threads, as a product's sums are.
  void spread(const std::string& block) {
    lead_with_batches(block);
    const std::string i = block + ".i", j = block + ".j", w = block + ".w";
    // The loops of the sums themselves, or loops over the tile's rows and columns.
    if (s_.find_loop(i) != nullptr || s_.find_loop(j) != nullptr) {
      must_step(d_, Split{i, {t_.warps_i, t_.rows, 2, kWarpRows}, {i + ".w", i + ".m", i + ".h", i + ".l"}});
      must_step(d_, Split{j, {t_.warps_j, 0, kWarpColumns, 2}, {j + ".w", j + ".n", j + ".q", j + ".p"}});
      must_step(d_,
                Reorder{{i + ".w", j + ".w", i + ".l", j + ".q", i + ".m", i + ".h", j + ".n", j + ".p"}});
      must_step(d_, Fuse{{i + ".w", j + ".w"}, w});
    } else {
      std::vector<std::string> order;
      for (const std::string& loop : {w, i + ".l", j + ".q", i + ".m", i + ".h", j + ".n", j + ".p"}) {
        if (s_.find_loop(loop) != nullptr) order.push_back(loop);
      }
      must_step(d_, Reorder{order});
    }
    bind_threads(w, i + ".l", j + ".q");
    for (const std::string& name : {i + ".m", j + ".n", i + ".h"})
      try_step(d_, Unroll{name});
    try_step(d_, Vectorize{j + ".p"});
  }

  void finish(ChainProduct& p, const Product& product) {
    must_step(d_, DecomposeReduction{product.block, p.loop("k.o")});
    must_step(d_, SetScope{p.acc(), "registers"});
    must_step(
        d_, Tensorize{p.loop("i.h"), text("mma_m16n8k", depth_of_instruction(), "_",
                                          is_held(p)             ? "held_"
                                          : product.a.is_along_k ? "row_"
                                                                 : "col_",
                                          product.b.is_along_k ? "col_" : "row_", to_text(product.factor))});
    for (const char* name : {"i.m", "j.n", "i.h", "j.p"}) {
      if (s_.find_loop(p.loop(name)) != nullptr) must_step(d_, Unroll{p.loop(name)});
      if (s_.find_loop(product.block + ".init." + name) != nullptr)
        must_step(d_, Unroll{product.block + ".init." + name});
    }
    must_step(d_, Unroll{p.loop("k.m")});
  }

  const Tile t_;
};

}  // namespace

bool schedule_grid_matrix_chain(Draft& draft, const ProductChain& chain) {
  const Gpu& gpu = draft.target.gpu;
  const ElementType factor = chain.first.factor;
  const bool is_multiplied =
      factor == ElementType::f16 || factor == ElementType::bf16 || factor == ElementType::tf32;
  if (!draft.refusal || !is_multiplied || chain.second.factor != factor || !multiplies_matrices(gpu, factor))
    return false;
  std::vector<Tile> tiles = legal_tiles(chain, gpu);
  if (tiles.empty()) return false;
  return try_all(draft, {"chains of products on tensor cores", chain.second.block}, [&] {
    const Tile tile = ask_sizes<Tile>(draft, chain.second.block, tiles,
                                      {{"held", &Tile::held},
                                       {"rows", &Tile::rows},
                                       {"columns", &Tile::columns},
                                       {"warps_i", &Tile::warps_i},
                                       {"warps_j", &Tile::warps_j},
                                       {"depth_1", &Tile::depth_1},
                                       {"depth_2", &Tile::depth_2}},
                                      [&](const Tile& t) { return score(t, chain, gpu); });
    return GridMatrixChain(draft, chain, tile).run() && fits_shared_memory(draft);
  });
}

}  // namespace mcc::tuner
