// Sums of products on a GPU's tensor cores by warpgroups (wgmma): 16-bit floats and tf32, summed in f32; bytes, summed in i32.
//
//   bound g @{block.z}: bound i.b @{block.y}: bound j.b @{block.x}                 a tile of C for each block
//     for k.o
//       bound thread.z, y, x: A's part, fetched by all threads, into shared memory; B's part
//       bound i.w @{thread.z}: bound i.l in 8 @{thread.y}: bound j.q in 4 @{thread.x}
//         for k.m: j.m in N / 64, j.n in 8, i.h in 2, j.p in 2, k.q in 2, k.i   one instruction of each four warps: 64 x N
//     bound thread.z, y, x: each thread's sums, with the elementwise consumer
//
// Each thread has the sums that the instruction gives it (tensor/instructions.cpp). Shared memory holds an operand in rows of 128
// bytes (64 where the depth is no more) of what are neighbours in memory, along k or across it, with units of 16 bytes exchanged
// by the row (swizzling): eight threads that fetch a row's 128 bytes write to all banks, and so do eight rows' units of one
// column, which the instruction reads. Products of one step run while the next one begins (pipeline_copies). Bytes and
// tf32 stand along k in memory already: no instruction transposes them, and single bytes cannot be copied asynchronously.
#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/intrinsics.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/product_time.h"
#include "tensor/schedule/tree.h"
#include "tensor/simplify.h"
#include "tuner/grid_product.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

struct Tile {
  int64_t groups;   // warpgroups of a block, each with 64 rows
  int64_t columns;  // of C
  int64_t depth;    // of k at a time
  int64_t stages;   // of the operands in shared memory at once
  int64_t rows() const { return groups * 64; }
  int64_t warps() const { return groups * 4; }
};

constexpr int64_t kColumns = 64;    // of the instruction's loops below its outermost
constexpr int64_t kRowBytes = 128;  // of shared memory

int64_t bytes_of(const Product& p) { return byte_size(p.factor); }  // of an element, on both sides
int64_t stage_bytes(const Tile& t, const Product& p) {
  return (t.rows() + t.columns) * t.depth * bytes_of(p);
}

// An estimate of time: cycles of a multiprocessor, times 128.
double score(const Tile& t, const Product& p, const Gpu& gpu) {
  const int64_t threads = t.warps() * gpu.warp, shared = t.stages * stage_bytes(t, p);
  // Accumulators, and what addresses and copies take.
  const int64_t registers = t.columns / 2 + 56;
  const int64_t resident = std::min(
      {gpu.threads_per_multiprocessor / threads, gpu.registers_per_multiprocessor / (registers * threads),
       gpu.shared_per_multiprocessor / shared, int64_t{gpu.blocks_per_multiprocessor}});
  if (resident < 1 || shared > gpu.shared_per_block_max || registers > gpu.registers_per_thread)
    return INFINITY;
  const double blocks =
      static_cast<double>(ceil_div64(p.i.extent, t.rows()) * ceil_div64(p.j.extent, t.columns) * p.g.extent);
  const double steps = static_cast<double>(ceil_div64(p.k.extent, t.depth));
  // Of one step of one block. Each warpgroup reads its rows and all columns.
  const double sides = static_cast<double>(stage_bytes(t, p));
  const double read = static_cast<double>(t.groups * (64 + t.columns) * t.depth * bytes_of(p));
  // In so many bytes along k as 16 of 16 bits have.
  const double products =
      static_cast<double>(t.rows() * t.columns * t.depth * bytes_of(p)) / 2 / gpu.warpgroup_fmas;
  constexpr double kSharedBytes = 128, kMemoryBytes = 48;  // a cycle
  // Cycles until the memory answers: at first, and when it has much to do, of the steps fetched ahead together.
  constexpr double kFirst = 500, kWait = 1200;
  constexpr double kBegin = 40;  // of a barrier, and of what begins anew behind it
  const double at_once = std::clamp(blocks / gpu.multiprocessors, 1.0, static_cast<double>(resident));
  const double step = std::max({products, (sides + read) / kSharedBytes, sides / kMemoryBytes}) + kBegin;
  const double results = static_cast<double>(4 * t.rows() * t.columns) / kMemoryBytes;
  const double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  const double ahead = static_cast<double>(t.stages - 2);
  return 128 * rounds * (kFirst + steps * std::max(at_once * step, kWait / ahead) + at_once * results);
}

