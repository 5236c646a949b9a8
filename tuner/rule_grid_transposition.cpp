// Blocks on a GPU that write along one axis what they read along another: square tiles by way of shared memory, so that the
// threads of a warp read neighbours and write neighbours.
//
//   bound tile @{block.x}
//     bound l.ty @{thread.y}: bound a @{thread.x}: for l.n: t[l, a] = x[.. a], neighbours along a
//     bound a.ty @{thread.y}: bound l @{thread.x}: for a.n: y[.. l] from t[l, a], neighbours along l
//
// Such a tile for each operand that is read so; or, where all operands may be read along a, one tile of results. An axis that stands for
// two, of which one is read along (a transposition and then a reshape), is split first.
#include <algorithm>
#include <set>

#include "support/text.h"
#include "tensor/visit.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kTile = 32, kRows = 8;  // lines of a tile that are read or written at once
constexpr size_t kMostTiles = 4;          // of operands

struct Transposition {
  size_t along = 0, across = 0;  // axes: along which is written, and along which is read
  std::vector<Access> far;       // what is read along the second axis, each buffer's once
  bool is_of_results = false;    // one tile of results takes the place of all of theirs
};

// Whether threads next to each other along the axis read neighbours, or one element.
bool is_near(const Access& load, size_t axis) { return load.strides[axis] == 0 || load.strides[axis] == 1; }

// Whether a place that is read depends on data: a gather.
bool reads_at_data(const Block& block) {
  bool found = false;
  auto is_load = [&](const Expr& e) { found |= e.kind() == ExprKind::Load; };
  for_each_expr(block.body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    for (const Expr& index : load ? load->indices : std::vector<Expr>())
      for_each_expr(Evaluate::make(index), is_load);
  });
  return found;
}

// The step that gives operand n of those that are read across a tile, its axes in the order in which it is read.
Reindex tile_of_operand(const Block& block, const Transposition& t, size_t n) {
  std::vector<std::string> order;
  for (size_t axis = 0; axis < block.axes.size(); ++axis) {
    if (axis != t.along && axis != t.across && t.far[n].strides[axis] != 0)
      order.push_back(block.axes[axis].var.name());
  }
  order.push_back(block.axes[t.along].var.name());
  order.push_back(block.axes[t.across].var.name());
  return {block.name, t.far[n].buffer.name(), "shared",
          n == 0 ? block.name + ".t" : text(block.name, ".t", n), order};
}

bool may_have_tiles(Schedule s, const Block& block, const Transposition& t) {
  bool may = t.far.size() <= kMostTiles;
  for (size_t n = 0; may && n < t.far.size(); ++n)
    may = static_cast<bool>(s.apply(tile_of_operand(block, t, n)));
  return may;
}

std::optional<Transposition> as_transposition(const Schedule& s, const BlockInfo& info) {
  if (!info.is_injective || info.is_nested || info.axes.size() < 2 || info.element_bits > 32)
    return std::nullopt;
  Transposition t;
  t.along = t.across = info.axes.size() - 1;
  if (info.store.strides[t.along] != 1) return std::nullopt;
  for (const Access& load : info.loads) {
    if (is_near(load, t.along)) continue;
    const bool is_known = std::any_of(t.far.begin(), t.far.end(), [&](const Access& other) {
      return other.buffer.same_as(load.buffer) && other.strides == load.strides;
    });
    if (!is_known) t.far.push_back(load);
  }
  if (t.far.empty()) return std::nullopt;
  for (const Access& load : t.far) {
    for (size_t n = t.along; t.across == t.along && n-- > 0;) {
      if (load.strides[n] == 1) t.across = n;
    }
  }
  auto is_near_across = [&](const Access& load) { return is_near(load, t.across); };
  if (t.across == t.along || !std::all_of(t.far.begin(), t.far.end(), is_near_across)) return std::nullopt;
  if (info.axes[t.along].extent < kRows || info.axes[t.across].extent < kRows) return std::nullopt;
  const Block& block = *s.find_block(info.name);
  t.is_of_results = (t.far.size() > 1 || reads_at_data(block)) &&
                    std::all_of(info.loads.begin(), info.loads.end(), is_near_across);
  return t.is_of_results || may_have_tiles(s, block, t) ? std::optional(t) : std::nullopt;
}

// An axis' digits that an index of the block has: axis // width, axis %% width.
std::set<int64_t> widths_of_digits(const Block& block, const Axis& axis) {
  std::set<int64_t> widths;
  for_each_expr(block.body, [&](const Expr& e) {
    const auto* digit = e.as<Binary>();
    int64_t width = 0;
    const bool is_digit = digit && (digit->op == BinaryOp::floor_div || digit->op == BinaryOp::floor_mod) &&
                          digit->a.same_as(axis.var) && as_int(digit->b, &width);
    if (is_digit) widths.insert(width);
  });
  return widths;
}

// Which axis to split so that the block becomes a transposition; the widest that does.
std::optional<SplitAxis> split_to_transpose(const Schedule& s, const std::string& block) {
  for (const Axis& axis : s.find_block(block)->axes) {
    const std::set<int64_t> widths = widths_of_digits(*s.find_block(block), axis);
    for (auto width = widths.rbegin(); width != widths.rend(); ++width) {
      const SplitAxis split{block, axis.var.name(), *width, axis.var.name() + ".turn"};
      Schedule tried = s;
      if (!tried.apply(split)) continue;
      const std::optional<BlockInfo> info = analyze(tried, block);
      if (info && as_transposition(tried, *info)) return split;
    }
  }
  return std::nullopt;
}

