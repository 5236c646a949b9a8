// Sums of products on a GPU's tensor cores: 16-bit floats or tf32, summed in f32; bytes, summed in i32.
//
//   bound g @{block.z}: bound i.b @{block.y}: bound j.b @{block.x}                 a tile of C for each block
//     for k.o
//       bound thread.z, y, x: A's part, fetched by all threads, into shared memory; B's part
//       bound w @{thread.z}: bound i.l in 8 @{thread.y}: bound j.q in 4 @{thread.x}    a tile of tiles of 16 x 8 for each warp
//         for k.m: unrolled i.m: unrolled j.n: j.c: i.h in 2, j.p in 2, k.i           one instruction of the warp
//     bound thread.z, y, x: each thread's sums, with the elementwise consumer
//
// Each thread has the sums that the instruction gives it (tensor/instructions.cpp): rows i.l and i.l + 8, columns 2 j.q and
// 2 j.q + 1 of each 16 x 8. Where B stands along k, each column may have any place in a tile: neighbouring pairs of columns go to
// j.c tiles that follow each other, so that a thread has 2 j.c results side by side, which it stores at once. Shared memory holds an operand as it lies in memory, along k or across it, in rows that are an odd
// number of 16 bytes longer than a multiple of 32, so that the 8 rows of a matrix are in different banks. The product is
// padded to whole tiles; what lies beyond the operands is 0. Bytes stand along k always: no instruction transposes them.
#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/instructions.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_product.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

struct Tile {
  int64_t warps_i, warps_j;  // of a block
  int64_t rows, columns;     // of a warp, in tiles of 16 and of 8
  int64_t depth;             // of k at a time
  int64_t stages;            // parts of the operands in shared memory at once
  int64_t block_i() const { return warps_i * rows * 16; }
  int64_t block_j() const { return warps_j * columns * 8; }
  int64_t warps() const { return warps_i * warps_j; }
};

constexpr int64_t kFewestStages = 2, kMostStages = 4;
constexpr int64_t kRow = 16;  // bytes of a row that the instruction takes at a time

// Registers of a thread for operands that come as single elements. Those of less than four bytes can not go to shared memory by
// themselves: the next part is held. Of open sizes each has a place. Where windows are, places and conditions of each take more, most of
// all in volumes and where sizes are open, and there of vectors, too: what is said of them for all parts stays in registers, which is the
// more where a thread's elements are of different columns, and so do the addresses of the weights.
int64_t registers_of_elements(const Tile& t, const Product& p, int64_t threads) {
  const bool is_held = byte_size(p.factor) < 4, is_scattered = p.has_scattered_windows();
  const int64_t of_scattered = !is_held ? 6 : p.b.is_along_k ? 12 : 8;
  const int64_t each = is_scattered                           ? of_scattered
                       : p.has_windows()                      ? 3
                       : is_held || p.has_scattered_columns() ? 2
                                                              : 0;
  const int64_t elements = (p.a.vector == 1 ? t.block_i() : 0) + (p.b.vector == 1 ? t.block_j() : 0);
  const auto vectors = [&](const Operand& o, const Side& side, int64_t rows) {
    const bool has_places = p.is_open && p.has_windows() && side.axes.size() > 1 && o.vector > 1;
    return has_places ? rows * t.depth / o.vector : 0;
  };
  const int64_t weights = is_held && is_scattered && p.a.vector > 1 ? t.block_i() * t.depth / p.a.vector : 0;
  constexpr int64_t kOfVector = 7, kOfWeights = 3;
  return each * ceil_div64(elements * t.depth, threads) +
         kOfVector * ceil_div64(vectors(p.a, p.i, t.block_i()) + vectors(p.b, p.j, t.block_j()), threads) +
         kOfWeights * ceil_div64(weights, threads);
}

// Whether copies of the operand run by themselves; others go by way of registers, which hold one part at most.
bool is_asynchronous(const Operand& o, const Product& p, const Gpu& gpu) {
  // Of bytes, A's may be unsigned where B's are signed.
  const bool is_as_multiplied =
      o.buffer.element() == p.factor || (p.is_of_bytes() && byte_size(o.buffer.element()) == 1);
  return gpu.has_async_copies() && is_as_multiplied && !o.is_computed && o.vector * byte_size(p.factor) >= 4;
}