// All tiles that the GPU can run, the best first.
std::vector<Tile> legal_tiles(const Product& p, const Gpu& gpu) {
  std::vector<Tile> tiles;
  for (int64_t groups : {1, 2}) {
    for (int64_t columns : {64, 128, 192, 256}) {
      for (int64_t row_bytes : {kRowBytes / 2, kRowBytes, 2 * kRowBytes}) {
        for (int64_t stages : {3, 4, 5}) {
          const Tile t{groups, columns, row_bytes / bytes_of(p), stages};
          if (p.takes_columns(columns) && std::isfinite(score(t, p, gpu))) tiles.push_back(t);
        }
      }
    }
  }
  bring_best_first(tiles, [&](const Tile& t) { return score(t, p, gpu); });
  return tiles;
}

// Large enough for a tile, and fetched in vectors of at least 8 bytes; what no instruction transposes along k.
bool fits(const Product& p) {
  const int64_t vector = 8 / bytes_of(p);
  const bool is_transposable = bytes_of(p) == 2;
  return p.factors_name() && p.i.extent >= 64 && p.j.extent >= 64 && p.k.extent >= 64 &&
         p.a.vector >= vector && p.b.vector >= vector &&
         (is_transposable || (p.a.is_along_k && p.b.is_along_k));
}

class GridWarpgroups : private ProductAxes {
 public:
  GridWarpgroups(Draft& draft, const Product& product, const Tile& tile)
      : ProductAxes(draft, product), t_(tile) {}

  bool run() {
    fuse_sides();
    separate_result();
    operand(p_.a, "a", "i");
    operand(p_.b, "b", "j");
    inline_copies();
    const bool is_bulk = is_matrix(p_.a, "a", p_.i, t_.rows()) && is_matrix(p_.b, "b", p_.j, t_.columns);
    // The copy engine keeps the order of rows.
    if (!is_bulk && p_.b.is_along_k) dealt_.tiles = most_dealt();
    must_step(d_, PadEinsum{p_.block, {"i", "j", "k"}, {t_.rows(), t_.columns, t_.depth}});
    const std::string from = has_batch() ? "g, i, j" : "i, j", to = has_batch() ? "g, i" : "i";
    must_step(d_, TransformLayout{acc_, text("(", from, ") -> (", to, " // 16, ", dealt_.tile(),
                                             ", i %% 16 // 8, i %% 8, ", dealt_.thread(), ", j %% 2)")});
    tile();
    for (const auto& [operand, name, side] : {std::tuple{&p_.a, "a", "i"}, {&p_.b, "b", "j"}})
      is_bulk ? stage_boxes(*operand, name, side) : stage(*operand, name, side);
    if (dealt_.tiles > 1)
      must_step(d_, TransformLayout{loop("b"), text("(", batch_index(), "j, k) -> (", batch_index(), dealt_.place(), ", k)")});
    in_rows(p_.a, "a", "i");
    in_rows(p_.b, "b", "j");
    write_back();
    must_step(d_, DecomposeReduction{p_.block, loop("k.o")});
    must_step(d_, SetScope{acc_, "registers"});
    must_step(d_, Annotate{"", loop("k.o"), kStages, text(t_.stages)});
    must_step(
        d_, Tensorize{loop(t_.columns > kColumns ? "j.m" : "j.n"),
                      text("wgmma_m64n", t_.columns, "k", 2 * unit(), "_", p_.a.is_along_k ? "row_" : "col_",
                           p_.b.is_along_k ? "col_" : "row_", p_.factors_name(),
                           dealt_.tiles > 2   ? "_dealt"
                           : dealt_.tiles > 1 ? "_dealt_2"
                                              : "")});
    // What the instruction matches are sums, and so linear.
    exchange_units(p_.a, "a", "i");
    exchange_units(p_.b, "b", "j");
    for (const char* name : {"j.m", "j.n", "j.c", "i.h", "j.p"}) {
      if (s_.find_loop(p_.block + ".init." + name) != nullptr)
        must_step(d_, Unroll{p_.block + ".init." + name});
    }
    must_step(d_, Unroll{loop("k.m")});
    return static_cast<bool>(d_.refusal);
  }

