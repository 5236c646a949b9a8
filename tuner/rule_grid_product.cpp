// Sums of products on a GPU (matrix products, batched ones, convolutions as such), whatever stands where in memory:
// C[g, i, j] += A[g, i, k] * B[g, k, j], where each of g, i, j, k is one axis or several that become one.
//
//   bound g @{block.z}: bound i.b @{block.y}: bound j.b @{block.x}          a tile of C for each block
//     for k.o
//       bound thread.y, thread.x: A's part, fetched by all threads, into shared memory as [k][i]
//       bound thread.y, thread.x: B's part as [k][j]
//       bound i.t @{thread.y}: bound j.t @{thread.x}                         a tile of registers for each thread
//         for k.i: unrolled i.r: unrolled j.o: vectorized j.v
//     bound thread.y, thread.x: the tile's results, with the elementwise consumer
//
// j holds the axis along which C is contiguous. The columns of a thread are groups of 4 that stand 4 * threads apart, so that
// the threads of a warp read neighbouring banks. Sizes: the tile with the least estimated time, see `score`.
#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/schedule/tree.h"
#include "tensor/visit.h"
#include "tuner/grid_product.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kVector = 4;  // elements of 32 bits that one instruction loads

struct Tile {
  int64_t threads_i, threads_j;  // of a block
  int64_t rows, columns;         // of C for each thread; columns in groups of kVector
  int64_t depth;                 // of k at a time
  int64_t block_i() const { return threads_i * rows; }
  int64_t block_j() const { return threads_j * columns; }
  int64_t threads() const { return threads_i * threads_j; }
};

constexpr Tile kTiles[] = {{16, 16, 8, 8, 8}, {8, 16, 8, 8, 8}, {16, 16, 4, 4, 16}, {8, 16, 4, 4, 16},
                           {8, 8, 8, 4, 16},  {8, 8, 4, 4, 16}, {16, 8, 4, 4, 16},  {8, 8, 2, 4, 16},
                           {4, 16, 2, 4, 16}, {4, 8, 2, 4, 16}};

int64_t depth_of(const Tile& t, const Product& p) {
  constexpr int64_t kLongest = 64;
  int64_t depth = t.depth;
  if (p.period > 1 && p.period <= kLongest) {
    depth = std::max<int64_t>((t.depth + p.period / 2) / p.period, 1) * p.period;
  }
  return std::min(depth, p.k.extent);
}

// Parts of the operands in shared memory at once: two, where what is fetched can be copied asynchronously, element by element if
// need be.
int64_t stages(const Product& p, const Gpu& gpu) {
  auto is_copied = [](const Operand& o) { return bit_width(o.buffer.element()) == 32; };
  return gpu.sm() >= 80 && p.factor == ElementType::f32 && is_copied(p.a) && is_copied(p.b) ? 2 : 1;
}

// An estimate of time, in arbitrary units: rounds of blocks over the multiprocessors, each as long as its arithmetic, or as
// what it fetches from shared memory.
double score(const Tile& t, const Product& p, const Gpu& gpu) {
  double blocks =
      static_cast<double>(ceil_div64(p.i.extent, t.block_i()) * ceil_div64(p.j.extent, t.block_j()) * p.g.extent);
  // Accumulators, a row and a column, and what addresses take.
  int64_t registers = t.rows * t.columns + 2 * (t.rows + t.columns) + 32;
  int64_t shared = stages(p, gpu) * (t.block_i() + kVector + t.block_j() + kVector) * depth_of(t, p) * 4;
  int64_t resident =
      std::min({gpu.threads_per_multiprocessor / t.threads(),
                gpu.registers_per_multiprocessor / (registers * t.threads()),
                gpu.shared_per_multiprocessor / shared, int64_t{gpu.blocks_per_multiprocessor}});
  if (p.j.extent <= t.block_j() - t.threads_j * kVector)
    return INFINITY;  // a group of columns without one of C
  if (resident < 1 || shared > gpu.shared_per_block || registers > gpu.registers_per_thread) return INFINITY;
  // A multiprocessor multiplies 128 numbers in the time in which it fetches 32 words.
  double products = static_cast<double>(t.block_i() * t.block_j() * p.k.extent);
  double fetches =
      products * (0.25 / static_cast<double>(t.rows) + 1.0 / static_cast<double>(t.columns)) * 4 / kVector;
  double from_memory = static_cast<double>((t.block_i() + t.block_j()) * p.k.extent) * 8;
  double at_once = std::clamp(blocks / gpu.multiprocessors, 1.0, static_cast<double>(resident));
  // Too few threads do not hide what they wait for.
  double busy = std::min(1.0, at_once * static_cast<double>(t.threads()) / 256);
  double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  // Copies that run beside the arithmetic still take its place now and then.
  double step = std::max(products, fetches) + from_memory / static_cast<double>(stages(p, gpu));
  return rounds * at_once * step / busy;
}

