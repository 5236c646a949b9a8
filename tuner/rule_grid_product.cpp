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
// Bytes go by four along k: such a word takes the place of an element, k counts words, and instead of the vectors j.v stands a
// dot product (dp4a) of the word of a row and of four columns. The product is padded to whole tiles.
//
// j holds the axis along which C is contiguous. The columns of a thread are groups of 4 that stand 4 * threads apart, so that
// the threads of a warp read neighbouring banks. Sizes: the tile with the least time by `product_time`.
#include <algorithm>
#include <bit>
#include <cmath>

#include "support/text.h"
#include "tensor/instructions.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/product_time.h"
#include "tensor/schedule/tree.h"
#include "tensor/visit.h"
#include "tuner/grid_product.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

using Tile = ProductTile;
constexpr int64_t kVector = Tile::kVector;
constexpr int64_t kBytes = 4;  // of a word

// Whether what is fetched can be copied asynchronously, element by element if need be.
bool is_async(const Product& p, const Gpu& gpu) {
  auto is_copied = [](const Operand& o) { return bit_width(o.buffer.element()) == 32 && !o.is_computed; };
  return gpu.has_async_copies() && p.factor == ElementType::f32 && is_copied(p.a) && is_copied(p.b);
}

ProductExtents extents_of(const Product& p, const Gpu& gpu) {
  const bool is_scattered = p.has_scattered_windows() && p.b.vector == 1 && p.b.is_along_k;
  return {p.g.extent, p.i.extent, p.j.extent, p.k.extent, p.period, is_async(p, gpu), is_scattered};
}

// All tiles of the space that a GPU can run, the best of product_tiles() first.
std::vector<Tile> legal_tiles(const ProductExtents& p, const Gpu& gpu) {
  std::vector<Tile> best(product_tiles().begin(), product_tiles().end());
  bring_best_first(best, [&](const Tile& t) { return product_time(t, p, gpu); });
  std::vector<Tile> tiles{best.front()};
  for (int64_t rows : {1, 2, 4, 8, 16}) {
    for (int64_t columns : {4, 8, 16}) {
      for (int64_t i : {4, 8, 16, 32}) {
        for (int64_t j : {8, 16, 32}) {
          for (int64_t depth : {4, 8, 16, 32}) {
            for (int64_t stages = 2; stages <= (p.is_async ? Tile::kMostStages : 2); ++stages) {
              const Tile t{i, j, rows, columns, depth, stages};
              // A block of one warp, or with rows of the result that all lie beyond its end, is another one's waste.
              const bool is_sensible = t.threads() >= gpu.warp && t.threads() <= gpu.threads_per_block &&
                                       (i == 4 || t.block_i() < 2 * p.i);
              if (is_sensible && std::isfinite(product_time(t, p, gpu))) tiles.push_back(t);
            }
          }
        }
      }
    }
  }
  return tiles;
}

// Words of four bytes as elements.
Product in_words(Product p) {
  const auto words = static_cast<uint64_t>(ceil_div64(p.k.extent, kBytes));
  constexpr uint64_t kDeepest = 32;
  // A sum is padded to the depth of its tiles. That is a power of two: threads share it out.
  p.k.extent = static_cast<int64_t>(words < kDeepest ? std::bit_ceil(words) : words);
  p.period = 1;
  for (Operand* o : {&p.a, &p.b})
    o->vector = o->is_along_k ? std::max<int64_t>(o->vector / kBytes, 1) : 1;
  return p;
}

Tile choose_tile(Draft& draft, const Product& p) {
  const Gpu& gpu = draft.target.gpu;
  const ProductExtents extents = extents_of(p, gpu);
  return ask_sizes<Tile>(draft, p.block, legal_tiles(extents, gpu),
                         {{"rows", &Tile::rows},
                          {"columns", &Tile::columns},
                          {"threads_i", &Tile::threads_i},
                          {"threads_j", &Tile::threads_j},
                          {"depth", &Tile::depth},
                          {"stages", &Tile::stages}},
                         [&](const Tile& t) { return product_time(t, extents, gpu); });
}

