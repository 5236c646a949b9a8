// Products of words (of four bytes or two bf16) by tiles (tensor/expr.h; Intel's AMX), where the target has them.
//
//   for batch, rows, row chunk, panel (parallel):
//     for row tile:
//       sums = 0
//       for reduction, in steps of at most 16 words: for tiles of columns, of rows (unrolled): sums += tile of a * tile of w
//       consumers: requantisation; store
//
// Four tiles of sums (two of rows by two of columns) use each operand twice, so that loading operands takes half as long as
// multiplying; more sums leave no operand in its tile until it is used again. A tile has up to 16 rows, of as many tiles as take the least
// time; where they have more rows than there are, the operand is padded. Where that is all rows of one axis (a picture's small lines), the
// tiles that are made together are along the next. Panels of weights that all stay in the nearest cache are passed over for each row
// tile, so that results are written in their order.
#include <algorithm>
#include <limits>

#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tuner/dot_product.h"
#include "tuner/rules.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// The least cycles that a multiplication of tiles takes, which is one for each row (step_cycles).
constexpr int64_t kLeastCycles = 12;

// How many rows tiles have of so many: those that divide them, unless tiles with more rows than there are take much less time.
int64_t best_tile(int64_t extent) {
  auto cycles = [&](int64_t rows) { return ceil_div64(extent, rows) * std::max(rows, kLeastCycles); };
  int64_t best = largest_tile(extent);
  if (extent <= kTileRows) return best;
  constexpr double kMuchLess = 0.9;
  double least = kMuchLess * static_cast<double>(cycles(best));
  for (int64_t rows = 2; rows <= kTileRows; ++rows) {
    if (static_cast<double>(cycles(rows)) >= least) continue;
    best = rows;
    least = static_cast<double>(cycles(rows));
  }
  return best;
}

// Whether the operand of the rows is the first that is read.
bool is_left_first(const BlockInfo& info, const TileRoles& roles) {
  return info.loads[0].strides[static_cast<size_t>(roles.vector)] == 0;
}

// Tiles of sums that are made together.
struct SumTiles {
  int64_t rows = 1, columns = 1;
  int64_t count() const { return rows * columns; }
};
constexpr int64_t kMostSums = 6;

// Cycles of a step of the reduction, as measured on Sapphire Rapids: a multiplication takes one for each row, and 12 at least; two rows
// of an operand are loaded in one, and little of that is hidden. With few sums the operands of rows stay where they are.
double step_cycles(const SumTiles& sums, int64_t rows, int64_t k) {
  const bool keeps_rows = sums.rows * sums.columns <= 4 && sums.rows <= 2;
  const int64_t loads = sums.rows * rows * (keeps_rows ? 1 : sums.columns) + sums.columns * k;
  return static_cast<double>(sums.count() * std::max(rows, kLeastCycles)) + static_cast<double>(loads) / 2;
}

// Which loops are outside of which.
enum Order : int64_t { kPanelsOutside, kRowsOutside, kPanelsInside };

class TileProduct {
 public:
  // elements: of the result, without padding.
  TileProduct(Draft& draft, const BlockInfo& info, ElementType left, TileRoles roles, int64_t rows, int64_t k, int64_t elements)
      : d_(draft),
        info_(info),
        left_(left),
        roles_(std::move(roles)),
        t_(draft.target),
        rows_(rows),
        k_(k),
        elements_(elements) {}

  void run() {
    choose();
    const std::string consumer = tile_consumer(d_, info_, elements_);
    split_and_order();
    const std::string write_back = place_consumer(d_, info_, consumer, tile_loop_, "local");
    must_step(d_, DecomposeReduction{info_.name, reduce_loops_.front()});
    prefetch_panel();
    must_step(d_, Tensorize{row_loop_, tile_instruction(t_, rows_, k_, left_)->name});
    for (const std::string& l : unrolled_)
      must_step(d_, Unroll{l});
    const int64_t lanes = t_.lanes(32);
    vectorize_below_tile(d_, info_.name + ".init", tile_loop_, lanes, false);
    if (!write_back.empty()) vectorize_below_tile(d_, write_back, tile_loop_, lanes, false);
    place_padding(d_, info_, roles_,
                  {outer_loop_, tile_loop_, order_ != kPanelsOutside, product_of(roles_.batch)});
  }

 private:
  const AxisInfo& axis(int a) const { return info_.axes[static_cast<size_t>(a)]; }
  int64_t product_of(const std::vector<int>& axes) const {
    int64_t count = 1;
    for (int a : axes)
      count *= axis(a).extent;
    return count;
  }