// Registers of a thread for the next part of operands in vectors, on GPUs without asynchronous copies.
int64_t registers_of_vectors(const Tile& t, const Product& p, const Gpu& gpu) {
  if (gpu.has_async_copies()) return 0;
  constexpr int64_t kRegister = 4;
  const int64_t place = p.has_windows() ? 6 : 1;  // of a vector
  const int64_t threads = t.warps() * gpu.warp;
  auto of = [&](const Operand& o, int64_t rows) {
    if (o.vector == 1) return int64_t{0};
    const int64_t each = ceil_div64(o.vector * byte_size(p.factor), kRegister) + place;
    return each * ceil_div64(rows * t.depth, threads * o.vector);
  };
  return of(p.a, t.block_i()) + of(p.b, t.block_j());
}

// An estimate of time: cycles of a multiprocessor, times 128.
double score(const Tile& t, const Product& p, const Gpu& gpu) {
  const int64_t bytes = byte_size(p.factor), threads = t.warps() * gpu.warp;
  // Accumulators, fragments, and what addresses and the next part of the operands take.
  const int64_t registers = 4 * t.rows * t.columns + 4 * t.rows + 2 * t.columns + 56;
  // Rows that are fetched: there are some beyond the tile's where it has less than all threads fetch at a time.
  auto rows_of = [&](const Operand& o, int64_t rows) {
    return ceil_div64(round_up64(rows * t.depth, threads * o.vector), t.depth);
  };
  const int64_t rows = rows_of(p.a, t.block_i()) + rows_of(p.b, t.block_j());
  const int64_t shared = t.stages * rows * (t.depth * bytes + kRow);
  const int64_t resident = std::min(
      {gpu.threads_per_multiprocessor / threads, gpu.registers_per_multiprocessor / (registers * threads),
       gpu.shared_per_multiprocessor / shared, int64_t{gpu.blocks_per_multiprocessor}});
  if (resident < 1 || shared > gpu.shared_per_block_max ||
      registers + registers_of_elements(t, p, threads) + registers_of_vectors(t, p, gpu) >
          gpu.registers_per_thread)
    return INFINITY;
  const int64_t tiles = ceil_div64(p.i.extent, t.block_i()) * ceil_div64(p.j.extent, t.block_j());
  const double blocks = static_cast<double>(tiles * p.g.extent);
  const double steps = static_cast<double>(ceil_div64(p.k.extent, t.depth));
  // Of one step of one block.
  const double sides = static_cast<double>((t.block_i() + t.block_j()) * t.depth * bytes);
  const double fragments = static_cast<double>(t.warps() * (t.rows * 16 + t.columns * 8) * t.depth * bytes);
  const double products =
      static_cast<double>(t.block_i() * t.block_j() * t.depth) * (bytes == 4 ? 2 : bytes == 1 ? 0.5 : 1) / gpu.matrix_fmas;
  constexpr double kSharedBytes = 128, kMemoryBytes = 48;  // a cycle
  constexpr double kWait =
      500;  // cycles until the memory answers: the longer a step is, and the more are ahead, the less of it shows
  constexpr double kBegin = 40;  // of a barrier, and of what begins anew behind it
  const double at_once = std::clamp(blocks / gpu.multiprocessors, 1.0, static_cast<double>(resident));
  const double busy = std::min(1.0, at_once * static_cast<double>(t.warps()) / 8);
  // The next part comes while this one is multiplied, and takes its place now and then.
  const double step =
      std::max(products / busy, (sides + fragments) / kSharedBytes) + sides / kMemoryBytes / 2 + kBegin;
  const double results = static_cast<double>(4 * t.block_i() * t.block_j()) / kMemoryBytes;
  const double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  // What is fetched further ahead waits behind what was asked for before.
  const double ahead = std::sqrt(static_cast<double>(t.stages - 1));
  return 128 * rounds * (kWait + steps * std::hypot(at_once * step, kWait / ahead) + at_once * results);
}

// Tiles of 8 columns that are dealt out together, for a thread to have vectors of results: so many at most. Blocks of which one such group holds
// all columns that there are, and others none, would be read at a place that says nothing of the column; so would pairs.
Dealt dealt_tiles(const Tile& t, const Product& p, bool is_along_k, int64_t most) {
  // Rows that are columns, and open, may be more than the two that stand for them.
  if (p.j.extent <= 2 && !(p.is_turned && p.is_open)) return {1, true};
  if (!is_along_k) return {};
  Dealt dealt{std::min(t.columns, most)};
  while (dealt.tiles > 1 && p.j.extent <= dealt.group() && t.block_j() > dealt.group())
    dealt.tiles /= 2;
  return dealt;
}