class GridProduct : private ProductAxes {
 public:
  // words: the product itself, or that of words of bytes.
  GridProduct(Draft& draft, const Product& product, const Product& words)
      : ProductAxes(draft, product), w_(words), t_(choose_tile(draft, words)) {}

  bool run() {
    fuse_sides();
    reindex();
    tile();
    stage(w_.a, "a", "i");
    stage(w_.b, "b", "j");
    // What is written in columns and read in rows.
    constexpr int64_t kBanks = 32;
    for (const auto& [name, operand] : {std::pair{"a", &w_.a}, {"b", &w_.b}}) {
      if (operand->is_along_k) must_step(d_, StorageAlign{loop(name), kBanks * word(), kVector * word()});
    }
    write_back();
    bind_threads(p_.block);
    must_step(d_, DecomposeReduction{p_.block, loop("k.o")});
    must_step(d_, SetScope{acc_, "registers"});
    if (is_ahead()) must_step(d_, Annotate{"", loop("k.o"), kStages, text(t_.stages)});
    for (const char* name : {"i.r", "j.o"}) {
      must_step(d_, Unroll{loop(name)});
      if (s_.find_loop(p_.block + ".init." + name) != nullptr)
        must_step(d_, Unroll{p_.block + ".init." + name});
    }
    constexpr int64_t kStraight = 2048;  // multiplications in a row
    if (depth() * t_.rows * t_.columns <= kStraight) must_step(d_, Unroll{loop("k.i")});
    if (is_of_bytes()) {
      must_step(d_, Tensorize{loop("j.v"), dot_instruction(d_.target, p_.factor)->name});
    } else {
      must_step(d_, Vectorize{loop("j.v")});
    }
    must_step(d_, Vectorize{p_.block + ".init.j.v"});
    return static_cast<bool>(d_.refusal);
  }

