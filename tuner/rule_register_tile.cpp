// Register tiles.
//
//   for batch, row chunk, panel (parallel):
//     for row tile:
//       init accumulators
//       for reduction: for rows, vectors (unrolled): acc[row, vector] += a[row] * w[vector]
//       consumers: bias, activation, residual; store
//
// A panel of w stays in the nearest cache while the row tiles of a chunk pass over it (G.1 of Low et al., TOMS 2016: the
// micro-kernel streams one operand and keeps the other). register_tile_roles.h says which axes rows and vectors run along,
// register_tile_size.h how many of them a tile has. The last tile along either may have fewer.
//
// Pooling of pictures with their channels last has nothing that stays for all rows; its panels go inside of the row tile, over what
// lies in one piece, and bands of lines outside (depthwise convolutions may do so, too):
//
//   for batch, band of lines (parallel):
//     padding: the lines of the input that the band reads
//     for line, row tile, panel: ...
//
// Products of bytes are the same with four bytes for each element, a[row] broadcast, and a dot product for the
// multiplication, where the target has one.
#include <algorithm>
#include <array>
#include <limits>

#include "tensor/schedule/weight_order.h"
#include "tuner/dot_product.h"
#include "tuner/groups.h"
#include "tuner/packing.h"
#include "tuner/register_tile_size.h"
#include "tuner/rules.h"
#include "tuner/tile_parts.h"
#include "tuner/weight_panels.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Of the nearest cache, what a copy of the input may take that all tiles of a band read.
constexpr double kCopyShare = 0.75;
// Vectors of a panel that a tile still holds beside its rows.
constexpr int64_t kMostPanelVectors = 4;

class RegisterTile {
 public:
  // packing: of the operand along the vector axis, done in the tile's own loops; info sees the copy.
  // dot: whose instruction the innermost vectors are given to, with the loop below them that info leaves out; without one: none.
  RegisterTile(Draft& draft, BlockInfo info, TileRoles roles, std::optional<Packing> packing, DotProduct dot)
      : d_(draft),
        s_(draft.schedule),
        info_(std::move(info)),
        roles_(std::move(roles)),
        packing_(std::move(packing)),
        dot_(std::move(dot)),
        t_(draft.target) {}

  void run() {
    choose();
    std::string consumer = tile_consumer(d_, info_, info_.spatial);
    split_and_order();
    if (!tile_loop_.empty()) write_back_ = place_consumer(d_, info_, consumer, tile_loop_, "registers");
    decompose();
    vectorize_tile();
    // Under panels that lie side by side it would be copied in columns of a vector each.
    const bool is_in_columns = may_take_panels_inside() && !panels_inside_ && copied_lines_ == 0;
    if (!is_in_columns)
      place_padding(d_, info_, roles_,
                    {outer_loop_, tile_loop_, rows_outside_, batch_count() * pieces_, copied_lines_ > 0});
  }

 private:
  const AxisInfo& axis(int a) const { return info_.axes[static_cast<size_t>(a)]; }
  int64_t extent(int a) const { return a < 0 ? 1 : axis(a).extent; }
  const std::string& loop(int a) const { return axis(a).loop; }
  bool is_open(int a) const { return a >= 0 && d_.open_loops.count(loop(a)) != 0; }

