// Register tiles.
//
//   for batch, row chunk, panel (parallel):
//     for row tile:
//       init accumulators
//       for reduction: for rows, vectors (unrolled): acc[row, vector] += a[row] * w[vector]
//       consumers: bias, activation, residual; store
//
// A panel of w stays in the nearest cache while the row tiles of a chunk pass over it (G.1 of Low et al., TOMS 2016: the
// micro-kernel streams one operand and keeps the other). The tile is the one with the least modelled time: per reduction
// step the larger of FMA issue, load issue and FMA latency; plus the write-back; rounding up at the edges included.
//
// Products of bytes are the same with four bytes for each element, a[row] broadcast, and a dot product for the
// multiplication, where the target has one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/schedule/weight_order.h"
#include "tensor/visit.h"
#include "tuner/dot_product.h"
#include "tuner/packing.h"
#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

struct Roles {
  int vector = -1;           // contiguous in the result and in an operand
  int row = -1;              // shares the operand that runs along the vector axis
  int panel = -1;            // shares the other operand
  std::vector<int> rows;     // further axes of that kind, outside of it
  std::vector<int> batch;    // the other spatial axes
  std::vector<int> reduce;
};

bool is_vectorizable_along(const BlockInfo& info, size_t axis) {
  if (info.store.strides[axis] != 1 || info.axes[axis].extent < 2) return false;
  bool contiguous = false;
  for (const Access& load : info.loads) {
    int64_t stride = load.strides[axis];
    if (stride != 0 && stride != 1) return false;
    contiguous |= stride == 1;
  }
  return contiguous;
}

// Whether neighbouring results along the axis read elements in common (windows that overlap).
bool reads_overlap(const BlockInfo& info, const Access& load, int axis) {
  int64_t span = 0;
  for (size_t r = 0; r < info.axes.size(); ++r) {
    if (info.axes[r].is_reduce) span += (info.axes[r].extent - 1) * std::abs(load.strides[r]);
  }
  return span >= std::abs(load.strides[static_cast<size_t>(axis)]);
}

std::optional<Roles> assign_roles(const BlockInfo& info) {
  Roles roles;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce) {
      roles.reduce.push_back(static_cast<int>(a));
    } else if (is_vectorizable_along(info, a)) {
      roles.vector = static_cast<int>(a);
    }
  }
  if (roles.vector < 0) return std::nullopt;
  auto v = static_cast<size_t>(roles.vector);
  // Along a row axis some vector operand stands still; along a panel axis all scalar operands do.
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce || a == v) continue;
    bool vector_moves = false, scalar_moves = false, vector_stands = false;
    for (const Access& load : info.loads) {
      bool moves = load.strides[a] != 0;
      if (load.strides[v] == 0) {
        scalar_moves |= moves;
      } else {
        vector_moves |= moves;
        vector_stands |= !moves;
      }
    }
    bool has_scalar = std::any_of(info.loads.begin(), info.loads.end(), [&](const Access& l) { return l.strides[v] == 0; });
    auto axis = static_cast<int>(a);
    if (has_scalar && vector_moves && !scalar_moves) {
      if (roles.panel >= 0) roles.batch.push_back(roles.panel);
      roles.panel = axis;
    } else if ((vector_stands || info.loads.size() == 1) && (roles.row < 0 || info.axes[a].extent > 1)) {
      if (roles.row >= 0) roles.rows.push_back(roles.row);
      roles.row = axis;  // the innermost of them
    } else {
      roles.batch.push_back(axis);
    }
  }
  // Without an operand that rows share (pooling), axes along which they have nothing in common are a batch's.
  if (info.loads.size() == 1) {
    auto apart = std::stable_partition(roles.rows.begin(), roles.rows.end(),
                                       [&](int a) { return reads_overlap(info, info.loads[0], a); });
    roles.batch.insert(roles.batch.end(), apart, roles.rows.end());
    roles.rows.erase(apart, roles.rows.end());
  }
  std::sort(roles.batch.begin(), roles.batch.end());
  return roles;
}

// Vectors of a panel that a tile still holds beside its rows.
constexpr int64_t kMostPanelVectors = 4;

struct Tile {
  int64_t rows = 1;     // rows of accumulators
  int64_t vectors = 1;  // vectors in each
  double cycles = 0;    // modelled, of the whole block
};

