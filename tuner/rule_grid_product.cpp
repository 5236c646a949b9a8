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
#include "tensor/schedule/tree.h"
#include "tensor/visit.h"
#include "tuner/grid_rules.h"

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

// One of g, i, j, k: axes of the block, which become the one of that name.
struct Side {
  std::string name;
  std::vector<size_t> axes;
  int64_t extent = 1;
  bool is_empty() const { return axes.empty(); }
};

struct Operand {
  Buffer buffer;
  bool is_along_k = false;  // neighbours in memory follow each other along k
  bool is_plain = false;    // vectors of neighbours can be fetched
};

struct Product {
  std::string block;
  Side g{"g", {}, 1}, i{"i", {}, 1}, j{"j", {}, 1}, k{"k", {}, 1};
  Operand a, b;  // that moves along i; along j
  // Elements after which the inner axes of k (a window's) begin anew: a whole number of them at a time, so that their indices are
  // the same in each step.
  int64_t period = 1;
};

int64_t depth_of(const Tile& t, const Product& p) {
  constexpr int64_t kLongest = 64;
  int64_t depth = t.depth;
  if (p.period > 1 && p.period <= kLongest) {
    depth = std::max<int64_t>((t.depth + p.period / 2) / p.period, 1) * p.period;
  }
  return std::min(depth, p.k.extent);
}