 private:
  void reindex() {
    separate_result();
    must_step(d_, Reindex{p_.block, p_.a.buffer.name(), "shared", p_.block + ".a", with_batch({"k", "i"})});
    must_step(d_, Reindex{p_.block, p_.b.buffer.name(), "shared", p_.block + ".b", with_batch({"k", "j"})});
    inline_copies();
    // To whole tiles: no condition stands where sums are made.
    const int64_t step = depth() * word();
    if (is_of_bytes() || p_.i.extent % t_.block_i() != 0 || p_.j.extent % t_.block_j() != 0 || p_.k.extent % step != 0)
      must_step(d_, PadEinsum{p_.block, {"i", "j", "k"}, {t_.block_i(), t_.block_j(), step}});
    if (groups() > 1) {
      std::string from = has_batch() ? "g, i, j" : "i, j", to = has_batch() ? "g, i" : "i";
      int64_t width = t_.threads_j * kVector;
      must_step(
          d_, TransformLayout{acc_, text("(", from, ") -> (", to, ", j // ", width, ", j %% ", width, ")")});
    }
  }
  static constexpr int64_t kLanes = 32;
  int64_t warps() const { return t_.threads() / kLanes; }
  int64_t groups() const { return t_.columns / kVector; }
  bool is_of_bytes() const { return p_.is_of_bytes(); }
  int64_t word() const { return is_of_bytes() ? kBytes : 1; }


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
    std::vector<int64_t> steps = {0, depth()};
    std::vector<std::string> steps_of_k = {loop("k.o"), loop("k.i")};
    order = {loop("i.b"), loop("j.b"), loop("k.o"), loop("i.t"), loop("j.t"), loop("k.i"), loop("i.r"), loop("j.o"), loop("j.v")};
    if (is_of_bytes()) {
      steps.push_back(kBytes);
      steps_of_k.push_back(loop("k.b"));
      order.push_back(loop("k.b"));
    } else if (straight_steps() < depth()) {
      steps = {0, depth() / straight_steps(), straight_steps()};
      steps_of_k.insert(steps_of_k.begin() + 1, loop("k.h"));
      order.insert(order.begin() + 5, loop("k.h"));
    }
    must_step(d_, Split{loop("k"), steps, steps_of_k});
    must_step(d_, Reorder{order});
    if (has_batch()) must_step(d_, Bind{loop("g"), "block.z"});
    must_step(d_, Bind{loop("i.b"), "block.y"});
    must_step(d_, Bind{loop("j.b"), "block.x"});
  }
  // A warp has 4 x 8 of the block's threads. Of the bits of a lane's number the first belongs to its column, the second to its
  // row: shared memory serves 16 lanes with 16 bytes each at once if neighbours, or all that are two apart, read the same.
  void bind_threads(const std::string& block) {
    const std::string i = block + ".i.t", j = block + ".j.t", warp = block + ".w", lane = block + ".x";
    must_step(d_, Split{i, {0, 2, 2}, {i + ".w", i + ".h", i + ".l"}});
    must_step(d_, Split{j, {0, 4, 2}, {j + ".w", j + ".h", j + ".l"}});
    must_step(d_, Reorder{{i + ".w", j + ".w", i + ".h", j + ".h", i + ".l", j + ".l"}});
    must_step(d_, Fuse{{i + ".w", j + ".w"}, warp});
    must_step(d_, Fuse{{i + ".h", j + ".h", i + ".l", j + ".l"}, lane});
    must_step(d_, Bind{warp, "thread.y"});
    must_step(d_, Bind{lane, "thread.x"});
  }
  bool is_ahead() const { return is_async(w_, d_.target.gpu); }
  // Steps without a loop: of more, the assembler asks shared memory for so much at once that registers spill.
  int64_t straight_steps() const {
    constexpr int64_t kMostWhole = 16, kMost = 12, kFewest = 4;
    for (int64_t steps = depth() > kMostWhole ? kMost : 0; steps >= kFewest; --steps) {
      if (depth() % steps == 0) return steps;
    }
    return depth();
  }
  int64_t depth() const { return depth_of(t_, extents_of(w_, d_.target.gpu)); }

  // All threads fetch the operand's part for one step of k.o; neighbours in memory by neighbouring threads.
  void stage(const Operand& operand, const std::string& name, const std::string& side) {
    const std::string copy = loop(name);
    must_step(d_, ComputeAt{copy, loop("k.o")});
    std::string outer = copy + ".k", inner = copy + "." + side;
    const std::string byte = copy + ".b";
    if (is_of_bytes()) {
      const std::string g = has_batch() ? "g, " : "";
      must_step(d_, TransformLayout{copy, text("(", g, "k, ", side, ") -> (", g, "k // ", kBytes, ", ", side, " * ", kBytes,
                                               " + k %% ", kBytes, ")")});
      must_step(d_, Split{outer, {0, kBytes}, {copy + ".w", byte}});
      outer = copy + ".w";
    }
    if (operand.is_along_k) std::swap(outer, inner);
    const For* across = s_.find_loop(inner);
    int64_t width = 0;
    if (across == nullptr || !as_int(across->extent, &width)) return must_step(d_, Vectorize{inner});
    must_step(d_, Reorder{is_of_bytes() ? std::vector{outer, inner, byte} : std::vector{outer, inner}});
    // Asynchronous copies do not transpose vectors.
    const bool is_whole =
        operand.vector >= kVector && width % kVector == 0 && !(is_ahead() && operand.is_along_k);
    const int64_t vector = is_whole ? kVector : 1, turn = kLanes * vector;
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
      split(all, {0, warps(), kLanes}, {copy + ".n", ty, tx});
    } else {
      split(outer, {0, warps()}, {copy + ".m", ty});
      split(inner, {0, kLanes}, {copy + ".n", tx});
    }
    std::vector<std::string> order = {ty, tx};
    order.insert(order.end(), turns.begin(), turns.end());
    must_step(d_, Reorder{order});
    must_step(d_, Bind{ty, "thread.y"});
    must_step(d_, Bind{tx, "thread.x"});
    if (is_of_bytes()) {
      const bool is_word = operand.is_along_k && (&operand == &w_.a ? p_.a : p_.b).vector >= kBytes;
      if (!is_word || !try_step(d_, Vectorize{byte})) try_step(d_, Unroll{byte});
      // Words that are neighbours in memory go to different rows: one load, which LLVM makes, and several stores.
      if (vector > 1) try_step(d_, Unroll{lane});
    } else if (vector > 1) {
      try_step(d_, Vectorize{lane});
    }
    for (const std::string& n : turns) {
      if (!is_of_bytes() && only_copies(copy, p_.factor)) must_step(d_, Annotate{"", n, kMasked, "1"});
      try_step(d_, Unroll{n});
    }
  }

  void write_back() {
    must_step(d_, ReverseComputeAt{last_, loop("j.b")});
    const std::string i = last_ + ".i", j = last_ + ".j";
    must_step(d_, Split{i, {t_.threads_i, t_.rows}, {i + ".t", i + ".r"}});
    must_step(d_, Split{j, {groups(), t_.threads_j, kVector}, {j + ".o", j + ".t", j + ".v"}});
    must_step(d_, Reorder{{i + ".t", j + ".t", i + ".r", j + ".o", j + ".v"}});
    bind_threads(last_);
    must_step(d_, Unroll{i + ".r"});
    must_step(d_, Unroll{j + ".o"});
    // One column after the other: registers hold the place of one.
    if (p_.has_scattered_columns() && try_step(d_, Reorder{{j + ".o", j + ".v", i + ".r"}}))
      must_step(d_, Unroll{j + ".v"});
    else
      try_step(d_, Vectorize{j + ".v"});
  }

  const Product w_;
  const Tile t_;
};

}  // namespace