struct TileProblem {
  int64_t rows, vectors;   // in all
  int64_t steps;           // reduction steps
  bool is_shared_scalar;   // the row operand is a scalar that is broadcast (else a vector of its own: depthwise)
  std::vector<int64_t> vector_choices;
  int64_t least_preferred = 1;  // vectors; analysis leaves narrower tiles to a search
};

// Cycles that fetching a vector operand from the second-level cache takes beyond what issue hides.
double fetch_cycles(int64_t vectors, const TileProblem& p, const Target& t) {
  int64_t panel = p.steps * vectors * t.vector_bits / 8;
  if (panel <= t.l1.bytes / 2) return 0;
  double bytes_per_cycle = t.l2.gb_per_s / t.ghz;
  return 0.3 * static_cast<double>(vectors * t.vector_bits / 8) / bytes_per_cycle;
}

// What two load ports reach next to a stream of multiplications, misses of the first-level cache included: tiles of 28 x 1
// take a third longer for the same products than those of 8 x 3 or 14 x 2, which load half as much.
constexpr double kLoadsPerCycle = 1.5;

double step_cycles(int64_t rows, int64_t vectors, bool shared, const Target& t) {
  double fma = static_cast<double>(rows * vectors) / t.fma_ports;
  double loads = static_cast<double>(shared ? rows + vectors : rows * vectors + vectors) / kLoadsPerCycle;
  return std::max({fma, loads, static_cast<double>(t.fma_latency)});
}

double tile_cycles(int64_t rows, int64_t vectors, const TileProblem& p, const Target& t) {
  double write_back = 2.0 * static_cast<double>(rows * vectors) + 12;
  double step = step_cycles(rows, vectors, p.is_shared_scalar, t) + fetch_cycles(vectors, p, t);
  return static_cast<double>(p.steps) * step + write_back;
}

// The tiles that fit the registers.
std::vector<Tile> legal_tiles(const TileProblem& p, const Target& t) {
  std::vector<Tile> tiles;
  // Two registers stay free for addresses' vectors and temporaries; without broadcast operands one more is used.
  int64_t registers = t.vector_registers - (t.vector_registers >= 32 ? 2 : 1);
  for (int64_t vectors : p.vector_choices) {
    // Without a shared scalar operand every product needs a register of its own for a while.
    int64_t most = p.is_shared_scalar ? 28 : registers / 2;
    for (int64_t rows = 1; rows <= std::min<int64_t>(p.rows, most); ++rows) {
      int64_t operands = p.is_shared_scalar ? vectors : 1;
      if (rows * vectors + operands > registers) break;
      // Rows are spread evenly over the tiles that this many at most make.
      int64_t count = (p.rows + rows - 1) / rows;
      if ((p.rows + count - 1) / count != rows) continue;
      int64_t tail = p.rows - (count - 1) * rows;
      double row_cycles = static_cast<double>(count - 1) * tile_cycles(rows, vectors, p, t) + tile_cycles(tail, vectors, p, t);
      double cycles = row_cycles * std::ceil(static_cast<double>(p.vectors) / static_cast<double>(vectors));
      tiles.push_back({rows, vectors, cycles});
    }
  }
  return tiles;
}

// The best of those with this width; of all for 0.
Tile best_tile(const std::vector<Tile>& tiles, int64_t vectors) {
  Tile best;
  best.cycles = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    if ((vectors == 0 || tile.vectors == vectors) && tile.cycles < best.cycles) best = tile;
  }
  return best;
}

Tile choose_tile(const TileProblem& p, const Target& t, const std::string& block, Decider& decide) {
  std::vector<Tile> tiles = legal_tiles(p, t);
  std::vector<int64_t> widths, heights;
  for (const Tile& tile : tiles) {
    if (widths.empty() || widths.back() != tile.vectors) widths.push_back(tile.vectors);
  }
  std::vector<Tile> wide;
  std::copy_if(tiles.begin(), tiles.end(), std::back_inserter(wide), [&](const Tile& tile) { return tile.vectors >= p.least_preferred; });
  int64_t vectors = decide.choose(block + ".vectors", widths, best_tile(wide.empty() ? tiles : wide, 0).vectors);
  Tile best = best_tile(tiles, vectors);
  for (const Tile& tile : tiles) {
    if (tile.vectors == vectors) heights.push_back(tile.rows);
  }
  int64_t rows = decide.choose(block + ".rows", heights, best.rows);
  return *std::find_if(tiles.begin(), tiles.end(), [&](const Tile& tile) { return tile.vectors == vectors && tile.rows == rows; });
}

