// Two products with rows between them (attention: scores, softmax, product with the values) as one launch of a GPU.
//
//   bound g @{block.y}: bound i.b @{block.x}                     a tile of rows for each block of threads
//     all threads: the rows of the first product's operand (queries) into shared memory
//     for panel of columns
//       for k.o: the columns' operand (keys) into shared memory; a tile of registers for each thread
//       the tile, with its elementwise consumer (scale, mask), into the scores, in shared memory
//     for each reduction along rows (maximum, sum of exponentials): threads by rows and along them, shuffles
//     for k.o: a part of what the second product takes (exponentials) and of the other operand (values) into shared memory;
//              a tile of registers for each thread
//     the tile, with its elementwise consumer (1 / sum)
//
// The scores of a tile's rows stay in shared memory. Exponentials are computed where they are summed, and again where they are
// multiplied: shared memory for them would take its place from other blocks. The products are padded to whole tiles; what lies
// beyond the operands is 0. Where not even the smallest tile of rows fits, the rules for single products take over.
#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_chain.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kVector = 4;
constexpr int64_t kStraight = 16;

struct Tile {
  int64_t threads_i, threads_j;
  int64_t rows;              // of a thread, in both products
  int64_t groups;            // of kVector columns of the first product, for each thread at a time
  int64_t depth_1, depth_2;  // of k at a time, of both
  int64_t block_i() const { return threads_i * rows; }
  int64_t width() const { return threads_j * kVector; }
  int64_t panel() const { return width() * groups; }
  int64_t threads() const { return threads_i * threads_j; }
};

// Of a row of a buffer that the fetches write in columns and the products read in rows.
int64_t row_in_banks(int64_t n) { return round_up64(n - kVector, 32) + kVector; }

int64_t shared_bytes(const Tile& t, const ProductChain& c) {
  const int64_t scores = t.block_i() * (round_up64(c.first.j.extent, 32) + 32);
  // Where all threads fetch more elements at once than there are, a buffer holds what their indices reach.
  const int64_t at_once = t.threads() * kVector, depth_1 = round_up64(c.first.k.extent, t.depth_1);
  const int64_t queries = depth_1 * row_in_banks(std::max(t.block_i(), at_once / depth_1));
  const int64_t keys = t.depth_1 * row_in_banks(std::max(t.panel(), at_once / t.depth_1));
  const int64_t part = std::max(t.depth_2, t.threads_j) * row_in_banks(t.block_i());
  const int64_t width_2 = round_up64(c.second.j.extent, t.width());
  const int64_t values = std::max(t.depth_2, at_once / width_2) * row_in_banks(width_2);
  const int64_t of_rows = 4 * t.block_i();
  return 4 * (scores + queries + keys + part + values + of_rows);
}

