#include "tuner/register_tile_size.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace mcc::tuner {

using tensor::Target;

namespace {

double cycles_for(double bytes, const tensor::Cache& from, const Target& t) {
  return bytes * t.ghz / from.gb_per_s;
}

// Cycles that fetching a vector operand takes beyond what issue hides: from the second-level cache, or where that does not hold a panel.
// passes: of tiles over a panel, where they are few; the first finds it further away. 0: many.
double fetch_cycles(int64_t vectors, int64_t passes, const TileProblem& p, const Target& t) {
  constexpr double kShown = 0.3;
  const int64_t step = vectors * vector_bytes(p.widens_bytes, t), panel = p.steps * step;
  if (panel <= t.l1.bytes / 2) return 0;
  const double far = cycles_for(static_cast<double>(step), t.l3, t),
               near = panel <= t.l2.bytes * 3 / 4 ? cycles_for(static_cast<double>(step), t.l2, t) : far;
  return kShown * (passes == 0 ? near : near + (far - near) / static_cast<double>(passes));
}

// Of the rows' scalars, where these are so far apart that the nearest cache does not keep a line of each: no line stays until its last
// element is read. (28 rows of 3072 on a Zen 5, whose cache has 12 ways: two tiles of 14 take a tenth longer than three of 10 and 8.)
double scalar_cycles(int64_t rows, const TileProblem& p, const Target& t) {
  constexpr double kShown = 0.6;
  constexpr int64_t kScalar = 4;  // bytes: an f32, or what an instruction takes of narrower numbers
  if (p.row_stride == 0 || rows <= t.l1.lines_held(p.row_stride)) return 0;
  return kShown * cycles_for(static_cast<double>(rows * kScalar), t.l2, t);
}

// What two load ports reach next to a stream of multiplications, misses of the first-level cache included: tiles of 28 x 1
// take a third longer for the same products than those of 8 x 3 or 14 x 2, which load half as much.
constexpr double kLoadsPerCycle = 1.5;

// Operations on bytes that are widened: a product and a sum for each vector of sums, a shuffle for each of the vector operand. Half as many
// again as there are ports that multiply take them. (A Zen 3 makes three in a cycle: tiles of 6 x 2, 5 x 2 and 3 x 3 are alike, those of 4 x 3
// and 3 x 4, which registers do not hold, take half as long again.)
constexpr double kPortsPerMultiplier = 1.5;
double widened_cycles(int64_t rows, int64_t vectors, const Target& t) {
  return static_cast<double>(2 * rows * vectors + vectors) / (kPortsPerMultiplier * t.fma_ports);
}

double step_cycles(int64_t rows, int64_t vectors, double loads_per_cycle, const TileProblem& p,
                   const Target& t) {
  const bool shared = p.is_shared_scalar;
  double fma =
      p.widens_bytes ? widened_cycles(rows, vectors, t) : static_cast<double>(rows * vectors) / t.fma_ports;
  double loads = static_cast<double>(shared ? rows + vectors : rows * vectors + vectors) / loads_per_cycle;
  return std::max({fma, loads, static_cast<double>(t.fma_latency)});
}

double write_back_cycles(int64_t rows, int64_t vectors) {
  return 2.0 * static_cast<double>(rows * vectors) + 12;
}

double tile_cycles(int64_t rows, int64_t vectors, const TileProblem& p, const Target& t) {
  double step = step_cycles(rows, vectors, kLoadsPerCycle, p, t) + scalar_cycles(rows, p, t) +
                fetch_cycles(vectors, p.lines == 1 ? 0 : p.lines, p, t);
  return static_cast<double>(p.steps) * step + write_back_cycles(rows, vectors);
}

// Of several lines of few rows, which lie close together: all of them are in the first-level cache, and nearly two loads go in a cycle. A
// tile of all lines reads its panel once, fetched ahead. (Images of 4 x 4: 16 x 1 near the peak, 8 x 2 a quarter slower; of 8 x 8 on a Zen 5:
// 8 x 2 eight hundredths faster than 16 x 1.)
double lines_cycles(int64_t lines, int64_t vectors, const TileProblem& p, const Target& t) {
  constexpr double kLoads = 1.8;
  const int64_t rows = p.rows * lines;
  const double step = step_cycles(rows, vectors, kLoads, p, t) +
                      (lines == p.lines ? 0 : fetch_cycles(vectors, p.lines / lines, p, t));
  return static_cast<double>(p.steps) * step + write_back_cycles(rows, vectors);
}

// Tiles of two widths are two pieces of code. Those of 4 x 3 and 4 x 2 take this much longer for 5 vectors than those of 2 x 5.
constexpr double kTwoWidths = 1.03;

// Of all tiles of so many rows, the last of them lower, down a panel.
double panel_cycles(int64_t rows, int64_t vectors, const TileProblem& p, const Target& t) {
  const int64_t whole = (p.rows - 1) / rows;
  return static_cast<double>(whole) * tile_cycles(rows, vectors, p, t) + tile_cycles(p.rows - whole * rows, vectors, p, t);
}

// A lower tile of open rows has a guard for each: tiles of 7 rows take this much longer with guards.
constexpr double kGuards = 1.3;

// The mean for numbers of rows from half of p.rows to twice as many, scaled to p.rows.
double open_panel_cycles(int64_t rows, int64_t vectors, const TileProblem& p, const Target& t) {
  constexpr int64_t kSamples = 64;
  const int64_t first = std::max<int64_t>(1, p.rows / 2), last = 2 * p.rows, step = std::max<int64_t>(1, (last - first) / kSamples);
  double cycles = 0, count = 0;
  for (int64_t n = first; n <= last; n += step) {
    const int64_t whole = n / rows, left = n % rows;
    double all = static_cast<double>(whole) * tile_cycles(rows, vectors, p, t);
    if (left != 0) all += kGuards * tile_cycles(left, vectors, p, t);
    cycles += all * static_cast<double>(p.rows) / static_cast<double>(n);
    ++count;
  }
  return cycles / count;
}

// The tiles that fit the registers.
std::vector<TileSize> legal_tiles(const TileProblem& p, const Target& t) {
  std::vector<TileSize> tiles;
  // Two registers stay free for addresses' vectors and temporaries; without broadcast operands one more is used.
  int64_t registers = t.vector_registers - (t.vector_registers >= 32 ? 2 : 1);
  for (int64_t vectors : p.vector_choices) {
    // Without a shared scalar operand every product needs a register of its own for a while.
    int64_t most = p.is_shared_scalar ? 28 : std::max<int64_t>(1, registers / (2 * vectors));
    auto cycles_of = p.has_open_rows ? open_panel_cycles : panel_cycles;
    for (int64_t rows = 1; rows <= (p.has_open_rows ? most : std::min<int64_t>(p.rows, most)); ++rows) {
      // A product of widened bytes that is not added at once is there as well.
      int64_t operands = p.widens_bytes ? vectors + 1 : p.is_shared_scalar ? vectors : 1;
      if (rows * vectors + operands > registers) break;
      // Rows are spread evenly over the tiles that this many at most make.
      int64_t count = (p.rows + rows - 1) / rows;
      if (!p.has_open_rows && (p.rows + count - 1) / count != rows) continue;
      double cycles = static_cast<double>(p.vectors / vectors) * cycles_of(rows, vectors, p, t);
      if (const int64_t last = p.vectors % vectors; last != 0) {
        cycles = (cycles + cycles_of(rows, last, p, t)) * kTwoWidths;
      }
      tiles.push_back({rows, vectors, 1, cycles});
    }
    for (int64_t lines = 2; lines <= p.lines; ++lines) {
      const int64_t all = p.rows * lines;
      if (p.lines % lines != 0 || all > most || all * vectors + vectors > registers) continue;
      double cycles = static_cast<double>(p.vectors / vectors) * lines_cycles(lines, vectors, p, t);
      if (const int64_t last = p.vectors % vectors; last != 0)
        cycles = (cycles + lines_cycles(lines, last, p, t)) * kTwoWidths;
      tiles.push_back({p.rows, vectors, lines, cycles / static_cast<double>(lines)});
    }
  }
  return tiles;
}

// The best of those that have so many of these; of all for 0.
TileSize best_tile(const std::vector<TileSize>& tiles, int64_t vectors, int64_t rows) {
  TileSize best;
  best.cycles = std::numeric_limits<double>::infinity();
  for (const TileSize& tile : tiles) {
    if ((vectors == 0 || tile.vectors == vectors) && (rows == 0 || tile.rows == rows) &&
        tile.cycles < best.cycles)
      best = tile;
  }
  return best;
}

}  // namespace