// Whether tiles have the columns of p: one tile of 8 where these are all. Of wider ones the columns that there are would not say whose
// they are.
bool takes_columns(const Tile& t, const Product& p) {
  constexpr int64_t kColumns = 8;
  return p.j.extent <= kColumns ? t.block_j() == kColumns : p.takes_columns(t.block_j());
}

// All tiles that the GPU can run with so many stages at most, the best first.
std::vector<Tile> legal_tiles(const Product& p, const Gpu& gpu, int64_t most_stages) {
  const int64_t row = kRow / byte_size(p.factor);
  if (!is_asynchronous(p.a, p, gpu) || !is_asynchronous(p.b, p, gpu)) most_stages = kFewestStages;
  std::vector<Tile> tiles;
  for (int64_t warps_i : {1, 2, 4}) {
    for (int64_t warps_j : {1, 2, 4}) {
      for (int64_t rows : {1, 2, 4}) {
        for (int64_t columns : {1, 2, 4, 8}) {
          for (int64_t depth : {2 * row, 4 * row, 8 * row}) {
            const int64_t steps = std::max(kFewestStages, ceil_div64(p.k.extent, depth));
            for (int64_t stages = kFewestStages; stages <= std::min(most_stages, steps); ++stages) {
              const Tile t{warps_i, warps_j, rows, columns, depth, stages};
              if (t.warps() <= 8 && takes_columns(t, p) && std::isfinite(score(t, p, gpu))) tiles.push_back(t);
            }
          }
        }
      }
    }
  }
  bring_best_first(tiles, [&](const Tile& t) { return score(t, p, gpu); });
  return tiles;
}

class GridMatrices : private ProductAxes {
 public:
  GridMatrices(Draft& draft, const Product& product, const Tile& tile)
      : ProductAxes(draft, product), t_(tile) {}

  bool run() {
    fuse_sides();
    separate_result();
    dealt_ = dealt_tiles(t_, p_, stands_along_k(p_.b), most_dealt());
    operand(p_.a, "a", "i");
    operand(p_.b, "b", "j");
    inline_copies();
    must_step(d_, PadEinsum{p_.block, {"i", "j", "k"}, {t_.block_i(), t_.block_j(), t_.depth}});
    const std::string from = has_batch() ? "g, i, j" : "i, j", to = has_batch() ? "g, i" : "i";
    must_step(d_, TransformLayout{acc_, text("(", from, ") -> (", to, " // 16, ", dealt_.tile(),
                                             ", i %% 16 // 8, i %% 8, ", dealt_.thread(), ", ", dealt_.in_pair(), ")")});
    tile();
    stage(p_.a, "a", "i");
    stage(p_.b, "b", "j");
    if (dealt_.tiles > 1 || dealt_.by_threads) {
      const std::string g = has_batch() ? "g, " : "", place = dealt_.place();
      must_step(d_, TransformLayout{loop("b"), stands_along_k(p_.b) ? text("(", g, "j, k) -> (", g, place, ", k)")
                                                                    : text("(", g, "k, j) -> (", g, "k, ", place, ")")});
    }
    write_back();
    must_step(d_, DecomposeReduction{p_.block, loop("k.o")});
    must_step(d_, SetScope{acc_, "registers"});
    must_step(d_, Annotate{"", loop("k.o"), kStages, text(t_.stages)});
    must_step(d_, Tensorize{loop("i.h"), text("mma_m16n8k", depth_of_instruction(), "_",
                                              stands_along_k(p_.a) ? "row_" : "col_",
                                              stands_along_k(p_.b) ? "col_" : "row_", p_.factors_name())});
    for (const char* name : {"i.m", "j.n", "j.c", "i.h", "j.p"}) {
      if (s_.find_loop(loop(name)) != nullptr) must_step(d_, Unroll{loop(name)});
      if (s_.find_loop(p_.block + ".init." + name) != nullptr)
        must_step(d_, Unroll{p_.block + ".init." + name});
    }
    must_step(d_, Unroll{loop("k.m")});
    return static_cast<bool>(d_.refusal);
  }

 private:
  int64_t row() const { return kRow / byte_size(p_.factor); }
  int64_t depth_of_instruction() const { return 2 * row(); }

  bool stands_along_k(const Operand& o) const { return o.is_along_k || p_.is_of_bytes(); }