double best_score(const Product& p, const Gpu& gpu) {
  double best = INFINITY;
  for (const Tile& t : kTiles)
    best = std::min(best, score(t, p, gpu));
  return best;
}

// All tiles of the space that a GPU can run, the best of kTiles first.
std::vector<Tile> legal_tiles(const Product& p, const Gpu& gpu) {
  const auto* best =
      std::min_element(std::begin(kTiles), std::end(kTiles),
                       [&](const Tile& a, const Tile& b) { return score(a, p, gpu) < score(b, p, gpu); });
  std::vector<Tile> tiles{*best};
  for (int64_t rows : {1, 2, 4, 8, 16}) {
    for (int64_t columns : {4, 8, 16}) {
      for (int64_t i : {4, 8, 16, 32}) {
        for (int64_t j : {8, 16, 32}) {
          for (int64_t depth : {4, 8, 16, 32}) {
            const Tile t{i, j, rows, columns, depth};
            // A block of one warp, or with rows of the result that all lie beyond its end, is another one's waste.
            const bool is_sensible = t.threads() >= gpu.warp && t.threads() <= gpu.threads_per_block &&
                                     (i == 4 || t.block_i() < 2 * p.i.extent);
            if (is_sensible && std::isfinite(score(t, p, gpu))) tiles.push_back(t);
          }
        }
      }
    }
  }
  return tiles;
}

Tile choose_tile(Draft& draft, const Product& p) {
  return ask_sizes<Tile>(draft, p.block, legal_tiles(p, draft.target.gpu),
                         {{"rows", &Tile::rows},
                          {"columns", &Tile::columns},
                          {"threads_i", &Tile::threads_i},
                          {"threads_j", &Tile::threads_j},
                          {"depth", &Tile::depth}},
                         [&](const Tile& t) { return score(t, p, draft.target.gpu); });
}

class GridProduct : private ProductAxes {
 public:
  GridProduct(Draft& draft, const Product& product)
      : ProductAxes(draft, product), t_(choose_tile(draft, product)) {}

  bool run() {
    fuse_sides();
    reindex();
    tile();
    stage(p_.a, "a", "i");
    stage(p_.b, "b", "j");
    // What is written in columns and read in rows.
    constexpr int64_t kBanks = 32;
    for (const auto& [name, operand] : {std::pair{"a", &p_.a}, {"b", &p_.b}}) {
      if (operand->is_along_k) must_step(d_, StorageAlign{loop(name), kBanks, kVector});
    }
    write_back();
    must_step(d_, DecomposeReduction{p_.block, loop("k.o")});
    must_step(d_, SetScope{acc_, "registers"});
    if (is_ahead()) must_step(d_, Annotate{"", loop("k.o"), kStages, text(stages(p_, d_.target.gpu))});
    for (const char* name : {"i.r", "j.o"}) {
      must_step(d_, Unroll{loop(name)});
      if (s_.find_loop(p_.block + ".init." + name) != nullptr)
        must_step(d_, Unroll{p_.block + ".init." + name});
    }
    constexpr int64_t kStraight = 2048;  // multiplications in a row
    if (depth() * t_.rows * t_.columns <= kStraight) must_step(d_, Unroll{loop("k.i")});
    must_step(d_, Vectorize{loop("j.v")});
    must_step(d_, Vectorize{p_.block + ".init.j.v"});
    return static_cast<bool>(d_.refusal);
  }

 private:
  void reindex() {
    separate_result();
    must_step(d_, Reindex{p_.block, p_.a.buffer.name(), "shared", p_.block + ".a", with_batch({"k", "i"})});
    must_step(d_, Reindex{p_.block, p_.b.buffer.name(), "shared", p_.block + ".b", with_batch({"k", "j"})});
    inline_copies();
    if (groups() > 1) {
      std::string from = has_batch() ? "g, i, j" : "i, j", to = has_batch() ? "g, i" : "i";
      int64_t width = t_.threads_j * kVector;
      must_step(
          d_, TransformLayout{acc_, text("(", from, ") -> (", to, ", j // ", width, ", j %% ", width, ")")});
    }
  }
  int64_t groups() const { return t_.columns / kVector; }