 private:
  std::vector<std::string> order_of(const Operand& o, const std::string& side) const {
    return with_batch(o.is_along_k ? std::vector<std::string>{side, "k"}
                                   : std::vector<std::string>{"k", side});
  }

  // Into shared memory, in the order in which it lies in memory.
  void operand(const Operand& o, const std::string& name, const std::string& side) {
    must_step(d_, Reindex{p_.block, o.buffer.name(), "shared", loop(name), order_of(o, side)});
  }
  // Elements that stay together, and of a row in shared memory.
  int64_t unit() const { return unit_elements(p_.factor); }
  int64_t longest_row() const { return kRowBytes / bytes_of(p_); }
  int64_t row_of(const Operand& o) const {
    return o.is_along_k ? std::min(t_.depth, longest_row()) : longest_row();
  }
  // What A and B are multiplied as: of the same size, if not the same type.
  ElementType factor_of(const Operand& o) const {
    return &o == &p_.b && p_.is_of_bytes() ? ElementType::i8 : p_.factor;
  }
  std::string batch_index() const { return has_batch() ? "g, " : ""; }
  void in_rows(const Operand& o, const std::string& name, const std::string& side) {
    const std::string row = o.is_along_k ? side : "k", along = o.is_along_k ? "k" : side;
    const int64_t length = row_of(o);
    must_step(d_, TransformLayout{loop(name),
                                  text("(", join(order_of(o, side), ", "), ") -> (", batch_index(), along,
                                       " // ", length, ", ", row, ", ", along, " %% ", length, ")")});
  }
  // The pattern of the instruction's descriptor for rows of 128 or 64 bytes: by bits 7 and up of the address.
  void exchange_units(const Operand& o, const std::string& name, const std::string& side) {
    const std::string row = o.is_along_k ? side : "k";
    const int64_t units = row_of(o) / unit(), rows = longest_row() / row_of(o);
    const std::string by = rows == 1 ? text(row, " %% ", units) : text(row, " // ", rows, " %% ", units);
    must_step(d_, TransformLayout{loop(name), text("(", batch_index(), "n, ", row, ", c) -> (", batch_index(),
                                                   "n, ", row, ", (c // ", unit(), " ^ ", by, ") * ", unit(),
                                                   " + c %% ", unit(), ")")});
  }