  // Into shared memory, in the order in which it lies in memory.
  void operand(const Operand& o, const std::string& name, const std::string& side) {
    std::vector<std::string> axes =
        stands_along_k(o) ? std::vector<std::string>{side, "k"} : std::vector<std::string>{"k", side};
    must_step(d_, Reindex{p_.block, o.buffer.name(), "shared", loop(name), with_batch(axes)});
    // Rows of 32 bits that are read element by element: four of them, and 8 neighbours of each, in different banks.
    const bool is_by_element = byte_size(p_.factor) == 4 && !o.is_along_k;
    must_step(d_, StorageAlign{loop(name), is_by_element ? 32 : 2 * row(), is_by_element ? 8 : row()});
  }

  void tile() {
    std::vector<std::string> order;
    for (const std::string& name : with_batch({"i", "j", "k"}))
      order.push_back(loop(name));
    must_step(d_, Reorder{order});
    must_step(d_, Split{loop("i"),
                        {0, t_.warps_i, t_.rows, 2, kWarpRows},
                        {loop("i.b"), loop("i.w"), loop("i.m"), loop("i.h"), loop("i.l")}});
    std::vector<int64_t> columns = {0, t_.warps_j, t_.columns / dealt_.tiles, kWarpColumns, dealt_.tiles, 2};
    std::vector<std::string> names = {loop("j.b"), loop("j.w"), loop("j.n"), loop("j.q"), loop("j.c"), loop("j.p")};
    if (dealt_.by_threads) {
      std::swap(columns[3], columns[5]);
      std::swap(names[3], names[5]);
    }
    must_step(d_, Split{loop("j"), columns, names});
    must_step(d_, Split{loop("k"),
                        {0, t_.depth / depth_of_instruction(), depth_of_instruction()},
                        {loop("k.o"), loop("k.m"), loop("k.i")}});
    must_step(d_, Reorder{{loop("i.b"), loop("j.b"), loop("k.o"), loop("i.w"), loop("j.w"), loop("i.l"),
                           loop("j.q"), loop("k.m"), loop("i.m"), loop("j.n"), loop("j.c"), loop("i.h"),
                           loop("j.p"), loop("k.i")}});
    must_step(d_, Fuse{{loop("i.w"), loop("j.w")}, loop("w")});
    if (has_batch()) must_step(d_, Bind{loop("g"), "block.z"});
    must_step(d_, Bind{loop("i.b"), "block.y"});
    must_step(d_, Bind{loop("j.b"), "block.x"});
    bind_threads(loop("w"), loop("i.l"), loop("j.q"));
  }
  void bind_threads(const std::string& z, const std::string& y, const std::string& x) {
    must_step(d_, Bind{z, "thread.z"});
    must_step(d_, Bind{y, "thread.y"});
    must_step(d_, Bind{x, "thread.x"});
  }

  // All threads fetch the operand's part for one step of k.o; neighbours in memory by neighbouring threads.
  void stage(const Operand& o, const std::string& name, const std::string& side) {
    const std::string copy = loop(name), all = copy + ".all", turn = copy + ".n", lane = copy + ".v";
    const std::string outer = copy + (o.is_along_k ? "." + side : ".k"),
                      inner = copy + (o.is_along_k ? ".k" : "." + side);
    must_step(d_, ComputeAt{copy, loop("k.o")});
    if (stands_along_k(o) != o.is_along_k) must_step(d_, Reorder{{outer, inner}});
    must_step(d_, Fuse{{outer, inner}, all});
    std::vector<int64_t> factors = {0, t_.warps(), kWarpRows, kWarpColumns};
    std::vector<std::string> names = {turn, copy + ".z", copy + ".y", copy + ".x"};
    if (o.vector > 1) {
      factors.push_back(o.vector);
      names.push_back(lane);
    }
    must_step(d_, Split{all, factors, names});
    must_step(d_, Reorder{{names[1], names[2], names[3], turn}});
    bind_threads(names[1], names[2], names[3]);
    if (o.vector > 1) {
      if (only_copies(copy, p_.factor)) must_step(d_, Annotate{"", lane, kMasked, "1"});
      try_step(d_, Vectorize{lane});
    }
    try_step(d_, Unroll{turn});
  }