// The loops of a block along both axes of a tile.
struct Loops {
  std::string block, along, across;
};

// A block's nest in tiles, written along `along`; the others fill what it reads, a tile in shared memory each, along `across`.
void write_by_tiles(Draft& d, const std::string& grid, std::vector<std::string> outer, const Loops& writer,
                    const std::vector<Loops>& fillers) {
  const std::string &l = writer.along, &a = writer.across;
  must_step(d, Split{l, {0, kTile}, {l + ".b", l + ".t"}});
  must_step(d, Split{a, {0, kTile}, {a + ".b", a + ".t"}});
  must_step(d, Split{a + ".t", {kTile / kRows, kRows}, {a + ".n", a + ".ty"}});
  outer.push_back(a + ".b");
  outer.push_back(l + ".b");
  std::vector<std::string> loops = outer;
  for (const std::string& loop : {a + ".ty", l + ".t", a + ".n"})
    loops.push_back(loop);
  must_step(d, Reorder{loops});
  must_step(d, Fuse{outer, grid});
  must_step(d, Bind{grid, "block.x"});
  must_step(d, Bind{a + ".ty", "thread.y"});
  must_step(d, Bind{l + ".t", "thread.x"});
  must_step(d, Unroll{a + ".n"});
  for (const auto& [filler, cl, ca] : fillers) {
    must_step(d, ComputeAt{filler, grid});
    must_step(d, Split{cl, {0, kRows}, {cl + ".n", cl + ".ty"}});
    std::vector<std::string> own{cl + ".ty", ca, cl + ".n"};
    // Between the two there may be one that has a single turn left.
    const std::vector<std::string> all = d.schedule.loop_names_of(filler);
    for (auto loop = std::find(all.begin(), all.end(), grid); loop != all.end(); ++loop)
      if (*loop != grid && std::find(own.begin(), own.end(), *loop) == own.end()) own.push_back(*loop);
    must_step(d, Reorder{own});
    must_step(d, Bind{cl + ".ty", "thread.y"});
    must_step(d, Bind{ca, "thread.x"});
  }
}

// The tiles' steps: one for each far operand, or one for the results.
std::vector<Reindex> tiles_of(const Block& block, const BlockInfo& info, const Transposition& t) {
  std::vector<Reindex> tiles;
  for (size_t n = 0; n < t.far.size() && !t.is_of_results; ++n)
    tiles.push_back(tile_of_operand(block, t, n));
  if (!t.is_of_results) return tiles;
  std::vector<std::string> order;
  for (size_t n = 0; n < info.axes.size(); ++n) {
    if (n != t.along && n != t.across) order.push_back(block.axes[n].var.name());
  }
  order.push_back(block.axes[t.along].var.name());
  order.push_back(block.axes[t.across].var.name());
  return {{block.name, info.store.buffer.name(), "shared", block.name + ".t", order}};
}

bool tile_transposition_on_grid(Draft& d, const BlockInfo& info, const Transposition& t) {
  const std::vector<Reindex> tiles = tiles_of(*d.schedule.find_block(info.name), info, t);
  Loops writer{info.name, info.axes[t.along].loop, info.axes[t.across].loop};
  std::vector<std::string> outer;
  for (size_t n = 0; n < info.axes.size(); ++n) {
    if (n != t.along && n != t.across) outer.push_back(info.axes[n].loop);
  }
  std::vector<Loops> fillers;
  for (const Reindex& tile : tiles) {
    must_step(d, tile);
    // The axes of the tile itself are the last ones.
    const size_t last = tile.axes.size() - 1;
    fillers.push_back({tile.name, tile.name + "." + tile.axes[last - 1], tile.name + "." + tile.axes[last]});
  }
  if (t.is_of_results) {
    std::swap(writer, fillers[0]);
    outer.clear();
    for (size_t n = 0; n + 2 < tiles[0].axes.size(); ++n)
      outer.push_back(tiles[0].name + "." + tiles[0].axes[n]);
  }
  write_by_tiles(d, info.name + ".block", outer, writer, fillers);
  for (const Reindex& tile : tiles)
    must_step(d, StorageAlign{tile.name, kTile, 1});
  for (const Loops& filler : fillers) {
    if (d.refusal) try_step(d, Unroll{filler.along + ".n"});
  }
  return static_cast<bool>(d.refusal);
}

}  // namespace

bool schedule_grid_transposition(Draft& draft, const std::string& block) {
  const Schedule& s = draft.schedule;
  std::optional<BlockInfo> info = analyze(s, block);
  if (!info || !draft.refusal) return false;
  std::optional<Transposition> t = as_transposition(s, *info);
  const std::optional<SplitAxis> split = t ? std::nullopt : split_to_transpose(s, block);
  if (!t && !split) return false;
  return try_all(draft, {"transpositions by way of shared memory", block}, [&] {
    if (split) {
      must_step(draft, *split);
      info = analyze(s, block);
      t = as_transposition(s, *info);
    }
    return tile_transposition_on_grid(draft, *info, *t);
  });
}

}  // namespace mcc::tuner