// An estimate of time: cycles of a multiprocessor, times 128.
double score(const Tile& t, const ProductChain& c, const Gpu& gpu) {
  const int64_t m = c.first.i.extent, n = c.first.j.extent, d = c.first.k.extent, e = c.second.j.extent;
  const int64_t groups_2 = ceil_div64(e, t.width());
  const int64_t columns = kVector * std::max(t.groups, groups_2);
  const int64_t registers = t.rows * columns + 2 * (t.rows + columns) + 40;
  const int64_t shared = shared_bytes(t, c);
  if (shared > gpu.shared_per_block_max || registers > gpu.registers_per_thread / 2) return INFINITY;
  // What a thread fetches in a step goes by way of registers, each element with an address of its own.
  constexpr int64_t kMostFetched = 64;
  const int64_t keys = t.panel() * t.depth_1, values = groups_2 * t.width() * t.depth_2;
  if (std::max(keys, values) > kMostFetched * t.threads()) return INFINITY;
  // A single warp needs no barriers, and without these the assembler fetches everything at once.
  constexpr int64_t kMostOfWarp = 48;
  if (t.threads() <= gpu.warp && t.block_i() * d + keys + values > kMostOfWarp * t.threads()) return INFINITY;
  const int64_t resident =
      std::min({gpu.threads_per_multiprocessor / t.threads(),
                gpu.registers_per_multiprocessor / (registers * t.threads()),
                gpu.shared_per_multiprocessor / (shared + 1024), int64_t{gpu.blocks_per_multiprocessor}});
  if (resident < 1) return INFINITY;
  const double blocks = static_cast<double>(ceil_div64(m, t.block_i()) * c.first.g.extent);
  const double at_once = std::min(std::ceil(blocks / gpu.multiprocessors), static_cast<double>(resident));
  // A multiprocessor multiplies 128 numbers in the cycle in which shared memory serves 8 lanes of a warp with vectors of columns, all
  // with one row, or a half with vectors of rows.
  constexpr double kMultiplied = 128;
  auto product = [&](int64_t columns_in_all, int64_t groups, int64_t depth, int64_t step) {
    const double products = static_cast<double>(t.block_i() * columns_in_all * round_up64(depth, step));
    const double panels = static_cast<double>(ceil_div64(columns_in_all, groups * t.width()));
    const int64_t of_rows = t.rows >= kVector ? 2 * t.rows / kVector : t.rows, of_columns = 4 * groups;
    const double fetches = kMultiplied * static_cast<double>(t.threads() * round_up64(depth, step) * (of_rows + of_columns)) /
                           gpu.warp * panels;
    const double from_memory =
        static_cast<double>((columns_in_all + t.block_i()) * round_up64(depth, step)) * 8;
    // Of two barriers, and what begins anew behind them; until the memory answers, which only other blocks work beside.
    constexpr double kBegin = kMultiplied * 60, kWait = kMultiplied * 700;
    const double steps = static_cast<double>(ceil_div64(depth, step)) * panels;
    return std::max(products, fetches) + from_memory + steps * (kBegin + kWait) / at_once;
  };
  const double first = product(round_up64(n, t.panel()), t.groups, d, t.depth_1);
  const double second = product(groups_2 * t.width(), groups_2, n, t.depth_2);
  constexpr double kRowWork = 24;  // of a score: its maximum, two exponentials
  const double rows = static_cast<double>(t.block_i() * n) * kRowWork;
  // Sums that do not wait for each other keep a scheduler busy, of many warps or of one; all of its time takes two.
  const double warps = at_once * static_cast<double>(t.threads()) / 128;  // of a scheduler
  const double sums = static_cast<double>(t.rows * kVector * std::min(t.groups, groups_2));
  const double busy = std::min({1.0, warps * sums / 16, warps < 1 ? 0.75 * warps : 0.75 + 0.25 * (warps - 1)});
  const double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  return rounds * at_once * (first + second + rows) / busy;
}

// All tiles that the GPU can run, the best first. Rows and columns make at least one whole tile, so that all of its threads have
// sums.
std::vector<Tile> legal_tiles(const ProductChain& c, const Gpu& gpu) {
  std::vector<Tile> tiles;
  for (int64_t threads_i : {4, 8, 16, 32}) {
    for (int64_t threads_j : {4, 8, 16, 32}) {
      for (int64_t rows : {1, 2, 4, 8}) {
        for (int64_t groups : {1, 2}) {
          for (int64_t depth_1 : {8, 16, 32, 64}) {
            for (int64_t depth_2 : {8, 16, 32, 64}) {
              const Tile t{threads_i, threads_j, rows, groups, depth_1, depth_2};
              const bool is_sensible = t.threads() >= gpu.warp && t.threads() <= 512 && t.block_i() <= 64 &&
                                       (depth_1 == 8 || depth_1 < 2 * c.first.k.extent) &&
                                       (depth_2 <= 16 || depth_2 < 2 * c.first.j.extent);
              const bool is_whole = t.block_i() <= c.first.i.extent && t.panel() <= c.first.j.extent;
              if (is_sensible && is_whole && std::isfinite(score(t, c, gpu))) tiles.push_back(t);
            }
          }
        }
      }
    }
  }
  bring_best_first(tiles, [&](const Tile& t) { return score(t, c, gpu); });
  return tiles;
}

class GridChain : private ChainSchedule {
 public:
  GridChain(Draft& draft, const ProductChain& chain, const Tile& tile)
      : ChainSchedule(draft, chain, tile.block_i(), {1, tile.threads_i, tile.threads_j, tile.threads_j < 8 ? 1 : kVector}), t_(tile) {}