  void choose() {
    lanes_ = t_.lanes(std::max(info_.element_bits, 32));
    // A tile takes whole panels. One that registers do not hold (an unpacked operand) is no panel.
    if (roles_.panel >= 0 && own_vectors() > kMostPanelVectors) {
      roles_.batch.push_back(roles_.panel);
      std::sort(roles_.batch.begin(), roles_.batch.end());
      roles_.panel = -1;
    }
    panel_vectors_ = roles_.panel >= 0 ? own_vectors() : 1;
    shared_scalar_ = std::any_of(info_.loads.begin(), info_.loads.end(), [&](const Access& l) {
      return l.strides[static_cast<size_t>(roles_.vector)] == 0;
    });
    if (may_take_panels_inside()) {
      // The weights of a panel stay in registers while all rows pass.
      panels_inside_ =
          d_.decide.choose(info_.name + ".panels_inside", {0, 1}, info_.loads.size() == 1 ? 1 : 0) != 0;
    }
    // Without an operand that panels share there is nothing to keep for all rows but the padded input of one batch item.
    rows_outside_ = shared_scalar_ && vector_operand_bytes() <= t_.l2.bytes / 2;
    if (packing_) rows_outside_ = false;
    if (!roles_.rows.empty() && !packing_) {
      rows_outside_ = d_.decide.choose(info_.name + ".rows_outside", {0, 1}, rows_outside_ ? 1 : 0) != 0;
    }
    tile_ = choose_tile_size(tile_problem(), t_, info_.name, d_.decide);
    if (may_take_panels_inside() && !panels_inside_ && converts_padding()) choose_copies();
    us_ = std::max(tile_.cycles * static_cast<double>(batch_count() * rows_count()) / (t_.ghz * 1e3), streaming_us());
    if (info_.is_nested) us_ = 0;
    const Access* w = weights();
    const int64_t run = w ? w->runs[static_cast<size_t>(roles_.vector)] : 0;
    if (w && run % lanes_ == 0) {
      store_in_panels(d_, info_, *w, roles_.panel >= 0 ? roles_.panel : roles_.vector, run, tile_.vectors * lanes_);
    }
  }

  // Lines of few rows, of which a tile may have several: each row is another user of what is read of a panel.
  int64_t lines_together() const {
    constexpr int64_t kShort = 8;
    if (roles_.rows.empty() || rows_outside_ || packing_ || panels_inside_ || info_.is_nested ||
        !shared_scalar_ || extent(roles_.row) > kShort)
      return 1;
    return is_open(roles_.row) || is_open(roles_.rows.back()) ? 1 : extent(roles_.rows.back());
  }

  // Whether rows are windows whose panels lie side by side: over pictures with their channels last.
  bool may_take_panels_inside() const {
    if (shared_scalar_ || packing_ || info_.is_nested || roles_.panel >= 0 || roles_.row < 0 ||
        own_vectors() < 2)
      return false;
    return std::any_of(info_.loads.begin(), info_.loads.end(), [&](const Access& l) {
      return l.strides[static_cast<size_t>(roles_.row)] >= extent(roles_.vector) &&
             reads_overlap(info_, l, roles_.row);
    });
  }

  // Whether the copy that is read has its elements converted to wider ones: then it stays in the nearest cache, panel by panel, or is read
  // from further away than what it was made of.
  bool converts_padding() const {
    const std::vector<std::string> producers = s_.producers(info_.name);
    return std::any_of(producers.begin(), producers.end(), [&](const std::string& producer) {
      const std::optional<BlockInfo> p = analyze(s_, producer);
      return p && p->is_injective && !p->loads.empty() &&
             byte_size(p->loads[0].buffer.element()) < byte_size(p->store.buffer.element());
    });
  }

  // Whether windows lie further apart than their elements: few are read twice then, and it is better to read much of each place.
  bool has_strides() const {
    const auto row = static_cast<size_t>(roles_.row);
    return std::any_of(info_.loads.begin(), info_.loads.end(), [&](const Access& l) {
      int64_t step = std::numeric_limits<int64_t>::max();
      for (int r : roles_.reduce) {
        if (extent(r) > 1 && l.strides[static_cast<size_t>(r)] != 0)
          step = std::min(step, std::abs(l.strides[static_cast<size_t>(r)]));
      }
      return l.strides[row] > step;
    });
  }

  // Whether each step of a sum down columns reads a line of memory far from the one before, which processors do not fetch ahead: more
  // lines side by side make up for that.
  bool reads_far_lines() const {
    constexpr int64_t kFarElements = 128;
    if (shared_scalar_ || packing_ || info_.is_nested || roles_.panel >= 0 || info_.loads.size() != 1 || extent(roles_.row) > 1) return false;
    return std::all_of(roles_.reduce.begin(), roles_.reduce.end(), [&](int r) {
      return extent(r) == 1 || std::abs(info_.loads[0].strides[static_cast<size_t>(r)]) >= kFarElements;
    });
  }

  // Vectors along the vector axis itself.
  int64_t own_vectors() const { return ceil_div64(extent(roles_.vector), lanes_); }