  void tile() {
    std::vector<std::string> order = with_batch({});
    for (std::string& name : order)
      name = loop(name);
    for (const char* name : {"i", "j", "k"})
      order.push_back(loop(name));
    must_step(d_, Reorder{order});
    must_step(d_, Split{loop("i"), {0, t_.threads_i, t_.rows}, {loop("i.b"), loop("i.t"), loop("i.r")}});
    must_step(d_, Split{loop("j"),
                        {0, groups(), t_.threads_j, kVector},
                        {loop("j.b"), loop("j.o"), loop("j.t"), loop("j.v")}});
    must_step(d_, Split{loop("k"), {0, depth()}, {loop("k.o"), loop("k.i")}});
    must_step(d_, Reorder{{loop("i.b"), loop("j.b"), loop("k.o"), loop("i.t"), loop("j.t"), loop("k.i"),
                           loop("i.r"), loop("j.o"), loop("j.v")}});
    if (has_batch()) must_step(d_, Bind{loop("g"), "block.z"});
    must_step(d_, Bind{loop("i.b"), "block.y"});
    must_step(d_, Bind{loop("j.b"), "block.x"});
    must_step(d_, Bind{loop("i.t"), "thread.y"});
    must_step(d_, Bind{loop("j.t"), "thread.x"});
  }
  bool is_ahead() const { return stages(p_, d_.target.gpu) > 1; }
  int64_t depth() const { return depth_of(t_, p_); }

  // All threads fetch the operand's part for one step of k.o; neighbours in memory by neighbouring threads.
  void stage(const Operand& operand, const std::string& name, const std::string& side) {
    const std::string copy = loop(name);
    must_step(d_, ComputeAt{copy, loop("k.o")});
    std::string outer = copy + ".k", inner = copy + "." + side;
    if (operand.is_along_k) std::swap(outer, inner);
    const For* across = s_.find_loop(inner);
    int64_t width = 0;
    if (across == nullptr || !as_int(across->extent, &width)) return must_step(d_, Vectorize{inner});
    must_step(d_, Reorder{{outer, inner}});
    // Asynchronous copies do not transpose vectors.
    const bool is_whole =
        operand.vector == kVector && width % kVector == 0 && !(is_ahead() && operand.is_along_k);
    const int64_t vector = is_whole ? kVector : 1, turn = t_.threads_j * vector;
    const std::string ty = copy + ".ty", tx = copy + ".tx", lane = copy + ".v";
    std::vector<std::string> turns;
    auto split = [&](const std::string& from, std::vector<int64_t> factors, std::vector<std::string> names) {
      if (names.back() == tx && vector > 1) {
        factors.push_back(vector);
        names.push_back(lane);
      }
      must_step(d_, Split{from, factors, names});
      turns.push_back(names[0]);
    };
    if (turn % width == 0 || width % turn == 0 || vector == 1) {
      // Rows follow each other without a gap.
      std::string all = copy + ".all";
      must_step(d_, Fuse{{outer, inner}, all});
      split(all, {0, t_.threads_i, t_.threads_j}, {copy + ".n", ty, tx});
    } else {
      split(outer, {0, t_.threads_i}, {copy + ".m", ty});
      split(inner, {0, t_.threads_j}, {copy + ".n", tx});
    }
    std::vector<std::string> order = {ty, tx};
    order.insert(order.end(), turns.begin(), turns.end());
    must_step(d_, Reorder{order});
    must_step(d_, Bind{ty, "thread.y"});
    must_step(d_, Bind{tx, "thread.x"});
    if (vector > 1) try_step(d_, Vectorize{lane});
    for (const std::string& n : turns)
      try_step(d_, Unroll{n});
  }

  void write_back() {
    must_step(d_, ReverseComputeAt{last_, loop("j.b")});
    const std::string i = last_ + ".i", j = last_ + ".j";
    must_step(d_, Split{i, {t_.threads_i, t_.rows}, {i + ".t", i + ".r"}});
    must_step(d_, Split{j, {groups(), t_.threads_j, kVector}, {j + ".o", j + ".t", j + ".v"}});
    must_step(d_, Reorder{{i + ".t", j + ".t", i + ".r", j + ".o", j + ".v"}});
    must_step(d_, Bind{i + ".t", "thread.y"});
    must_step(d_, Bind{j + ".t", "thread.x"});
    must_step(d_, Unroll{i + ".r"});
    must_step(d_, Unroll{j + ".o"});
    try_step(d_, Vectorize{j + ".v"});
  }

  const Tile t_;
};

}  // namespace

bool is_grid_product(const Schedule& schedule, const std::string& block) {
  return as_product(schedule, block).has_value();
}

bool schedule_grid_product(Draft& draft, const std::string& block) {
  if (schedule_grid_warpgroups(draft, block) || schedule_grid_matrices(draft, block)) return true;
  std::optional<Product> product = as_product(draft.schedule, block);
  if (!product || !draft.refusal) return false;
  return try_all(draft, [&] {
    auto time = [&](const Product& p) { return best_score(p, draft.target.gpu); };
    if (std::string part = divide_sum(draft, *product, time); part != block)
      product = as_product(draft.schedule, part);
    return GridProduct(draft, *product).run();
  });
}

}  // namespace mcc::tuner