  bool run() {
    prepare();
    const int64_t width_2 = round_up64(c_.second.j.extent, t_.width());
    operands(first_, c_.first, {t_.block_i(), t_.panel(), t_.depth_1});
    operands(second_, c_.second, {t_.block_i(), width_2, t_.depth_2});
    inline_maps();
    tile_second(width_2 / t_.width());
    make_part(t_.depth_2, 1);
    must_step(d_, ComputeAt{second_.loop("b"), second_.loop("k.o")});
    fetch(second_.loop("b"), c_.second.b.is_along_k ? "j" : "k", c_.second.b.is_along_k ? "k" : "j",
          vector_of(c_.second.b));
    write_back(second_.last(), host_);
    gather();
    tile_first();
    fetch(first_.loop("a"), c_.first.a.is_along_k ? "i" : "k", c_.first.a.is_along_k ? "k" : "i",
          vector_of(c_.first.a));
    must_step(d_, ComputeAt{first_.loop("b"), first_.loop("k.o")});
    fetch(first_.loop("b"), c_.first.b.is_along_k ? "j" : "k", c_.first.b.is_along_k ? "k" : "j",
          vector_of(c_.first.b));
    write_back(first_.last(), first_.loop("j.b"));
    place_between();
    finish(first_, c_.first.block);
    finish(second_, c_.second.block);
    must_step(d_, SetScope{scores_, "shared"});
    must_step(d_, StorageAlign{scores_, 32, t_.threads_j % 32});
    return static_cast<bool>(d_.refusal);
  }

 private:
  static int64_t vector_of(const Operand& o) { return o.vector == kVector ? kVector : 1; }

  // Operands as [k][i] and [k][j] in shared memory, padded; sums as the threads have them.
  void operands(ChainProduct& p, const Product& product, const std::vector<int64_t>& multiples) {
    for (const auto& [name, operand, side] : {std::tuple{"a", &product.a, "i"}, {"b", &product.b, "j"}}) {
      must_step(d_, Reindex{product.block, operand->buffer.name(), "shared", p.loop(name),
                            p.with_batch({"k", side})});
      must_step(d_, StorageAlign{p.loop(name), 32, kVector});
    }
    p.inline_copies();
    must_step(d_, PadEinsum{product.block, {"i", "j", "k"}, multiples});
    const std::string from = p.has_batch() ? "g, i, j" : "i, j", to = p.has_batch() ? "g, " : "";
    const std::string groups =
        multiples[1] == t_.width() ? "" : text(", j %% ", multiples[1], " // ", t_.width());
    must_step(d_, TransformLayout{
                      p.acc(), text("(", from, ") -> (", to, "i // ", multiples[0], ", i %% ", multiples[0],
                                    ", j // ", multiples[1], groups, ", j %% ", t_.width(), ")")});
  }

  void tile_second(int64_t groups) {
    ChainProduct& p = second_;
    must_step(d_, Reorder{p.loops(p.with_batch({"i", "j", "k"}))});
    must_step(d_, Split{p.loop("i"), {0, t_.threads_i, t_.rows}, p.loops({"i.b", "i.t", "i.r"})});
    must_step(d_, Split{p.loop("j"), {groups, t_.threads_j, kVector}, p.loops({"j.o", "j.t", "j.v"})});
    split_sum(p, t_.depth_2, groups * kVector);
    must_step(d_, Reorder{p.loops({"i.b", "k.o", "i.t", "j.t", "k.m", "k.i", "i.r", "j.o", "j.v"})});
    host_ = p.loop("i.b");
    if (p.has_batch()) must_step(d_, Bind{p.loop("g"), "block.y"});
    must_step(d_, Bind{host_, "block.x"});
    must_step(d_, Bind{p.loop("i.t"), "thread.y"});
    must_step(d_, Bind{p.loop("j.t"), "thread.x"});
  }