  void tile() {
    std::vector<std::string> order;
    for (const std::string& name : with_batch({"i", "j", "k"}))
      order.push_back(loop(name));
    must_step(d_, Reorder{order});
    must_step(d_, Split{loop("i"),
                        {0, t_.warps(), 2, kWarpRows},
                        {loop("i.b"), loop("i.w"), loop("i.h"), loop("i.l")}});
    split_columns();
    must_step(d_, Split{loop("k"),
                        {0, t_.depth / (2 * unit()), 2, unit()},
                        {loop("k.o"), loop("k.m"), loop("k.q"), loop("k.i")}});
    std::vector<std::string> nest = {loop("i.b"), loop("j.b"), loop("k.o"), loop("i.w"),
                                     loop("i.l"), loop("j.q"), loop("k.m")};
    if (t_.columns > kColumns) nest.push_back(loop("j.m"));
    nest.push_back(loop("j.n"));
    if (dealt_.tiles > 1) nest.push_back(loop("j.c"));
    for (const char* name : {"i.h", "j.p", "k.q", "k.i"})
      nest.push_back(loop(name));
    must_step(d_, Reorder{nest});
    if (has_batch()) must_step(d_, Bind{loop("g"), "block.z"});
    must_step(d_, Bind{loop("i.b"), "block.y"});
    must_step(d_, Bind{loop("j.b"), "block.x"});
    bind_threads(loop("i.w"), loop("i.l"), loop("j.q"));
  }
  // Into tiles, 64 columns of a tile, eights of these, and each thread's two.
  void split_columns() {
    const std::string j = loop("j");
    std::vector<int64_t> factors = {0};
    std::vector<std::string> names = {j + ".b"};
    auto add = [&](int64_t factor, const char* name) {
      factors.push_back(factor);
      names.push_back(j + name);
    };
    if (t_.columns > kColumns) add(t_.columns / kColumns, ".m");
    add(kColumns / 8 / dealt_.tiles, ".n");
    add(kWarpColumns, ".q");
    if (dealt_.tiles > 1) add(dealt_.tiles, ".c");
    add(2, ".p");
    must_step(d_, Split{j, factors, names});
  }
  void bind_threads(const std::string& z, const std::string& y, const std::string& x) {
    must_step(d_, Bind{z, "thread.z"});
    must_step(d_, Bind{y, "thread.y"});
    must_step(d_, Bind{x, "thread.x"});
  }

  // Whether the operand's parts are boxes of a matrix, as it is (in its type, too): of rows of a multiple of 16 bytes; and in
  // batches, one behind the other, of whole tiles.
  bool is_matrix(const Operand& o, const std::string& name, const Side& side, int64_t tile) const {
    const Block* copy = s_.find_block(loop(name));
    const auto* store = copy ? copy->body.as<Store>() : nullptr;
    const auto* load = store ? store->value.as<Load>() : nullptr;
    if (!load || load->buffer.element() != factor_of(o) || count_of(load->buffer) != count_of(store->buffer))
      return false;
    // In as many dimensions as it has.
    Analyzer inside;
    for (const Axis& axis : copy->axes)
      inside.bind(axis.var, axis.domain.min, axis.domain.extent);
    auto place = [](const Buffer& buffer, const std::vector<Expr>& indices) {
      Expr at(0);
      for (size_t d = 0; d < indices.size(); ++d)
        at = at * buffer.shape()[d] + indices[d];
      return at;
    };
    if (inside.constant_difference(place(load->buffer, load->indices),
                                   place(store->buffer, store->indices)) != 0)
      return false;
    const int64_t pitch = o.is_along_k ? p_.k.extent : side.extent,
                  rows = o.is_along_k ? side.extent : p_.k.extent;
    return pitch % unit() == 0 && (!has_batch() || rows % (o.is_along_k ? tile : t_.depth) == 0);
  }

  // One thread has the copy engine fetch the operand's part for one step of k.o.
  void stage_boxes(const Operand& o, const std::string& name, const std::string& side) {
    const std::string copy = loop(name);
    must_step(d_, ComputeAt{copy, loop("k.o")});
    must_step(d_, Annotate{"", copy + (o.is_along_k ? "." + side : ".k"), kBulk, "1"});
  }

  // All threads fetch the operand's part for one step of k.o; neighbours in memory by neighbouring threads.
  void stage(const Operand& o, const std::string& name, const std::string& side) {
    const std::string copy = loop(name), all = copy + ".all", turn = copy + ".n", lane = copy + ".v";
    const std::string outer = copy + (o.is_along_k ? "." + side : ".k"),
                      inner = copy + (o.is_along_k ? ".k" : "." + side);
    must_step(d_, ComputeAt{copy, loop("k.o")});
    must_step(d_, Fuse{{outer, inner}, all});
    must_step(d_, Split{all,
                        {0, t_.warps(), kWarpRows, kWarpColumns, o.vector},
                        {turn, copy + ".z", copy + ".y", copy + ".x", lane}});
    must_step(d_, Reorder{{copy + ".z", copy + ".y", copy + ".x", turn}});
    bind_threads(copy + ".z", copy + ".y", copy + ".x");
    if (only_copies(copy, factor_of(o))) must_step(d_, Annotate{"", lane, kMasked, "1"});
    try_step(d_, Vectorize{lane});
    try_step(d_, Unroll{turn});
  }