TileSize choose_tile_size(const TileProblem& p, const Target& t, const std::string& block, Decider& decide) {
  std::vector<TileSize> tiles = legal_tiles(p, t);
  std::vector<int64_t> widths, heights, lines;
  auto add = [](std::vector<int64_t>& options, int64_t option) {
    if (std::find(options.begin(), options.end(), option) == options.end()) options.push_back(option);
  };
  for (const TileSize& tile : tiles)
    add(widths, tile.vectors);
  std::vector<TileSize> wide;
  std::copy_if(tiles.begin(), tiles.end(), std::back_inserter(wide),
               [&](const TileSize& tile) { return tile.vectors >= p.least_preferred; });
  int64_t vectors =
      decide.choose(block + ".vectors", widths, best_tile(wide.empty() ? tiles : wide, 0, 0).vectors);
  for (const TileSize& tile : tiles) {
    if (tile.vectors == vectors) add(heights, tile.rows);
  }
  int64_t rows = decide.choose(block + ".rows", heights, best_tile(tiles, vectors, 0).rows);
  const TileSize best = best_tile(tiles, vectors, rows);
  if (p.lines == 1) return best;
  std::erase_if(tiles, [&](const TileSize& tile) { return tile.vectors != vectors || tile.rows != rows; });
  for (const TileSize& tile : tiles)
    add(lines, tile.lines);
  const int64_t chosen = decide.choose(block + ".lines", lines, best.lines);
  return *std::find_if(tiles.begin(), tiles.end(),
                       [&](const TileSize& tile) { return tile.lines == chosen; });
}

}  // namespace mcc::tuner