  // Straight code for a few elements of the sum: more of it asks for more registers. With one row the assembler has little else to
  // do than to load, and loads all that such a piece multiplies ahead of it.
  void split_sum(ChainProduct& p, int64_t depth, int64_t columns) {
    constexpr int64_t kMostLoaded = 128;
    int64_t straight = std::min(depth, kStraight);
    while (t_.rows == 1 && straight > 1 && straight * (1 + columns) > kMostLoaded)
      straight /= 2;
    must_step(d_, Split{p.loop("k"), {0, depth / straight, straight}, p.loops({"k.o", "k.m", "k.i"})});
  }

  void tile_first() {
    ChainProduct& p = first_;
    must_step(d_, Split{p.loop("i"), {t_.threads_i, t_.rows}, p.loops({"i.t", "i.r"})});
    must_step(
        d_, Split{p.loop("j"), {0, t_.groups, t_.threads_j, kVector}, p.loops({"j.b", "j.o", "j.t", "j.v"})});
    split_sum(p, t_.depth_1, t_.groups * kVector);
    must_step(d_, Reorder{p.loops({"j.b", "k.o", "i.t", "j.t", "k.m", "k.i", "i.r", "j.o", "j.v"})});
    must_step(d_, Bind{p.loop("i.t"), "thread.y"});
    must_step(d_, Bind{p.loop("j.t"), "thread.x"});
  }

  void write_back(const std::string& block, const std::string& at) {
    must_step(d_, ReverseComputeAt{block, at});
    lead_with_batches(block);
    const std::string i = block + ".i", j = block + ".j";
    // The loops of the sums themselves, or loops over the tile's rows and columns.
    if (s_.find_loop(i) != nullptr || s_.find_loop(j) != nullptr) {
      must_step(d_, Split{i, {t_.threads_i, t_.rows}, {i + ".t", i + ".r"}});
      must_step(d_, Split{j, {0, t_.threads_j, kVector}, {j + ".o", j + ".t", j + ".v"}});
    }
    std::vector<std::string> order;
    for (const std::string& loop : {i + ".t", j + ".t", i + ".r", j + ".o", j + ".v"}) {
      if (s_.find_loop(loop) != nullptr) order.push_back(loop);
    }
    must_step(d_, Reorder{order});
    must_step(d_, Bind{i + ".t", "thread.y"});
    must_step(d_, Bind{j + ".t", "thread.x"});
    try_step(d_, Unroll{i + ".r"});
    try_step(d_, Unroll{j + ".o"});
    try_step(d_, Vectorize{j + ".v"});
  }

  void finish(ChainProduct& p, const std::string& block) {
    must_step(d_, DecomposeReduction{block, p.loop("k.o")});
    must_step(d_, SetScope{p.acc(), "registers"});
    for (const char* name : {"i.r", "j.o"}) {
      must_step(d_, Unroll{p.loop(name)});
      if (s_.find_loop(block + ".init." + name) != nullptr) must_step(d_, Unroll{block + ".init." + name});
    }
    must_step(d_, Unroll{p.loop("k.i")});
    must_step(d_, Vectorize{p.loop("j.v")});
    must_step(d_, Vectorize{block + ".init.j.v"});
  }

  const Tile t_;
};

}  // namespace

bool schedule_grid_chain(Draft& draft) {
  std::optional<ProductChain> chain = as_chain(draft.schedule);
  if (!chain || !draft.refusal) return false;
  if (schedule_grid_matrix_chain(draft, *chain)) return true;
  const Gpu& gpu = draft.target.gpu;
  if (chain->first.factor != ElementType::f32 || chain->second.factor != ElementType::f32) return false;
  std::vector<Tile> tiles = legal_tiles(*chain, gpu);
  if (tiles.empty()) return false;
  return try_all(draft, {"chains of products", chain->second.block}, [&] {
    const Tile tile = ask_sizes<Tile>(draft, chain->second.block, tiles,
                                      {{"rows", &Tile::rows},
                                       {"groups", &Tile::groups},
                                       {"threads_i", &Tile::threads_i},
                                       {"threads_j", &Tile::threads_j},
                                       {"depth_1", &Tile::depth_1},
                                       {"depth_2", &Tile::depth_2}},
                                      [&](const Tile& t) { return score(t, *chain, gpu); });
    return GridChain(draft, *chain, tile).run() && fits_shared_memory(draft);
  });
}

}  // namespace mcc::tuner