  void choose() {
    column_tiles_ = axis(roles_.vector).extent / kTileColumns;
    row_tiles_ = axis(roles_.row).extent / rows_;
    if (row_tiles_ == 1 && !roles_.rows.empty()) {
      lines_ = roles_.rows.back();
      roles_.rows.pop_back();
      row_tiles_ = axis(lines_).extent;
    }
    sums_ = best_sums(0);
    sums_.columns = d_.decide.choose(info_.name + ".columns", column_sizes(), sums_.columns);
    sums_.rows =
        d_.decide.choose(info_.name + ".rows", row_sizes(sums_.columns), best_sums(sums_.columns).rows);
    us_ = cycles(sums_) / (t_.ghz * 1e3);
    const int64_t bytes = weight_bytes();
    order_ = d_.decide.choose(info_.name + ".order", {0, 1, 2},
                              bytes <= t_.l1.bytes / 2   ? kPanelsInside
                              : bytes <= t_.l2.bytes / 2 ? kRowsOutside
                                                         : kPanelsOutside);
  }

  std::vector<int64_t> column_sizes() const {
    std::vector<int64_t> out;
    for (int64_t n = 1; n <= 4; ++n) {
      if (column_tiles_ % n == 0) out.push_back(n);
    }
    return out;
  }
  // The last tiles of rows may be fewer.
  std::vector<int64_t> row_sizes(int64_t columns) const {
    std::vector<int64_t> out;
    for (int64_t n = 1; n <= std::min(row_tiles_, kMostSums / columns); ++n)
      out.push_back(n);
    return out;
  }
  // Of the whole block, as modelled.
  double cycles(const SumTiles& sums) const {
    const int64_t others = product_of(roles_.batch) * product_of(roles_.rows) * (info_.reduce / k_);
    const int64_t whole = row_tiles_ / sums.rows, rest = row_tiles_ % sums.rows;
    double of_rows = static_cast<double>(whole) * step_cycles(sums, rows_, k_);
    if (rest != 0) of_rows += step_cycles({rest, sums.columns}, rows_, k_);
    return of_rows * static_cast<double>(others * (column_tiles_ / sums.columns));
  }
  // The fastest of those with so many columns; of all for 0.
  SumTiles best_sums(int64_t columns) const {
    SumTiles best;
    double least = std::numeric_limits<double>::infinity();
    for (int64_t n : column_sizes()) {
      for (int64_t m : row_sizes(n)) {
        const double cycles = this->cycles({m, n});
        if ((columns != 0 && n != columns) || cycles >= least) continue;
        least = cycles;
        best = {m, n};
      }
    }
    return best;
  }

  const Access& weights() const { return info_.loads[is_left_first(info_, roles_) ? 1 : 0]; }
  const Access& left() const { return info_.loads[is_left_first(info_, roles_) ? 0 : 1]; }
  static int64_t bytes_of(const Access& operand) {
    return count_of(operand.buffer) * byte_size(operand.buffer.element());
  }
  int64_t weight_bytes() const { return bytes_of(weights()); }
  // Of results in the type of what is multiplied, as most are.
  int64_t result_bytes() const { return info_.spatial * byte_size(left_); }

  void split_and_order() {
    const std::string& b = info_.name;
    const std::string panel = b + ".panel";
    std::vector<std::string> outer, inner;
    for (int a : roles_.batch)
      outer.push_back(axis(a).loop);
    for (int a : roles_.rows)
      (order_ == kPanelsOutside ? inner : outer).push_back(axis(a).loop);
    const int64_t tiles = ceil_div64(row_tiles_, sums_.rows);
    const int64_t per_chunk = ceil_div64(tiles, choose_chunks(tiles));
    row_loop_ = axis(roles_.row).loop;
    std::string tile = lines_ < 0 ? b + ".tiles" : axis(lines_).loop;
    if (lines_ < 0) {
      must_step(d_, Split{row_loop_, {0, rows_}, {tile, b + ".row"}});
      row_loop_ = b + ".row";
    }
    must_step(d_, Split{tile, {0, per_chunk, sums_.rows}, {b + ".chunk", b + ".rows", b + ".tile"}});
    must_step(d_, Split{axis(roles_.vector).loop,
                        {0, sums_.columns, kTileColumns},
                        {panel, b + ".columns", b + ".column"}});
    must_step(d_, Split{axis(roles_.reduce.back()).loop, {0, k_}, {b + ".depth", b + ".k"}});
    for (int a : roles_.reduce)
      reduce_loops_.push_back(a == roles_.reduce.back() ? b + ".depth" : axis(a).loop);
    unrolled_ = {b + ".columns", b + ".tile"};
    outer.push_back(b + ".chunk");
    if (order_ != kPanelsInside) outer.push_back(panel);
    inner.push_back(b + ".rows");
    if (order_ == kPanelsInside) inner.push_back(panel);
    tile_loop_ = inner.back();
    std::vector<std::string> order = outer;
    for (const std::vector<std::string>& loops :
         {inner, reduce_loops_, unrolled_, {row_loop_, b + ".column", b + ".k"}})
      order.insert(order.end(), loops.begin(), loops.end());
    must_step(d_, Reorder{order});
    outer_loop_ = outer[0];
    if (outer.size() > 1) {
      outer_loop_ = b + ".outer";
      must_step(d_, Fuse{outer, outer_loop_});
    }
    turn_loop_ = outer_loop_;
    if (!choose_parallel(d_, b, us_)) return;
    take_turns(inner);
    try_step(d_, Parallel{outer_loop_});
  }