bool is_grid_product(const Schedule& schedule, const std::string& block) {
  return as_product(schedule, block).has_value();
}

namespace {

bool schedule(Draft& draft, const std::string& block, bool parts_launch) {
  if (schedule_grid_warpgroups(draft, block) || schedule_grid_matrices(draft, block)) return true;
  std::optional<Product> product = as_product(draft, block);
  if (!product || !draft.refusal) return false;
  // Bytes without an instruction for them are numbers as others.
  if (product->is_of_bytes() && !dot_instruction(draft.target, product->factor)) product->factor = ElementType::i32;
  auto words = [](const Product& p) { return p.is_of_bytes() ? in_words(p) : p; };
  return try_all(draft, {"products in register tiles", block}, [&] {
    const Gpu& gpu = draft.target.gpu;
    auto time = [&](const Product& p) { return best_product_time(extents_of(words(p), gpu), gpu); };
    const ElementType factor = product->factor;
    if (std::string part = divide_sum(draft, *product, time, parts_launch); part != block) {
      product = as_product(draft, part);
      product->factor = factor;
    }
    return GridProduct(draft, *product, words(*product)).run();
  });
}

}  // namespace

bool schedule_grid_product(Draft& draft, const std::string& block) {
  if (schedule(draft, block, true)) return true;
  // Groups as batches, which is for products only.
  Draft batched{draft.schedule, draft.decide, draft.target};
  const RuleScope scope(batched, {"products of groups", block, kPlainOnGrid});
  const bool is_separate = separate_grid_groups(batched, block);
  draft.refused.insert(draft.refused.end(), batched.refused.begin(), batched.refused.end());
  if (!is_separate || !is_grid_product(batched.schedule, block)) return false;
  std::swap(draft.schedule, batched.schedule);
  if (schedule(draft, block, true)) return true;
  std::swap(draft.schedule, batched.schedule);
  return false;
}
bool schedule_grid_product_of_parts(Draft& draft, const std::string& block) { return schedule(draft, block, false); }

}  // namespace mcc::tuner