class RegisterTile {
 public:
  // packing: of the operand along the vector axis, done in the tile's own loops; info sees the copy.
  // instruction: what the innermost vectors are given to, with the loop below them that info leaves out (tuner/dot_product.h).
  RegisterTile(Draft& draft, BlockInfo info, Roles roles, std::optional<Packing> packing, std::string instruction)
      : d_(draft),
        s_(draft.schedule),
        info_(std::move(info)),
        roles_(std::move(roles)),
        packing_(std::move(packing)),
        instruction_(std::move(instruction)),
        t_(draft.target) {}

  void run() {
    choose();
    std::string consumer = find_consumer();
    split_and_order();
    place_consumer(consumer);
    decompose();
    vectorize_tile();
    place_padding();
  }

 private:
  const AxisInfo& axis(int a) const { return info_.axes[static_cast<size_t>(a)]; }
  int64_t extent(int a) const { return a < 0 ? 1 : axis(a).extent; }
  const std::string& loop(int a) const { return axis(a).loop; }

  void choose() {
    lanes_ = t_.lanes(std::max(info_.element_bits, 32));
    auto v = static_cast<size_t>(roles_.vector);
    TileProblem p;
    p.rows = extent(roles_.row);
    int64_t own = (extent(roles_.vector) + lanes_ - 1) / lanes_;  // vectors along the vector axis itself
    // A tile takes whole panels. One that registers do not hold (an unpacked operand) is no panel.
    if (roles_.panel >= 0 && own > kMostPanelVectors) {
      roles_.batch.push_back(roles_.panel);
      std::sort(roles_.batch.begin(), roles_.batch.end());
      roles_.panel = -1;
    }
    panel_vectors_ = roles_.panel >= 0 ? own : 1;
    p.vectors = own * extent(roles_.panel);
    p.steps = info_.reduce;
    p.is_shared_scalar = std::any_of(info_.loads.begin(), info_.loads.end(), [&](const Access& l) { return l.strides[v] == 0; });
    int64_t splittable = roles_.panel >= 0 ? extent(roles_.panel) : own;
    int64_t packed = packed_vectors();
    for (int64_t n : {1, 2, 3, 4, 6, 8, 12, 16}) {
      // Tiles are as wide as packed panels or a number of whole ones; where nothing is packed, one or two vectors, an even
      // divisor, or the few vectors that there are.
      bool fits = roles_.panel >= 0 ? splittable % n == 0
                  : packed > 0      ? n == std::min(packed, own) || (n % packed == 0 && own % n == 0) || (has_weights() && packed % n == 0)
                                    : n <= 2 ? n <= own : (n % 2 == 0 && own % n == 0) || n == own;
      if (!instruction_.empty()) fits &= splittable % n == 0;  // no vector may be cut off
      if (fits) p.vector_choices.push_back(n * panel_vectors_);
    }
    if (!p.is_shared_scalar) p.vector_choices = {panel_vectors_};
    if (packing_) p.vector_choices = {packing_->vectors};
    // Narrower than the panels is for weights in another order.
    p.least_preferred = std::max<int64_t>(1, std::min(packed, own));
    // Without an operand that panels share there is nothing to keep for all rows but the padded input of one batch item.
    shared_scalar_ = p.is_shared_scalar;
    rows_outside_ = p.is_shared_scalar && vector_operand_bytes() <= t_.l2.bytes / 2;
    if (packing_) rows_outside_ = false;
    if (!roles_.rows.empty() && !packing_) {
      rows_outside_ = d_.decide.choose(info_.name + ".rows_outside", {0, 1}, rows_outside_ ? 1 : 0) != 0;
    }
    tile_ = choose_tile(p, t_, info_.name, d_.decide);
    us_ = std::max(tile_.cycles * static_cast<double>(batch_count() * rows_count()) / (t_.ghz * 1e3), streaming_us());
    if (info_.is_nested) us_ = 0;
    order_weights();
  }