  TileProblem tile_problem() const {
    const int64_t own = own_vectors();
    TileProblem p;
    p.widens_bytes = dot_.widens_bytes();
    p.rows = extent(roles_.row);
    p.lines = lines_together();
    p.vectors = own * extent(roles_.panel);
    p.steps = info_.reduce;
    p.is_shared_scalar = shared_scalar_;
    p.has_open_rows = is_open(roles_.row);
    for (const Access& l : info_.loads) {
      if (roles_.row >= 0 && l.strides[static_cast<size_t>(roles_.vector)] == 0)
        p.row_stride = l.strides[static_cast<size_t>(roles_.row)] * byte_size(l.buffer.element());
    }
    const int64_t panels = extent(roles_.panel), packed = packed_vectors();
    for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
      // Tiles are as wide as packed panels or a number of whole ones, where these have an axis of their own any number, the last
      // tile narrower; where nothing is packed, one or two vectors, an even divisor, or the few vectors that there are.
      bool fits = roles_.panel >= 0 ? n <= panels
                  : packed > 0      ? n == std::min(packed, own) || (n % packed == 0 && own % n == 0) || (weights() && packed % n == 0)
                                    : n <= 2 ? n <= own : (n % 2 == 0 && own % n == 0) || n == own;
      if (fits) p.vector_choices.push_back(n * panel_vectors_);
    }
    if (!p.is_shared_scalar) p.vector_choices = {panel_vectors_};
    if (reads_far_lines()) {
      for (int64_t n : {2, 4, 8}) {
        if (own % n != 0) continue;
        p.vector_choices.push_back(n);
        if (own / n >= t_.cores) p.least_preferred = n;
      }
      return p;
    }
    if (packing_) p.vector_choices = {packing_->vectors};
    // What stands for all rows (weights) is read once for each of them: there a tile is as high as can be.
    if (panels_inside_ && info_.loads.size() == 1 && extent(roles_.vector) % lanes_ == 0) {
      for (int64_t n = 2; n <= kMostPanelVectors; ++n) {
        if (own % n == 0) p.vector_choices.push_back(n);
      }
      if (has_strides()) p.least_preferred = p.vector_choices.back();
      return p;
    }
    // Narrower than the panels is for weights in another order.
    p.least_preferred = std::max<int64_t>(1, std::min(packed, own));
    return p;
  }

  // The weights that may be stored in another order, if there are any.
  const Access* weights() const {
    const Access* w = vector_operand();
    return w && !packing_ && !info_.is_nested && is_weight(s_.func(), w->buffer) ? w : nullptr;
  }

  // What reading weights takes that one tile of rows passes over, as in a step of a recurrent layer.
  double streaming_us() const {
    if (extent(roles_.row) * rows_count() > tile_.rows * tile_.lines) return 0;
    const int64_t bytes = vector_bytes_of_all();
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
  int64_t vector_bytes_of_all() const {
    const Access* load = vector_operand();
    return load ? count_of(load->buffer) * byte_size(load->buffer.element()) : 0;
  }
  // Of one item of the batch.
  int64_t vector_operand_bytes() const { return vector_bytes_of_all() / std::max<int64_t>(1, batch_count()); }

  int64_t batch_count() const {
    int64_t count = 1;
    for (int a : roles_.batch) count *= extent(a);
    return count;
  }

  void split_and_order() {
    const std::string& b = info_.name;
    std::vector<std::string> outer, outer_rows;
    for (int a : roles_.batch) outer.push_back(loop(a));
    split_lines(outer, outer_rows);
    const std::string row_tile = split_rows(outer);
    const std::string panel_loop = split_columns();
    // Items that data gives the same weights lie behind one another: a panel of these stays in the caches for them.
    const Access* operand = vector_operand();
    const bool may_share = operand != nullptr && operand->is_indirect && !packing_;
    if (!panel_loop.empty() && !panels_inside_)
      outer.insert(may_share ? outer.begin() : outer.end(), panel_loop);
    std::vector<std::string> order = outer;
    order.insert(order.end(), outer_rows.begin(), outer_rows.end());
    if (!row_tile.empty()) order.push_back(row_tile);
    if (panels_inside_) order.push_back(panel_loop);
    // The panels of a block pass over a tile's rows, which stay in the nearest cache.
    if (packing_) order.push_back(b + ".panel");
    for (int a : roles_.reduce) {
      reduce_loops_.push_back(loop(a));
      order.push_back(loop(a));
    }
    order.insert(order.end(), unrolled_.begin(), unrolled_.end());
    order.push_back(vector_loop_);
    if (order.size() > 1) must_step(d_, Reorder{order});
    make_parallel(outer, row_tile);
    if (panels_inside_) tile_loop_ = panel_loop;
    if (!packing_) return;
    apply_packing(d_, info_, *packing_, outer_loop_);
    tile_loop_ = b + ".panel";
  }

  // Further row axes. Weights that stay in the second-level cache are passed over for each row; of larger ones a panel is
  // kept there while all rows pass.
  void split_lines(std::vector<std::string>& outside, std::vector<std::string>& inside) {
    const std::string& b = info_.name;
    for (int a : roles_.rows) {
      int64_t band = rows_outside_ ? 0 : band_height(a);
      if (tile_.lines > 1 && a == roles_.rows.back()) {
        must_step(d_, Split{loop(a), {0, tile_.lines}, {b + ".lines", b + ".line"}});
        inside.push_back(b + ".lines");
        unrolled_.push_back(b + ".line");
      } else if (band > 0) {
        must_step(d_, Split{loop(a), {0, band}, {b + ".band", b + ".line"}});
        outside.push_back(b + ".band");
        inside.push_back(b + ".line");
        pieces_ *= ceil_div64(extent(a), band);
      } else {
        (rows_outside_ ? outside : inside).push_back(loop(a));
      }
    }
  }

  // Row tiles go in chunks whose share of the row operand stays in the second-level cache. The loop over a chunk's tiles, if
  // there is one.
  std::string split_rows(std::vector<std::string>& outside) {
    const std::string& b = info_.name;
    const int64_t tiles = ceil_div64(extent(roles_.row), tile_.rows);
    const int64_t panels = roles_.panel >= 0 ? ceil_div64(extent(roles_.panel) * panel_vectors_, tile_.vectors)
                                             : ceil_div64(extent(roles_.vector), tile_.vectors * lanes_);
    const int64_t per_chunk =
        copied_tiles_ > 0 ? copied_tiles_
                          : ceil_div64(tiles, packing_ || panels_inside_ ? 1 : choose_chunks(tiles, panels));
    tiles_per_panel_ = per_chunk * (rows_outside_ ? 1 : rows_count() / tile_.lines);
    if (roles_.row < 0) return "";
    must_step(d_, Split{loop(roles_.row), {0, tile_.rows}, {b + ".rows", b + ".row"}});
    unrolled_.push_back(b + ".row");
    if (per_chunk >= tiles) return b + ".rows";
    must_step(d_, Split{b + ".rows", {0, per_chunk}, {b + ".chunk", b + ".tile"}});
    if (copied_tiles_ > 0) pieces_ *= ceil_div64(tiles, per_chunk);
    outside.push_back(b + ".chunk");
    return b + ".tile";
  }

  // The loop over panels, or over blocks of them, if there is one; below it a tile's vectors.
  std::string split_columns() {
    const std::string& b = info_.name;
    const bool has_vectors = extent(roles_.vector) > lanes_;
    const std::string vector = loop(roles_.vector);
    vector_loop_ = packing_ || has_vectors ? b + ".lane" : vector;
    if (packing_ || has_vectors || roles_.panel >= 0) unrolled_.push_back(b + ".vecs");
    if (packing_) {
      must_step(d_, Split{vector, {0, tile_.vectors, lanes_}, {b + ".panels", b + ".vecs", b + ".lane"}});
      must_step(d_, Split{b + ".panels", {0, packing_->panels}, {b + ".block", b + ".panel"}});
      return b + ".block";
    }
    if (roles_.panel >= 0) {
      if (has_vectors) {
        must_step(d_, Split{vector, {0, lanes_}, {b + ".vec", b + ".lane"}});
        unrolled_.push_back(b + ".vec");
      }
      must_step(d_, Split{loop(roles_.panel), {0, tile_.vectors / panel_vectors_}, {b + ".panel", b + ".vecs"}});
      return b + ".panel";
    }
    if (!has_vectors) return "";
    if (own_vectors() % tile_.vectors != 0 && extent(roles_.vector) % lanes_ == 0) {
      // The last panel is narrower by whole vectors.
      must_step(d_, Split{vector, {0, lanes_}, {b + ".vec", b + ".lane"}});
      must_step(d_, Split{b + ".vec", {0, tile_.vectors}, {b + ".panel", b + ".vecs"}});
    } else {
      must_step(d_, Split{vector, {0, tile_.vectors, lanes_}, {b + ".panel", b + ".vecs", b + ".lane"}});
    }
    return b + ".panel";
  }

  // Lines that are done together, so that their padded input stays in the nearest caches; 0: all of them.
  int64_t band_height(int a) const {
    if (shared_scalar_ || roles_.rows.size() != 1 || a != roles_.rows[0]) return 0;
    if (panels_inside_) return even_band_height(a);
    if (copied_lines_ > 0) return copied_lines_;
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

  // How much of a copy that converts is made at once: the lines of a band, and tiles along them. It stays in the nearest cache, with what
  // all panels are made of; that little of it is made twice.
  void choose_copies() {
    for (const Access& load : info_.loads) {
      const std::optional<Pixels> p = pixels(load);
      if (!p) continue;
      const int64_t tiles = ceil_div64(extent(roles_.row), tile_.rows), lines = extent(roles_.rows[0]);
      const int64_t bytes = extent(roles_.vector) + lanes_ * byte_size(load.buffer.element());  // of a place
      double least = std::numeric_limits<double>::infinity();
      for (int64_t l = 1; l <= lines; ++l) {
        for (int64_t n = 1; n <= tiles; ++n) {
          const int64_t columns = std::min(n * tile_.rows, extent(roles_.row));
          const double places = static_cast<double>(p->lines(l) * p->columns(columns));
          const bool fits =
              places * static_cast<double>(bytes) <= kCopyShare * static_cast<double>(t_.l1.bytes);
          const double cost = places * static_cast<double>(ceil_div64(lines, l) * ceil_div64(tiles, n));
          if ((fits || (l == 1 && n == 1)) && cost < least) {
            least = cost;
            copied_lines_ = l;
            copied_tiles_ = n;
          }
        }
      }
    }
  }

  // Of a picture with its channels last that windows read: how many of its lines and columns so many of them take.
  struct Pixels {
    int64_t line_step = 0, line_window = 1, column_step = 0, column_window = 1;
    int64_t lines(int64_t count) const { return (count - 1) * line_step + line_window; }
    int64_t columns(int64_t count) const { return (count - 1) * column_step + column_window; }
  };

  std::optional<Pixels> pixels(const Access& load) const {
    const std::vector<Expr>& shape = load.buffer.shape();
    int64_t columns = 0;
    if (roles_.rows.size() != 1 || roles_.row < 0 || shape.size() < 3 ||
        !as_int(shape[shape.size() - 2], &columns))
      return std::nullopt;
    const int64_t column = extent(roles_.vector), line = columns * column;
    auto stride = [&](int a) { return std::abs(load.strides[static_cast<size_t>(a)]); };
    Pixels p;
    p.line_step = stride(roles_.rows[0]) / line;
    p.column_step = stride(roles_.row) / column;
    if (p.line_step == 0 || p.column_step == 0) return std::nullopt;
    for (int r : roles_.reduce)
      (stride(r) >= line ? p.line_window : p.column_window) +=
          (extent(r) - 1) * stride(r) / (stride(r) >= line ? line : column);
    return p;
  }

  // From the first byte that a result reads to its last.
  int64_t window_bytes(const Access& load) const {
    int64_t window = 0;
    for (int r : roles_.reduce)
      window +=
          (extent(r) - 1) * std::abs(load.strides[static_cast<size_t>(r)]) * byte_size(load.buffer.element());
    return window;
  }

  // As many lines as read so much of the input that it stays in the second-level cache, and as leave work for all cores.
  int64_t even_band_height(int a) const {
    const int64_t lines = extent(a);
    int64_t most = lines;
    for (const Access& load : info_.loads) {
      const int64_t stride =
          std::abs(load.strides[static_cast<size_t>(a)]) * byte_size(load.buffer.element());
      if (stride == 0) continue;
      most = std::min(most, std::max<int64_t>(1, (t_.l2.bytes / 2 - window_bytes(load)) / stride));
    }
    int64_t bands = ceil_div64(lines, most);
    if (worth_parallel(us_, t_)) {
      while (bands < lines && balance(batch_count() * bands, t_.cores) < 0.9)
        ++bands;
    }
    return ceil_div64(lines, bands);
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

  // Whether rows read scalars, in the steps of the innermost sum, that others of them read in other steps: windows of pictures whose places lie
  // one behind the other. Of steps that are unrolled LLVM keeps such scalars for all who read them, once they are vectors, which
  // registers do not hold. (Convolutions of 3 channels on a Zen 3, unrolled and not: 7 x 7 with a stride of 2 5.6 and 2.6 ms, 5 x 5 1.02 and
  // 0.68, 3 x 3 in tiles of 4 x 3, next to which one register is free, 0.40 and 0.23; of 6 x 2, next to which two are, 0.57 and 0.58.)
  bool rows_share_scalars() const {
    if (!shared_scalar_ || roles_.row < 0) return false;
    const auto row = static_cast<size_t>(roles_.row), step = static_cast<size_t>(roles_.reduce.back());
    return std::any_of(info_.loads.begin(), info_.loads.end(), [&](const Access& l) {
      const int64_t by_step = l.strides[step], by_row = l.strides[row];
      return l.strides[static_cast<size_t>(roles_.vector)] == 0 && by_step != 0 && by_row != 0 &&
             by_row % by_step == 0 &&
             std::abs(by_row) <= std::abs(by_step) * (extent(roles_.reduce.back()) - 1);
    });
  }

  // Steps of the innermost reduction that are unrolled together, as far as that leaves code of a sensible size.
  void decompose() {
    const int64_t unrolled = tile_.sums();
    std::string innermost = reduce_loops_.back();
    int64_t last = extent(roles_.reduce.back());
    must_step(d_, DecomposeReduction{info_.name, reduce_loops_.front()});
    if (info_.reduce * unrolled <= 160) {
      for (const std::string& r : reduce_loops_) must_step(d_, Unroll{r});
      return;
    }
    int64_t preferred = last * unrolled <= 160 ? last : last % 4 == 0 ? 4 : last % 2 == 0 ? 2 : 1;
    const bool has_room = last <= 3 && unrolled + tile_.vectors + 2 <= t_.vector_registers;
    if (rows_share_scalars() && !has_room) preferred = 1;
    std::vector<int64_t> options;
    for (int64_t n = 1; n <= last; ++n) {
      if (n == preferred || ((n <= 4 || n == 8 || n == 16) && last % n == 0 && n * unrolled <= 320)) options.push_back(n);
    }
    int64_t steps = d_.decide.choose(info_.name + ".unroll", options, preferred);
    if (steps == last) {
      must_step(d_, Unroll{innermost});
      if (reduce_loops_.size() > 1) prefetch(reduce_loops_[reduce_loops_.size() - 2], steps);
    } else if (steps > 1) {
      must_step(d_, Split{innermost, {0, steps}, {innermost + ".o", innermost + ".u"}});
      must_step(d_, Unroll{innermost + ".u"});
      prefetch(innermost + ".o", steps);
    } else {
      prefetch(innermost, steps);
    }
  }

  bool has_open_rows() const {
    return is_open(roles_.row) ||
           std::any_of(roles_.rows.begin(), roles_.rows.end(), [&](int a) { return is_open(a); });
  }
  // Of the vector operand, in one step of the sum.
  int64_t step_bytes() const { return tile_.vectors * vector_bytes(dot_.widens_bytes(), t_); }
  int64_t panel_bytes() const { return info_.reduce * step_bytes(); }
  // Whether a panel is fetched while the tiles pass over the one before it: where both stay in the second-level cache, or the last one gives
  // back fast what does not.
  bool fetches_next_panel() const {
    const bool stays = 2 * panel_bytes() <= t_.l2.bytes, comes_back = 2 * t_.l3.gb_per_s >= t_.l2.gb_per_s;
    // Of an open number of rows those of a chunk; how many of them all are only a run knows.
    const bool is_known =
        !is_open(roles_.row) || tiles_per_panel_ < ceil_div64(extent(roles_.row), tile_.rows);
    return tiles_per_panel_ >= 2 && is_known && vector_operand_bytes() > t_.l1.bytes && (stays || comes_back);
  }

  // Hints for what comes of the vector operand. steps: of the sum, in one iteration of the loop. Of an open number of rows both: the pieces
  // that have all of a panel's tiles fetch the next one.
  void prefetch(const std::string& loop, int64_t steps) {
    const Access* panel = vector_operand();
    if (packing_ || panels_inside_ || !panel) return;
    const std::string name = panel->buffer.name();
    const auto [at, steps_of_it] = prefetch_panel(name, loop, steps);
    prefetch_ahead(name, at, steps_of_it);
  }

  static constexpr std::array<int64_t, 9> kAhead = {0, 8, 16, 32, 48, 64, 96, 128, 192};

  // A panel that one tile of rows passes over is read once, as fast as it comes from where the weights are: each of its lines is asked for
  // some steps ahead, as are those of panels that are not fetched while the tiles pass over the one before.
  void prefetch_ahead(const std::string& operand, const std::string& loop, int64_t steps) {
    const int64_t ahead = d_.decide.choose(
        info_.name + ".ahead", {kAhead.begin(), kAhead.end()},
        (!fetches_next_panel() || has_open_rows()) && vector_bytes_of_all() > t_.l1.bytes ? steps_ahead()
                                                                                          : 0);
    if (ahead == 0) return;
    try_step(d_, Annotate{"", loop, "prefetch_ahead", text(operand, " ", ceil_div64(ahead, steps))});
  }

  // While memory answers the last cache could give this much. (3 x 3 convolution of 2048 channels on 4 x 4 on a Zen 5, one vector a step: 96 to
  // 256 steps are alike, 32 take two fifths longer. Product of 8 rows with 4096 x 4096, two vectors: 96 and 128, 32 a quarter longer, 256 a
  // sixth. On a Sapphire Rapids 32 of two.)
  int64_t steps_ahead() const {
    constexpr double kAnswer = 160;  // ns
    const double most = kAnswer * t_.l3.gb_per_s / static_cast<double>(step_bytes());
    int64_t steps = 32;
    for (const int64_t n : kAhead) {
      if (static_cast<double>(n) <= most) steps = std::max(steps, n);
    }
    return steps;
  }

  // While the row tiles pass over a panel of the vector operand, the next one is fetched, a line every few steps. Weights
  // come from the last cache or from memory, whose latency the hardware's own prefetching hides only in part.
  // Gives the loop in which hints stand, and of how many steps an iteration of it is.
  std::pair<std::string, int64_t> prefetch_panel(const std::string& operand, const std::string& loop,
                                                 int64_t steps) {
    if (outer_loop_.empty() || tile_loop_ == outer_loop_) return {loop, steps};
    int64_t lines = ceil_div64(panel_bytes(), t_.l2.line);
    int64_t steps_between = tiles_per_panel_ * info_.reduce / lines;  // at which each line is asked for once
    int64_t preferred = 1;
    std::vector<int64_t> options{0};
    const int64_t turns = steps == 1 ? extent(roles_.reduce.back()) : 1;
    for (int64_t n = 1; n <= std::min<int64_t>(turns, 16); ++n) {
      if (turns % n != 0) continue;
      options.push_back(n);
      if (n <= steps_between) preferred = n;
    }
    int64_t every = d_.decide.choose(info_.name + ".prefetch", options, fetches_next_panel() ? preferred : 0);
    if (every == 0) return {loop, steps};
    std::string at = loop;
    if (every > 1) {
      at = loop + ".o";
      must_step(d_, Split{loop, {0, every}, {at, loop + ".p"}});
    }
    // The last tile is shorter: a piece of code of its own.
    const int64_t rows = extent(roles_.row);
    const bool has_rest =
        !has_open_rows() && rows % tile_.rows != 0 && tiles_per_panel_ == ceil_div64(rows, tile_.rows);
    must_step(d_, Annotate{"", at, "prefetch_next",
                           has_rest ? text(operand, " ", outer_loop_, " ", tiles_per_panel_)
                                    : text(operand, " ", outer_loop_)});
    return {at, steps * every};
  }

  void vectorize_tile() {
    if (dot_.instruction.empty()) {
      must_step(d_, Vectorize{vector_loop_});
    } else {
      must_step(d_, Tensorize{vector_loop_, dot_.instruction});
    }
    for (const std::string& l : unrolled_) must_step(d_, Unroll{l});
    vectorize_below_tile(d_, info_.name + ".init", tile_loop_, lanes_, true);
    if (!write_back_.empty()) vectorize_below_tile(d_, write_back_, tile_loop_, lanes_, true);
  }

  Draft& d_;
  Schedule& s_;
  BlockInfo info_;
  TileRoles roles_;
  std::optional<Packing> packing_;
  DotProduct dot_;
  const Target& t_;
  TileSize tile_;
  int64_t panel_vectors_ = 1;  // vectors that one turn of the panel loop stands for
  int64_t lanes_ = 16;
  double us_ = 0;
  int64_t pieces_ = 1;
  int64_t copied_lines_ = 0,
          copied_tiles_ = 0;  // of which a copy of the input is made at once; 0: as it comes
  int64_t tiles_per_panel_ = 1;
  bool shared_scalar_ = true;
  bool rows_outside_ = false;   // further row axes outside of the panels
  bool panels_inside_ = false;  // panels inside of the row tile
  std::string vector_loop_, tile_loop_, outer_loop_, write_back_;
  std::vector<std::string> reduce_loops_, unrolled_;
};

// Of an open number of rows that is mostly small (a batch) tiles hold little: they go along other rows where there are more of these.
void avoid_short_rows(const Draft& draft, const BlockInfo& info, TileRoles& roles) {
  constexpr int64_t kFew = 8;
  auto extent = [&](int a) { return info.axes[static_cast<size_t>(a)].extent; };
  if (roles.rows.empty() || extent(roles.row) >= kFew || draft.open_loops.count(info.axes[static_cast<size_t>(roles.row)].loop) == 0) return;
  const auto longest = std::max_element(roles.rows.begin(), roles.rows.end(), [&](int a, int b) { return extent(a) < extent(b); });
  if (extent(*longest) >= 2 * extent(roles.row)) std::swap(*longest, roles.row);
}

// Where rows are channels of several groups (of a plain convolution), a tile has those of one: they share what it multiplies them with.
void separate_rows(Draft& draft, const std::string& block) {
  const std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (!info || !info->is_contraction || info->iterations() == 0) return;
  const std::optional<TileRoles> roles = assign_roles(*info);
  const std::optional<Repetition> groups = repeated_elements(*draft.schedule.find_block(block), *info);
  if (!roles || !groups || roles->row != static_cast<int>(groups->axis)) return;
  try_all(draft, {"channels of one group", block}, [&] { return separate_groups(draft, block, *groups); });
}

bool schedule_tiles(Draft& draft, std::optional<BlockInfo> info) {
  if (!info || !info->is_reduction || info->iterations() == 0) return false;
  const RuleScope scope(draft, {"register tiles", info->name});
  std::optional<DotProduct> dot = dot_product(*info, draft.target);
  if (dot) info = dot->info;
  std::optional<Packing> packing = dot ? std::nullopt : choose_packing(draft, *info);
  if (packing && packing->panels == 0) {
    apply_packing(draft, *info, *packing, "");
    info = analyze(draft.schedule, info->name);
    if (!info) return false;
    packing.reset();
  } else if (packing) {
    info = with_packing(*info, *packing);
  }
  std::optional<TileRoles> roles = assign_roles(*info);
  if (!roles) return false;
  avoid_short_rows(draft, *info, *roles);
  RegisterTile(draft, *info, *roles, packing, dot.value_or(DotProduct{})).run();
  return true;
}

}  // namespace

bool schedule_register_tile(Draft& draft, const std::string& block) {
  separate_rows(draft, block);
  return schedule_tiles(draft, analyze(draft.schedule, block));
}

bool schedule_nested_register_tile(Draft& draft, const std::string& block) {
  return schedule_tiles(draft, analyze_nested(draft.schedule, block));
}

}  // namespace mcc::tuner