  void write_back() {
    must_step(d_, ReverseComputeAt{last_, loop("j.b")});
    const std::string i = last_ + ".i", j = last_ + ".j", w = last_ + ".w";
    // The loops of the sums themselves where these are whole tiles; else loops over the tile's rows and columns.
    if (s_.find_loop(i) != nullptr || s_.find_loop(j) != nullptr) {
      must_step(d_, Split{i, {t_.warps_i, t_.rows, 2, kWarpRows}, {i + ".w", i + ".m", i + ".h", i + ".l"}});
      // By threads there is one of the pair for each.
      const int64_t pairs = dealt_.by_threads ? 1 : dealt_.pairs();
      must_step(d_, Split{j, {t_.warps_j, t_.columns / dealt_.tiles, kWarpColumns, pairs}, {j + ".w", j + ".n", j + ".q", j + ".p"}});
      must_step(d_,
                Reorder{{i + ".w", j + ".w", i + ".l", j + ".q", i + ".m", i + ".h", j + ".n", j + ".p"}});
      must_step(d_, Fuse{{i + ".w", j + ".w"}, w});
    }
    bind_threads(w, i + ".l", j + ".q");
    if (s_.find_loop(j + ".c") != nullptr) {
      must_step(d_, Reorder{{i + ".h", j + ".c", j + ".p"}});
      must_step(d_, Fuse{{j + ".c", j + ".p"}, j + ".p"});
    }
    for (const std::string& name : {i + ".m", j + ".n", i + ".h"}) {
      if (s_.find_loop(name) != nullptr) must_step(d_, Unroll{name});
    }
    // One column after the other: registers hold the place of one.
    if (p_.has_scattered_columns() && s_.find_loop(j + ".n") != nullptr &&
        s_.find_loop(j + ".p") != nullptr && try_step(d_, Reorder{{j + ".n", j + ".p", i + ".m", i + ".h"}}))
      must_step(d_, Unroll{j + ".p"});
    else
      try_step(d_, Vectorize{j + ".p"});
  }

  const Tile t_;
  Dealt dealt_;
};

}  // namespace

double grid_matrices_time(const Product& p, const Gpu& gpu) {
  if (!multiplies_matrices(gpu, p.factor)) return INFINITY;
  // How much more stages hide is not known well enough to divide sums by it, or to decide against warpgroups.
  std::vector<Tile> tiles = legal_tiles(p, gpu, kFewestStages);
  return tiles.empty() ? INFINITY : score(tiles.front(), p, gpu);
}

namespace {

// Up to 8 rows would leave half of the instruction's rows without work. Of the transposed product they are columns, of which it has 8.
bool has_few_rows(const Product& p) { return p.i.extent <= kWarpRows; }

// Bytes of activations may be unsigned, those of the transposed product's second operand may not.
bool is_turnable(const Product& p) {
  return !p.is_of_bytes() && p.j.extent > kWarpRows && p.i.axes.size() == 1 && !p.has_windows();
}

std::optional<Product> product_of(const Draft& draft, const std::string& block) {
  std::optional<Product> p = as_product(draft, block);
  if (!p || !has_few_rows(*p) || !is_turnable(*p)) return p;
  std::swap(p->a, p->b);
  std::swap(p->i, p->j);
  std::swap(p->i.name, p->j.name);
  p->is_turned = true;
  return p;
}

}  // namespace

bool schedule_grid_matrices(Draft& draft, const std::string& block) {
  const Gpu& gpu = draft.target.gpu;
  std::optional<Product> product = product_of(draft, block);
  if (!product || !draft.refusal || !multiplies_matrices(gpu, product->factor)) return false;
  if (analyze(draft.schedule, block)->store.buffer.element() != product->sum() || has_few_rows(*product))
    return false;
  if (legal_tiles(*product, gpu, kFewestStages).empty()) return false;
  return try_all(draft, {"products on tensor cores", block}, [&] {
    auto time = [&](const Product& p) { return grid_matrices_time(p, gpu); };
    if (std::string part = divide_sum(draft, *product, time); part != block)
      product = product_of(draft, part);
    const Tile tile = ask_sizes<Tile>(draft, product->block, legal_tiles(*product, gpu, kMostStages),
                                      {{"rows", &Tile::rows},
                                       {"columns", &Tile::columns},
                                       {"warps_i", &Tile::warps_i},
                                       {"warps_j", &Tile::warps_j},
                                       {"depth", &Tile::depth},
                                       {"stages", &Tile::stages}},
                                      [&](const Tile& t) { return score(t, *product, gpu); });
    return GridMatrices(draft, *product, tile).run();
  });
}

}  // namespace mcc::tuner