// An estimate of time, in arbitrary units: rounds of blocks over the multiprocessors, each as long as its arithmetic, or as
// what it fetches from shared memory.
double score(const Tile& t, const Product& p, const Gpu& gpu) {
  auto ceil = [](int64_t n, int64_t d) { return (n + d - 1) / d; };
  double blocks =
      static_cast<double>(ceil(p.i.extent, t.block_i()) * ceil(p.j.extent, t.block_j()) * p.g.extent);
  // Accumulators, a row and a column, and what addresses take.
  int64_t registers = t.rows * t.columns + 2 * (t.rows + t.columns) + 32;
  int64_t shared = (t.block_i() + kVector + t.block_j() + kVector) * depth_of(t, p) * 4;
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
  return rounds * at_once * (std::max(products, fetches) + from_memory) / busy;
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

// One question for each size, each with the values that the answers before leave.
Tile choose_tile(Draft& draft, const Product& p) {
  const Gpu& gpu = draft.target.gpu;
  std::vector<Tile> tiles = legal_tiles(p, gpu);
  auto ask = [&](const char* name, int64_t Tile::*size) {
    std::vector<int64_t> options;
    for (const Tile& t : tiles)
      options.push_back(t.*size);
    std::sort(options.begin(), options.end());
    options.erase(std::unique(options.begin(), options.end()), options.end());
    const int64_t preferred = tiles.front().*size;
    const int64_t chosen =
        options.size() == 1 ? preferred : draft.decide.choose(text(p.block, ".", name), options, preferred);
    std::erase_if(tiles, [&](const Tile& t) { return t.*size != chosen; });
    if (chosen == preferred) return;
    // What analysis prefers is gone: the best of what is left comes first.
    std::iter_swap(tiles.begin(),
                   std::min_element(tiles.begin(), tiles.end(), [&](const Tile& a, const Tile& b) {
                     return score(a, p, gpu) < score(b, p, gpu);
                   }));
  };
  ask("rows", &Tile::rows);
  ask("columns", &Tile::columns);
  ask("threads_i", &Tile::threads_i);
  ask("threads_j", &Tile::threads_j);
  ask("depth", &Tile::depth);
  return tiles.front();
}

// The block as such a product; empty when it is something else.
std::optional<Product> as_product(const Schedule& s, const std::string& name) {
  std::optional<BlockInfo> info = analyze(s, name);
  if (!info || !info->is_contraction || info->loads.size() != 2 || info->is_nested) return std::nullopt;
  const Access &x = info->loads[0], &y = info->loads[1];
  if (x.buffer.same_as(y.buffer) || bit_width(info->store.buffer.element()) != 32) return std::nullopt;
  if (s.loops_of(name).size() != info->axes.size()) return std::nullopt;
  Product p;
  p.block = name;
  Side of_x, of_y;
  for (size_t n = 0; n < info->axes.size(); ++n) {
    bool moves_x = x.strides[n] != 0, moves_y = y.strides[n] != 0;
    if (!moves_x && !moves_y) return std::nullopt;
    if (info->axes[n].is_reduce && !(moves_x && moves_y)) return std::nullopt;
    Side& side = info->axes[n].is_reduce ? p.k : moves_x && moves_y ? p.g : moves_x ? of_x : of_y;
    side.axes.push_back(n);
    side.extent *= info->axes[n].extent;
  }
  if (of_x.is_empty() || of_y.is_empty() || p.k.is_empty() || p.g.extent > 65535) return std::nullopt;
  auto is_contiguous = [&](const Side& side) { return info->store.strides[side.axes.back()] == 1; };
  if (!is_contiguous(of_x) && !is_contiguous(of_y)) return std::nullopt;
  bool x_is_b = is_contiguous(of_x);
  auto operand = [&](const Access& access, const Side& side) {
    Operand o{access.buffer};
    int64_t along_k = access.strides[p.k.axes.back()], along_side = access.strides[side.axes.back()];
    o.is_along_k = along_k == 1 && along_side != 1;
    // One axis, or several that are one stretch of memory.
    auto is_stretch = [&](const Side& of) {
      int64_t stride = 1;
      for (size_t n = of.axes.size(); n-- > 0;) {
        if (access.strides[of.axes[n]] != stride) return false;
        stride *= info->axes[of.axes[n]].extent;
      }
      return of.extent % kVector == 0;
    };
    o.is_plain = is_stretch(o.is_along_k ? p.k : side) && bit_width(access.buffer.element()) == 32;
    size_t steps = 0;
    for (size_t n = 0; n < info->axes.size(); ++n) {
      // Every row of vectors begins at a multiple of their length; a window along it does not.
      o.is_plain &= access.strides[n] == 1 || access.strides[n] % kVector == 0;
      steps += access.strides[n] == 1;
    }
    o.is_plain &= steps == 1;
    return o;
  };
  p.a = x_is_b ? operand(y, of_y) : operand(x, of_x);
  p.b = x_is_b ? operand(x, of_x) : operand(y, of_y);
  for (size_t n = 1; n < p.k.axes.size(); ++n)
    p.period *= info->axes[p.k.axes[n]].extent;
  p.i.axes = (x_is_b ? of_y : of_x).axes;
  p.i.extent = (x_is_b ? of_y : of_x).extent;
  p.j.axes = (x_is_b ? of_x : of_y).axes;
  p.j.extent = (x_is_b ? of_x : of_y).extent;
  return p;
}

class GridProduct {
 public:
  GridProduct(Draft& draft, const Product& product)
      : d_(draft), s_(draft.schedule), p_(product), t_(choose_tile(draft, product)) {}

  bool run() {
    result_ = only_buffer_written(*s_.find_block(p_.block));
    find_axes();
    find_consumer();
    for (const Side* side : {&p_.g, &p_.i, &p_.j, &p_.k})
      fuse_side(*side);
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
  std::string loop(const std::string& name) const { return p_.block + "." + name; }
  bool has_batch() const { return !p_.g.is_empty(); }

  void find_axes() {
    for (const Axis& axis : s_.find_block(p_.block)->axes)
      axes_.push_back(axis.var.name());
  }

  // An elementwise block that alone reads the result, and the axes of it that walk the block's axes.
  void find_consumer() {
    if (is_output(s_.func(), result_)) return;
    std::vector<std::string> consumers = s_.consumers(p_.block);
    std::optional<BlockInfo> info = consumers.size() == 1 ? analyze(s_, consumers[0]) : std::nullopt;
    if (!info || !info->is_injective || info->spatial != p_.g.extent * p_.i.extent * p_.j.extent) return;
    const Block& block = *s_.find_block(p_.block);
    const Block& consumer = *s_.find_block(consumers[0]);
    const Load* read = nullptr;
    for_each_expr(consumer.body, [&](const Expr& e) {
      const auto* l = e.as<Load>();
      if (l && l->buffer.same_as(result_)) read = l;
    });
    const auto* store = block.body.as<Store>();
    if (!read || !store) return;
    std::vector<std::string> axes(block.axes.size());
    for (size_t d = 0; d < store->indices.size(); ++d) {
      if (store->indices[d].as<IntImm>()) continue;
      for (size_t n = 0; n < block.axes.size(); ++n) {
        const auto* var = read->indices[d].as<VarNode>();
        if (store->indices[d].same_as(block.axes[n].var) && var) axes[n] = var->name;
      }
    }
    for (const Side* side : {&p_.g, &p_.i, &p_.j}) {
      for (size_t n : side->axes) {
        if (axes[n].empty()) return;
      }
    }
    consumer_ = consumers[0];
    consumer_axes_ = axes;
  }

  void fuse_side(const Side& side) {
    if (side.is_empty()) return;
    fuse(p_.block, axes_, side);
    if (!consumer_.empty() && side.name != "k") fuse(consumer_, consumer_axes_, side);
  }
  void fuse(const std::string& block, const std::vector<std::string>& names, const Side& side) {
    std::vector<std::string> axes;
    for (size_t n : side.axes)
      axes.push_back(names[n]);
    // A single axis gets the name of its side, too: all loops have one name from then on.
    must_step(d_, FuseAxes{block, axes, side.name});
  }

  std::vector<std::string> with_batch(std::vector<std::string> axes) const {
    if (has_batch()) axes.insert(axes.begin(), "g");
    return axes;
  }

  void reindex() {
    acc_ = p_.block + ".acc";
    must_step(d_, Reindex{p_.block, result_.name(), "global", acc_, with_batch({"i", "j"})});
    last_ = acc_;
    if (!consumer_.empty()) {
      must_step(d_, ComputeInline{acc_});
      last_ = consumer_;
    }
    must_step(d_, Reindex{p_.block, p_.a.buffer.name(), "shared", p_.block + ".a", with_batch({"k", "i"})});
    must_step(d_, Reindex{p_.block, p_.b.buffer.name(), "shared", p_.block + ".b", with_batch({"k", "j"})});
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
    const int64_t vector = operand.is_plain && width % kVector == 0 ? kVector : 1,
                  turn = t_.threads_j * vector;
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

  Draft& d_;
  Schedule& s_;
  const Product& p_;
  const Tile t_;
  Buffer result_;
  std::string consumer_, acc_, last_;
  std::vector<std::string> axes_, consumer_axes_;  // names, by the block's axes
};

}  // namespace

bool is_grid_product(const Schedule& schedule, const std::string& block) {
  return as_product(schedule, block).has_value();
}

namespace {

// Into how many parts the sum is divided, each of which has blocks of its own: where a result has few tiles and long sums.
int64_t choose_parts(Draft& draft, const Product& p, int64_t first_extent) {
  const Gpu& gpu = draft.target.gpu;
  std::vector<int64_t> options{1};
  int64_t best = 1;
  double best_time = best_score(p, gpu);
  for (int64_t parts = 2; parts <= 32 && first_extent % parts == 0 && p.k.extent / parts >= gpu.warp;
       parts *= 2) {
    Product divided = p;
    divided.g.extent *= parts;
    divided.k.extent /= parts;
    if (divided.g.extent > 65535) break;
    // Partial results are stored and loaded, by one more kernel. Units of `score`: multiplications in the time of one on each
    // of the 128 units of a multiprocessor.
    double bytes = 8.0 * static_cast<double>(divided.g.extent * p.i.extent * p.j.extent);
    double cycles = bytes * gpu.ghz / std::max(gpu.gb_per_s, 1.0) + gpu.launch_us * 1e3 * gpu.ghz;
    double time = best_score(divided, gpu) + 128 * cycles;
    options.push_back(parts);
    if (time >= best_time) continue;
    best = parts;
    best_time = time;
  }
  return options.size() == 1 ? 1 : draft.decide.choose(p.block + ".parts", options, best);
}

// The block that sums one part for each, in place of the block, which adds up the parts; or the block itself.
std::string divide_sum(Draft& draft, const Product& p) {
  const std::string first = analyze(draft.schedule, p.block)->axes[p.k.axes[0]].loop;
  int64_t extent = 0;
  if (!as_int(draft.schedule.find_loop(first)->extent, &extent)) return p.block;
  const int64_t parts = choose_parts(draft, p, extent);
  const std::string part = p.block + ".part";
  bool is_divided = parts > 1 && try_all(draft, [&] {
                      return try_step(draft, Split{first, {parts, 0}, {first + ".part", first}}) &&
                             try_step(draft, Rfactor{p.block, first + ".part", part, 0}) &&
                             as_product(draft.schedule, part).has_value();
                    });
  return is_divided ? part : p.block;
}

}  // namespace

bool schedule_grid_product(Draft& draft, const std::string& block) {
  std::optional<Product> product = as_product(draft.schedule, block);
  if (!product || !draft.refusal) return false;
  Schedule before = draft.schedule;
  if (std::string part = divide_sum(draft, *product); part != block)
    product = as_product(draft.schedule, part);
  if (GridProduct(draft, *product).run()) return true;
  draft.schedule = std::move(before);
  draft.refusal = {};
  return false;
}

}  // namespace mcc::tuner