  bool has_weights() const {
    const Access* w = vector_operand();
    return w && !packing_ && !info_.is_nested && is_weight(s_.func(), w->buffer);
  }

  // Weights that lie in panels of another width than the tile's can be stored as the tile reads them: in each step of the
  // reduction the vectors of a tile one after the other.
  void order_weights() {
    if (!has_weights()) return;
    const Access* w = vector_operand();
    auto v = static_cast<size_t>(roles_.vector);
    const int64_t width = tile_.vectors * lanes_, run = w->runs[v];
    const bool joins = width > run;
    if (width == run || run % lanes_ != 0 || (joins ? width % run : run % width) != 0) return;
    const int64_t n = joins ? width / run : width;
    std::optional<size_t> panel = panel_dimension(*w);
    const size_t last = w->buffer.shape().size() - 1;
    if (!panel || (joins && !is_multiple(w->buffer.shape()[*panel], n))) return;
    if (d_.decide.choose(info_.name + ".weights", {0, 1}, 0) == 0) return;
    std::vector<std::string> from, to;
    for (size_t d = 0; d <= last; ++d) from.push_back(text("i", d));
    to = from;
    const std::string inner = from[joins ? *panel : last];
    to[joins ? *panel : last] = text(inner, joins ? " // " : " %% ", n);
    if (joins) {
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(last), text(inner, " %% ", n));
    } else {
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(*panel) + 1, text(inner, " // ", n));
    }
    try_step(d_, TransformLayout{w->buffer.name(), text("(", join(from, ", "), ") -> (", join(to, ", "), ")")});
  }

  static bool is_multiple(const Expr& extent, int64_t n) {
    int64_t value = 0;
    return as_int(extent, &value) && value % n == 0;
  }

  // The dimension of the weights, other than the last, that leads from panel to panel.
  std::optional<size_t> panel_dimension(const Access& w) const {
    const Block* block = s_.find_block(info_.name);
    if (block->axes.size() != info_.axes.size()) return std::nullopt;  // steps of a scan
    const Var& along = block->axes[static_cast<size_t>(roles_.panel >= 0 ? roles_.panel : roles_.vector)].var;
    std::optional<size_t> found;
    for (const Region& read : block->reads) {
      if (!read.buffer.same_as(w.buffer)) continue;
      for (size_t d = 0; d + 1 < read.ranges.size(); ++d) {
        if (!uses_var(read.ranges[d].min, along)) continue;
        if (found && *found != d) return std::nullopt;
        found = d;
      }
    }
    return found;
  }

  // What reading weights takes that one tile of rows passes over, as in a step of a recurrent layer.
  double streaming_us() const {
    if (extent(roles_.row) * rows_count() > tile_.rows) return 0;
    const int64_t bytes = vector_operand_bytes() * std::max<int64_t>(1, batch_count());
    if (bytes <= t_.l1.bytes) return 0;
    const double gb_per_s = bytes <= t_.l2.bytes ? t_.l2.gb_per_s : t_.l3.gb_per_s;
    return static_cast<double>(bytes) / (gb_per_s * 1e3);
  }

  // How many vectors wide the panels are that the operand along the vector axis is packed in; 0 when it is not packed.
  int64_t packed_vectors() const {
    if (roles_.panel >= 0) return 0;
    auto v = static_cast<size_t>(roles_.vector);
    for (const Access& load : info_.loads) {
      if (load.strides[v] == 1 && load.runs[v] < axis(roles_.vector).extent && load.runs[v] % lanes_ == 0) return load.runs[v] / lanes_;
    }
    return 0;
  }

  int64_t rows_count() const {
    int64_t count = 1;
    for (int a : roles_.rows) count *= extent(a);
    return count;
  }

  // What runs along the vector axis and stands still from row to row: the weights.
  const Access* vector_operand() const {
    const Access* largest = nullptr;
    for (const Access& load : info_.loads) {
      if (load.strides[static_cast<size_t>(roles_.vector)] != 0 &&
          (roles_.row < 0 || load.strides[static_cast<size_t>(roles_.row)] == 0) &&
          (!largest || count_of(load.buffer) > count_of(largest->buffer))) {
        largest = &load;
      }
    }
    return largest;
  }
  int64_t vector_operand_bytes() const {
    const Access* load = vector_operand();
    if (!load) return 0;
    return count_of(load->buffer) * byte_size(load->buffer.element()) / std::max<int64_t>(1, batch_count());
  }

  int64_t batch_count() const {
    int64_t count = 1;
    for (int a : roles_.batch) count *= extent(a);
    return count;
  }

  // The one injective consumer of the whole result that can take it over tile by tile.
  std::string find_consumer() {
    std::vector<std::string> consumers = s_.consumers(info_.name);
    if (consumers.size() != 1 || is_output(s_.func(), info_.store.buffer)) return "";
    std::optional<BlockInfo> consumer = analyze(s_, consumers[0]);
    if (!consumer || !consumer->is_injective || consumer->spatial != info_.spatial) return "";
    return consumers[0];
  }

  void split_and_order() {
    const std::string& b = info_.name;
    std::vector<std::string> outer, inner;
    for (int a : roles_.batch) outer.push_back(loop(a));
    // Weights that stay in the second-level cache are passed over for each row; of larger ones a panel is kept there while
    // all rows pass.
    std::vector<std::string> outer_rows;
    for (int a : roles_.rows) {
      int64_t band = rows_outside_ ? 0 : band_height(a);
      if (band > 0) {
        must_step(d_, Split{loop(a), {0, band}, {b + ".band", b + ".line"}});
        outer.push_back(b + ".band");
        outer_rows.push_back(b + ".line");
        bands_ *= extent(a) / band;
      } else {
        (rows_outside_ ? outer : outer_rows).push_back(loop(a));
      }
    }

    // Row tiles go in chunks whose share of the row operand stays in the second-level cache.
    int64_t tiles = (extent(roles_.row) + tile_.rows - 1) / tile_.rows;
    std::string row_tile, row_in;
    int64_t panels = 1;
    if (roles_.panel >= 0) {
      panels = extent(roles_.panel) * panel_vectors_ / tile_.vectors;
    } else {
      panels = ceil_div64(extent(roles_.vector), tile_.vectors * lanes_);
    }
    int64_t chunks = packing_ ? 1 : choose_chunks(tiles, panels);
    std::string chunk_loop;
    tiles_per_panel_ = ceil_div64(tiles, chunks) * (rows_outside_ ? 1 : rows_count());
    if (roles_.row >= 0) {
      row_in = b + ".row";
      row_tile = b + ".rows";
      chunk_loop = b + ".chunk";
      int64_t per_chunk = ceil_div64(tiles, chunks);
      must_step(d_, Split{loop(roles_.row), {0, tile_.rows}, {row_tile, row_in}});
      if (per_chunk < tiles) {
        must_step(d_, Split{row_tile, {0, per_chunk}, {chunk_loop, b + ".tile"}});
        row_tile = b + ".tile";
        outer.push_back(chunk_loop);
      }
    }
    std::string panel_loop, panel_in;
    vector_loop_ = loop(roles_.vector);
    if (packing_) {
      panel_loop = b + ".block";
      panel_in = b + ".vecs";
      must_step(d_, Split{vector_loop_, {0, tile_.vectors, lanes_}, {b + ".panels", panel_in, b + ".lane"}});
      must_step(d_, Split{b + ".panels", {0, packing_->panels}, {panel_loop, b + ".panel"}});
      vector_loop_ = b + ".lane";
    } else if (roles_.panel >= 0) {
      if (extent(roles_.vector) > lanes_) {
        must_step(d_, Split{vector_loop_, {0, lanes_}, {b + ".vec", b + ".lane"}});
        inner.push_back(b + ".vec");
        vector_loop_ = b + ".lane";
      }
      panel_loop = b + ".panel";
      panel_in = b + ".vecs";
      must_step(d_, Split{loop(roles_.panel), {0, tile_.vectors / panel_vectors_}, {panel_loop, panel_in}});
    } else if (extent(roles_.vector) > lanes_) {
      panel_loop = b + ".panel";
      panel_in = b + ".vecs";
      must_step(d_, Split{vector_loop_, {0, tile_.vectors, lanes_}, {panel_loop, panel_in, b + ".lane"}});
      vector_loop_ = b + ".lane";
    }
    if (!panel_loop.empty()) outer.push_back(panel_loop);
    std::vector<std::string> order = outer;
    order.insert(order.end(), outer_rows.begin(), outer_rows.end());
    if (!row_tile.empty()) order.push_back(row_tile);
    // The panels of a block pass over a tile's rows, which stay in the nearest cache.
    if (packing_) order.push_back(b + ".panel");
    for (int a : roles_.reduce) {
      reduce_loops_.push_back(loop(a));
      order.push_back(loop(a));
    }
    if (!row_in.empty()) unrolled_.push_back(row_in);
    if (!panel_in.empty()) unrolled_.push_back(panel_in);
    unrolled_.insert(unrolled_.end(), inner.begin(), inner.end());
    order.insert(order.end(), unrolled_.begin(), unrolled_.end());
    order.push_back(vector_loop_);
    if (order.size() > 1) must_step(d_, Reorder{order});
    make_parallel(outer, row_tile);
    if (!packing_) return;
    apply_packing(d_, b, info_, *packing_, outer_loop_);
    tile_loop_ = b + ".panel";
  }

  // Lines that are done together, so that their padded input stays in the nearest caches; 0: all of them.
  int64_t band_height(int a) const {
    if (shared_scalar_ || roles_.rows.size() != 1 || a != roles_.rows[0]) return 0;
    int64_t bytes = 0;
    for (const Access& load : info_.loads) {
      if (load.strides[static_cast<size_t>(a)] != 0) bytes = std::max(bytes, count_of(load.buffer) * byte_size(load.buffer.element()));
    }
    if (bytes / std::max<int64_t>(1, batch_count()) <= t_.l2.bytes / 8) return 0;
    for (int64_t band = std::min<int64_t>(14, extent(a) / 2); band >= 4; --band) {
      if (extent(a) % band == 0) return band;
    }
    return 0;
  }

  // How many chunks the row tiles are divided into: few enough to read the panels seldom, so many that a chunk's row
  // operand stays in the cache, and that there is work for all cores.
  int64_t choose_chunks(int64_t tiles, int64_t panels) const {
    int64_t row_bytes = 0;
    for (const Access& load : info_.loads) {
      if (roles_.row >= 0 && load.strides[static_cast<size_t>(roles_.row)] != 0) {
        row_bytes = std::max(row_bytes, count_of(load.buffer) * byte_size(load.buffer.element()));
      }
    }
    row_bytes /= std::max<int64_t>(1, batch_count() * rows_count());
    if (info_.is_nested) return 1;  // who put it there has seen to the caches
    int64_t chunks = std::clamp<int64_t>(ceil_div64(row_bytes, t_.l2.bytes / 2), 1, tiles);
    if (worth_parallel(us_, t_)) {
      int64_t outside = batch_count() * panels;
      if (rows_outside_) outside *= rows_count();
      while (chunks < tiles && balance(outside * chunks, t_.cores) < 0.9) ++chunks;
    }
    std::vector<int64_t> options{chunks};
    for (int64_t n = 1; n <= tiles; n *= 2) options.push_back(n);
    options.push_back(tiles);
    std::sort(options.begin(), options.end());
    options.erase(std::unique(options.begin(), options.end()), options.end());
    return d_.decide.choose(info_.name + ".chunks", options, chunks);
  }

  void make_parallel(std::vector<std::string> outer, const std::string& row_tile) {
    if (outer.empty() && !row_tile.empty()) outer = {row_tile};
    tile_loop_ = row_tile;
    if (outer.empty()) return;
    outer_loop_ = outer[0];
    if (outer.size() > 1) {
      outer_loop_ = info_.name + ".outer";
      must_step(d_, Fuse{outer, outer_loop_});
    }
    if (tile_loop_.empty() || outer[0] == row_tile) tile_loop_ = outer_loop_;
    if (choose_parallel(d_, info_.name, us_)) try_step(d_, Parallel{outer_loop_});
  }

  void place_consumer(const std::string& consumer) {
    std::string buffer = info_.store.buffer.name();
    if (tile_loop_.empty()) return;
    if (!consumer.empty() && try_step(d_, ReverseComputeAt{consumer, tile_loop_})) {
      must_step(d_, SetScope{buffer, "registers"});
      write_back_ = consumer;
      return;
    }
    std::string copy = info_.name + ".out";
    if (!try_step(d_, CacheWrite{info_.name, buffer, "global", copy})) return;
    if (!try_step(d_, ReverseComputeAt{copy, tile_loop_})) return;
    write_back_ = copy;
    const Block* block = s_.find_block(info_.name);
    must_step(d_, SetScope{block->writes[0].buffer.name(), "registers"});
  }

  // Steps of the innermost reduction that are unrolled together, as far as that leaves code of a sensible size.
  void decompose() {
    int64_t unrolled = tile_.rows * tile_.vectors;
    std::string innermost = reduce_loops_.back();
    int64_t last = extent(roles_.reduce.back());
    must_step(d_, DecomposeReduction{info_.name, reduce_loops_.front()});
    if (info_.reduce * unrolled <= 160) {
      for (const std::string& r : reduce_loops_) must_step(d_, Unroll{r});
      return;
    }
    int64_t preferred = last * unrolled <= 160 ? last : last % 4 == 0 ? 4 : last % 2 == 0 ? 2 : 1;
    std::vector<int64_t> options;
    for (int64_t n = 1; n <= last; ++n) {
      if (n == preferred || ((n <= 4 || n == 8 || n == 16) && last % n == 0 && n * unrolled <= 320)) options.push_back(n);
    }
    int64_t steps = d_.decide.choose(info_.name + ".unroll", options, preferred);
    if (steps == last) {
      must_step(d_, Unroll{innermost});
      if (reduce_loops_.size() > 1) prefetch_panel(reduce_loops_[reduce_loops_.size() - 2], 1, false);
    } else if (steps > 1) {
      must_step(d_, Split{innermost, {0, steps}, {innermost + ".o", innermost + ".u"}});
      must_step(d_, Unroll{innermost + ".u"});
      prefetch_panel(innermost + ".o", 1, false);
    } else {
      prefetch_panel(innermost, last, true);
    }
  }

  // While the row tiles pass over a panel of the vector operand, the next one is fetched, a line every few steps. Weights
  // come from the last cache or from memory, whose latency the hardware's own prefetching hides only in part.
  // The hints are placed in `loop`; can_split: every few of its `extent` iterations only.
  void prefetch_panel(const std::string& loop, int64_t extent, bool can_split) {
    const Access* panel = vector_operand();
    if (packing_ || !panel || outer_loop_.empty() || tile_loop_ == outer_loop_) return;
    int64_t bytes = info_.reduce * tile_.vectors * t_.vector_bits / 8;
    int64_t lines = ceil_div64(bytes, t_.l2.line);
    int64_t steps_between = tiles_per_panel_ * info_.reduce / lines;  // at which each line is asked for once
    int64_t preferred = 1;
    std::vector<int64_t> options{0};
    for (int64_t n = 1; n <= (can_split ? std::min<int64_t>(extent, 16) : 1); ++n) {
      if (extent % n != 0) continue;
      options.push_back(n);
      if (n <= steps_between) preferred = n;
    }
    bool is_streamed = tiles_per_panel_ >= 2 && vector_operand_bytes() > t_.l1.bytes;
    int64_t every = d_.decide.choose(info_.name + ".prefetch", options, is_streamed ? preferred : 0);
    if (every == 0) return;
    std::string at = loop;
    if (every > 1) {
      at = loop + ".o";
      must_step(d_, Split{loop, {0, every}, {at, loop + ".p"}});
    }
    must_step(d_, Annotate{"", at, "prefetch_next", panel->buffer.name() + " " + outer_loop_});
  }

  // The loops of a block below the tile loop: the last in vectors, the others unrolled.
  void vectorize_below_tile(const std::string& block) {
    std::vector<std::string> loops = s_.loop_names_of(block);
    auto at = std::find(loops.begin(), loops.end(), tile_loop_);
    if (at == loops.end()) return;
    loops.erase(loops.begin(), at + 1);
    if (loops.empty()) return;
    const For* last = s_.find_loop(loops.back());
    int64_t count = 0;
    if (!as_int(last->extent, &count)) return;
    std::string vector = loops.back();
    loops.pop_back();
    if (count > lanes_) {
      std::string outer = vector + ".vec", lane = vector + ".lane";
      if (!try_step(d_, Split{vector, {0, lanes_}, {outer, lane}})) return;
      loops.push_back(outer);
      vector = lane;
    }
    if (!try_step(d_, Vectorize{vector})) return;
    for (const std::string& l : loops) try_step(d_, Unroll{l});
  }

  void vectorize_tile() {
    if (instruction_.empty()) {
      must_step(d_, Vectorize{vector_loop_});
    } else {
      must_step(d_, Tensorize{vector_loop_, instruction_});
    }
    for (const std::string& l : unrolled_) must_step(d_, Unroll{l});
    vectorize_below_tile(info_.name + ".init");
    if (!write_back_.empty()) vectorize_below_tile(write_back_);
  }

  // A padded copy of the input that only one iteration of the outer loop reads is made there, where it stays in the cache.
  void place_padding() {
    if (outer_loop_.empty() || roles_.batch.empty()) return;
    for (const std::string& producer : s_.producers(info_.name)) {
      std::optional<BlockInfo> p = analyze(s_, producer);
      if (!p || !p->is_injective || !p->is_movement) continue;
      // Worth it only if iterations do not read the same parts: when the outer loop is over what the producer is
      // indexed with.
      bool partitioned = true;
      for (const Access& load : info_.loads) {
        if (!load.buffer.same_as(p->store.buffer)) continue;
        partitioned &= roles_.rows.empty() || !rows_outside_;
        for (int a : roles_.batch) partitioned &= load.strides[static_cast<size_t>(a)] != 0;
        partitioned &= roles_.panel < 0 || load.strides[static_cast<size_t>(roles_.panel)] != 0;
      }
      bool row_outside = outer_loop_ == tile_loop_ || s_.find_loop(info_.name + ".chunk") != nullptr;
      int64_t pieces = batch_count() * bands_;
      int64_t bytes = p->spatial * byte_size(p->store.buffer.element()) / std::max<int64_t>(1, pieces);
      if (!partitioned || row_outside || bytes > t_.l2.bytes / 4) continue;
      if (!try_step(d_, ComputeAt{producer, outer_loop_})) continue;
      std::vector<std::string> loops = s_.loop_names_of(producer);
      const For* last = loops.empty() ? nullptr : s_.find_loop(loops.back());
      if (last && is_int(last->extent, lanes_)) try_step(d_, Vectorize{loops.back()});
    }
  }

  Draft& d_;
  Schedule& s_;
  BlockInfo info_;
  Roles roles_;
  std::optional<Packing> packing_;
  std::string instruction_;
  const Target& t_;
  Tile tile_;
  int64_t panel_vectors_ = 1;  // vectors that one turn of the panel loop stands for
  int64_t lanes_ = 16;
  double us_ = 0;
  int64_t bands_ = 1;
  int64_t tiles_per_panel_ = 1;
  bool shared_scalar_ = true;
  bool rows_outside_ = false;  // further row axes outside of the panels
  std::string vector_loop_, tile_loop_, outer_loop_, write_back_;
  std::vector<std::string> reduce_loops_, unrolled_;
};

}  // namespace

namespace {

bool schedule_tiles(Draft& draft, std::optional<BlockInfo> info) {
  if (!info || !info->is_reduction || info->iterations() == 0) return false;
  std::optional<DotProduct> dot = dot_product(*info, draft.target);
  if (dot) info = dot->info;
  std::optional<Packing> packing = dot ? std::nullopt : choose_packing(draft, *info);
  if (packing && packing->panels == 0) {
    apply_packing(draft, info->name, *info, *packing, "");
    info = analyze(draft.schedule, info->name);
    if (!info) return false;
    packing.reset();
  } else if (packing) {
    info = with_packing(*info, *packing);
  }
  std::optional<Roles> roles = assign_roles(*info);
  if (!roles) return false;
  RegisterTile(draft, *info, *roles, packing, dot ? dot->instruction : "").run();
  return true;
}

}  // namespace

bool schedule_register_tile(Draft& draft, const std::string& block) {
  return schedule_tiles(draft, analyze(draft.schedule, block));
}

bool schedule_nested_register_tile(Draft& draft, const std::string& block) {
  return schedule_tiles(draft, analyze_nested(draft.schedule, block));
}

}  // namespace mcc::tuner