  // Row tiles go in chunks: enough of them for all cores. Cores that share out the rows find most of what they read in their own cache,
  // where the kernel before has left it; those that share out the panels, in another's. They share out the panels where weights, which each
  // would read as a whole, are more than twice what is read and written along the rows.
  int64_t choose_chunks(int64_t tiles) {
    std::vector<int64_t> options;
    for (int64_t n = 1; n <= tiles; ++n) {
      if (ceil_div64(tiles, ceil_div64(tiles, n)) == n) options.push_back(n);
    }
    int64_t outside = product_of(roles_.batch);
    if (order_ == kPanelsOutside ||
        (order_ == kRowsOutside && weight_bytes() > 2 * (bytes_of(left()) + result_bytes())))
      outside *= column_tiles_ / sums_.columns;
    if (order_ != kPanelsOutside) outside *= product_of(roles_.rows);
    auto preferred = options.begin();
    while (worth_parallel(us_, t_) && preferred + 1 != options.end() &&
           balance(outside * *preferred, t_.cores) < 0.9)
      ++preferred;
    return d_.decide.choose(info_.name + ".chunks", options, *preferred);
  }

  // One iteration of the parallel loop takes several turns where few blocks of tiles are in each: what is computed of a block's sums is
  // computed beside the multiplications of the next one (tensor/passes/overlap_tiles.h).
  void take_turns(const std::vector<std::string>& inner) {
    constexpr int64_t kEnough = 16, kForEachCore = 4;
    const int64_t outside = extent_of(outer_loop_);
    int64_t blocks = 1;
    for (const std::string& l : inner)
      blocks *= extent_of(l);
    if (product_of(roles_.batch) > 1 || outside <= 1) return;
    std::vector<int64_t> options;
    int64_t preferred = 1;
    for (int64_t n = 1; n <= outside; ++n) {
      if (outside % n != 0) continue;
      options.push_back(n);
      if (n * blocks <= kEnough && outside / n >= kForEachCore * t_.cores) preferred = n;
    }
    const int64_t turns = d_.decide.choose(info_.name + ".turns", options, preferred);
    if (turns == 1) return;
    turn_loop_ = info_.name + ".turn";
    const std::string turns_loop = info_.name + ".turns";
    must_step(d_, Split{outer_loop_, {0, turns}, {turns_loop, turn_loop_}});
    outer_loop_ = turns_loop;
  }
  int64_t extent_of(const std::string& loop) const {
    const For* l = d_.schedule.find_loop(loop);
    int64_t extent = 1;
    return l && as_int(l->extent, &extent) ? extent : 1;
  }

  // While the row tiles pass over a panel of weights, the next one is fetched.
  void prefetch_panel() {
    if (order_ == kPanelsInside || weight_bytes() <= t_.l1.bytes) return;
    if (d_.decide.choose(info_.name + ".prefetch", {0, 1}, 1) == 0) return;
    must_step(d_,
              Annotate{"", unrolled_.back(), "prefetch_next", weights().buffer.name() + " " + turn_loop_});
  }

  Draft& d_;
  const BlockInfo& info_;
  const ElementType left_;
  TileRoles roles_;
  const Target& t_;
  int64_t rows_, k_;  // of a tile; k in words
  int64_t elements_;
  int64_t row_tiles_ = 1, column_tiles_ = 1;
  SumTiles sums_;
  double us_ = 0;
  int64_t order_ = kPanelsOutside;
  int lines_ = -1;  // the axis of the tiles that are made together, where that is not the row axis
  std::string row_loop_, tile_loop_, outer_loop_, turn_loop_;
  std::vector<std::string> reduce_loops_, unrolled_;
};