  void write_back() {
    must_step(d_, ReverseComputeAt{last_, loop("j.b")});
    const std::string i = last_ + ".i", j = last_ + ".j";
    // The loops of the sums themselves where these are whole tiles; else loops over the tile's rows and columns.
    if (s_.find_loop(i) != nullptr || s_.find_loop(j) != nullptr) {
      must_step(d_, Split{i, {t_.warps(), 2, kWarpRows}, {i + ".w", i + ".h", i + ".l"}});
      must_step(d_, Split{j, {t_.columns / 8 / dealt_.tiles, kWarpColumns, dealt_.pairs()}, {j + ".n", j + ".q", j + ".p"}});
      must_step(d_, Reorder{{i + ".w", i + ".l", j + ".q", i + ".h", j + ".n", j + ".p"}});
    }
    bind_threads(i + ".w", i + ".l", j + ".q");
    if (s_.find_loop(j + ".c") != nullptr) {
      must_step(d_, Reorder{{i + ".h", j + ".c", j + ".p"}});
      must_step(d_, Fuse{{j + ".c", j + ".p"}, j + ".p"});
    }
    for (const std::string& name : {j + ".n", i + ".h"}) {
      if (s_.find_loop(name) != nullptr) must_step(d_, Unroll{name});
    }
    try_step(d_, Vectorize{j + ".p"});
  }

  const Tile t_;
  Dealt dealt_;
};

// Numbers of few bits are unpacked by a launch before: the copy engine fetches what is in memory.
void unpack_before(Product& p, const std::vector<std::string>& unpacked) {
  std::erase_if(p.copies, [&](const std::string& copy) {
    return std::find(unpacked.begin(), unpacked.end(), copy) != unpacked.end();
  });
  p.a.is_computed = p.b.is_computed = false;
}

double unpacking_time(const Product& p, const Gpu& gpu) {
  constexpr int64_t kHalves = 2;  // an element takes half of a sum's bytes
  auto of = [&](const Operand& o, const Side& side) {
    return o.is_computed ? parts_time(side.extent * p.k.extent / kHalves, gpu, true) : 0;
  };
  return of(p.a, p.i) + of(p.b, p.j);
}

}  // namespace

bool schedule_grid_warpgroups(Draft& draft, const std::string& block) {
  const Gpu& gpu = draft.target.gpu;
  std::optional<Product> product = as_product(draft, block);
  if (!product || !draft.refusal || !gpu.has_wgmma() || !fits(*product)) return false;
  const std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (info->store.buffer.element() != product->sum()) return false;
  auto time = [&](const Product& p) {
    std::vector<Tile> tiles = legal_tiles(p, gpu);
    return tiles.empty() ? INFINITY : score(tiles.front(), p, gpu);
  };
  if (time(*product) + unpacking_time(*product, gpu) > grid_matrices_time(*product, gpu)) return false;
  const std::vector<std::string> unpacked = unpacked_for(draft.schedule, *info);
  unpack_before(*product, unpacked);
  return try_all(draft, {"products by warpgroups", block}, [&] {
    if (std::string part = divide_sum(draft, *product, time); part != block) {
      product = as_product(draft, part);
      unpack_before(*product, unpacked);
    }
    // Names of their own: where a tile is refused, the rule of a warp's instructions asks for its sizes.
    const Tile tile = ask_sizes<Tile>(draft, product->block, legal_tiles(*product, gpu),
                                      {{"group_columns", &Tile::columns},
                                       {"groups", &Tile::groups},
                                       {"group_depth", &Tile::depth},
                                       {"group_stages", &Tile::stages}},
                                      [&](const Tile& t) { return score(t, *product, gpu); });
    return GridWarpgroups(draft, *product, tile).run();
  });
}

}  // namespace mcc::tuner