// The operands lie as tiles take them: one along the last reduction, the other in panels of whole tiles of columns.
bool lie_in_tiles(const BlockInfo& info, ElementType left, const TileRoles& roles) {
  const auto v = static_cast<size_t>(roles.vector), k = static_cast<size_t>(roles.reduce.back()),
             row = static_cast<size_t>(roles.row);
  const bool is_left = is_left_first(info, roles);
  const Access &a = info.loads[is_left ? 0 : 1], &w = info.loads[is_left ? 1 : 0];
  return a.strides[v] == 0 && a.strides[k] == 1 && a.strides[row] > 0 &&
         a.buffer.element() == left && w.strides[v] == 1 && w.strides[row] == 0 &&
         w.strides[k] > 0 && w.runs[v] % kTileColumns == 0 && info.axes[v].extent % kTileColumns == 0;
}

// The block's rows fill whole tiles of sums that are its own. What is made for it alone gets as long as that takes; else it gets a copy.
void pad_rows(Draft& draft, const BlockInfo& info, const TileRoles& roles, int64_t rows) {
  const std::string& b = info.name;
  const bool is_left = is_left_first(info, roles);
  if (is_output(draft.schedule.func(), info.store.buffer))
    must_step(draft, CacheWrite{b, info.store.buffer.name(), "global", b + ".out"});
  const PadEinsum pad{
      b, {draft.schedule.find_block(b)->axes[static_cast<size_t>(roles.row)].var.name()}, {rows}};
  if (!draft.refusal || try_step(draft, pad)) return;
  must_step(draft, CacheRead{b, info.loads[is_left ? 0 : 1].buffer.name(), "global", b + ".padded"});
  must_step(draft, pad);
}

struct Tiled {
  BlockInfo info;
  ElementType left;
  TileRoles roles;
  int64_t rows = 0, k = 0;
  bool needs_padding() const { return info.axes[static_cast<size_t>(roles.row)].extent % rows != 0; }
};

// Of a product of words that lies as tiles take it.
std::optional<Tiled> tiled(const Draft& draft, const std::string& block) {
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  std::optional<DotProduct> dot = info ? dot_product(*info, draft.target) : std::nullopt;
  if (!dot || dot->info.iterations() == 0) return std::nullopt;
  std::optional<TileRoles> roles = assign_roles(dot->info);
  if (!roles || roles->row < 0 || roles->panel >= 0 || roles->reduce.empty() ||
      !lie_in_tiles(dot->info, dot->left, *roles))
    return std::nullopt;
  Tiled t{dot->info, dot->left, *roles};
  t.rows = best_tile(t.info.axes[static_cast<size_t>(roles->row)].extent);
  t.k = largest_tile(t.info.axes[static_cast<size_t>(roles->reduce.back())].extent);
  return t;
}

}  // namespace

bool schedule_tile_product(Draft& draft, const std::string& block) {
  std::optional<Tiled> t = tiled(draft, block);
  if (!t || !tile_instruction(draft.target, t->rows, t->k, t->left)) return false;
  // Dot products multiply as many words in as many cycles as small tiles do; and results that are computed as soon as they are summed,
  // in registers, take less time than those of short sums by way of tiles: the longer, the more is computed of them. Of bf16 dot
  // products are slower.
  constexpr int64_t kWorthIt = 40, kShortSum = 8, kShortSumOfMuch = 64;
  const std::string consumer = tile_consumer(draft, t->info, t->info.spatial);
  const bool has_much = !consumer.empty() && analyze(draft.schedule, consumer)->has_math_call;
  const bool is_worth_it =
      t->rows * t->k >= kWorthIt && t->info.reduce >= (has_much && t->left != ElementType::bf16 ? kShortSumOfMuch : kShortSum);
  return try_all(draft, {"products of tiles", block}, [&] {
    if (draft.decide.choose(block + ".tiles", {0, 1}, is_worth_it ? 1 : 0) == 0) return false;
    const int64_t elements = t->info.spatial;
    if (t->needs_padding()) {
      const int64_t rows = t->rows;
      pad_rows(draft, t->info, t->roles, rows);
      if (draft.refusal) t = tiled(draft, block);
      if (t) t->rows = rows;
    }
    if (!draft.refusal || !t) return false;
    TileProduct(draft, t->info, t->left, t->roles, t->rows, t->k, elements).run();
    return static_cast<bool>(draft.refusal);
  });
}

}  // namespace mcc::tuner
