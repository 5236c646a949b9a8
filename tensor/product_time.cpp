#include "tensor/product_time.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mcc::tensor {

namespace {

constexpr ProductTile kSizes[] = {{16, 16, 8, 8, 8},  {16, 16, 8, 8, 16}, {8, 16, 8, 8, 8},  {8, 16, 8, 8, 16}, {8, 8, 8, 8, 16},
                                  {16, 16, 4, 4, 16}, {8, 16, 8, 4, 16},  {8, 16, 4, 4, 16}, {8, 8, 8, 4, 16},  {8, 8, 4, 4, 16},
                                  {16, 8, 4, 4, 16},  {8, 8, 2, 4, 16},   {4, 16, 2, 4, 16}, {4, 8, 4, 4, 16},  {4, 8, 2, 4, 16},
                                  {4, 16, 1, 8, 16},  {16, 16, 4, 4, 32}, {8, 16, 8, 4, 32}, {8, 16, 4, 4, 32}};

// Each in every number of stages, the fewest first.
constexpr auto kTiles = [] {
  std::array<ProductTile, std::size(kSizes) * (ProductTile::kMostStages - 1)> tiles{};
  size_t n = 0;
  for (int64_t stages = 2; stages <= ProductTile::kMostStages; ++stages) {
    for (ProductTile t : kSizes) {
      t.stages = stages;
      tiles[n++] = t;
    }
  }
  return tiles;
}();

// Multiplications and additions in f32 that a multiprocessor does in a cycle (CUDA programming guide, throughput of instructions).
double multiply_adds(const Gpu& gpu) { return gpu.sm() >= 60 && gpu.sm() <= 80 ? 64 : 128; }

int64_t blocks_along(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

// Of one step of a block, in cycles of a multiprocessor that has nothing else to do.
double step_cycles(const ProductTile& t, const Gpu& gpu, double depth) {
  constexpr double kLanes = 128;      // instructions of a thread that are issued in a cycle
  constexpr double kLoopTurn = 40;    // instructions of a step that do not depend on its depth
  constexpr double kWords = 4;        // of a load
  const double rows = static_cast<double>(t.rows), columns = static_cast<double>(t.columns),
               threads = static_cast<double>(t.threads());
  const double products = threads * rows * columns * depth;
  const double issued = products + threads * ((rows + columns) / kWords * depth + kLoopTurn);
  // Shared memory serves a warp 16 lanes with 16 bytes each in a cycle (tuner/rule_grid_product.cpp).
  auto turns = [&](double words) { return std::max(1.0, 2 * words / kWords); };
  const double fetches = threads / gpu.warp * depth * (turns(rows) + turns(columns));
  return std::max({products / multiply_adds(gpu), issued / kLanes, fetches});
}

}  // namespace

std::span<const ProductTile> product_tiles() { return kTiles; }

int64_t depth_of(const ProductTile& t, const ProductExtents& p) {
  int64_t depth = t.depth;
  if (p.has_windows()) {
    depth = std::max<int64_t>((t.depth + p.period / 2) / p.period, 1) * p.period;
  }
  return std::min(depth, p.k);
}

double product_time(const ProductTile& t, const ProductExtents& p, const Gpu& gpu) {
  constexpr int64_t kVector = ProductTile::kVector;
  const double blocks = static_cast<double>(blocks_along(p.i, t.block_i()) * blocks_along(p.j, t.block_j()) * p.g);
  const int64_t depth = depth_of(t, p), stages = p.is_async ? t.stages : 1;
  // Accumulators, a row and a column, and what addresses take.
  const int64_t registers = t.rows * t.columns + 2 * (t.rows + t.columns) + 32;
  const int64_t shared = stages * (t.block_i() + kVector + t.block_j() + kVector) * depth * 4;
  const int64_t resident =
      std::min({gpu.threads_per_multiprocessor / t.threads(),
                gpu.registers_per_multiprocessor / (registers * t.threads()),
                gpu.shared_per_multiprocessor / shared, int64_t{gpu.blocks_per_multiprocessor}});
  if (p.j <= t.block_j() - t.threads_j * kVector) return INFINITY;  // a group of columns without one of C
  if (resident < 1 || shared > gpu.shared_per_block || registers > gpu.registers_per_thread) return INFINITY;
  // What a thread fetches in a step, each with an address of its own, shares the registers with the sums.
  constexpr int64_t kMostFetched = 50, kMostScattered = 20;
  const int64_t most_fetched = p.is_scattered ? kMostScattered : kMostFetched;
  if ((t.block_i() + t.block_j()) * depth > most_fetched * t.threads()) return INFINITY;
  // Cycles until the memory answers, at first, and where all wait for weights that no cache has; bytes that a multiprocessor takes from
  // the cache in a cycle, and when all of them do. With these the default tiles of products of 128 and 197 rows take as long as on an
  // H200: 15 to 23 TFLOP/s.
  constexpr double kFirst = 600, kWait = 1200, kOwnBytes = 64, kSharedBytes = 28;
  // Of the multiprocessor that has the most: all others wait for it.
  const double at_once = std::min(std::ceil(blocks / gpu.multiprocessors), static_cast<double>(resident));
  // Too few threads do not hide what they wait for.
  const double busy = std::min(1.0, at_once * static_cast<double>(t.threads()) / 256);
  const double rate = std::clamp(kSharedBytes * gpu.multiprocessors / blocks, kSharedBytes, kOwnBytes);
  // Windows share elements along both directions; the nearest cache has those of one.
  const double columns = static_cast<double>(t.block_j()) / (p.has_windows() ? std::sqrt(static_cast<double>(p.period)) : 1);
  const double from_memory = (static_cast<double>(t.block_i()) + columns) * static_cast<double>(depth) * 4 / rate;
  const double arithmetic = step_cycles(t, gpu, static_cast<double>(depth)) / busy;
  // Copies that run beside the arithmetic still take its place now and then.
  constexpr double kBeside = 0.25;
  const double step = stages > 1 ? std::max(arithmetic, from_memory) + kBeside * std::min(arithmetic, from_memory)
                                 : arithmetic + from_memory;
  const double steps = static_cast<double>(blocks_along(p.k, depth)), work = at_once * step;
  const double ahead = std::clamp(static_cast<double>(stages - 1), 1.0, std::max(steps - 1, 1.0));
  const double wait = stages > 1 ? kWait / ahead : kFirst + step;
  // A block alone has nobody to work while it waits.
  const double shows = at_once > 1 ? 0 : 0.1 * std::min(work, wait);
  const double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  return 128 * rounds * (kFirst + steps * (std::max(work, wait) + shows));
}

double best_product_time(const ProductExtents& p, const Gpu& gpu) {
  double best = INFINITY;
  for (const ProductTile& t : kTiles)
    best = std::min(best, product_time(t, p, gpu));
  return best;
}

double parts_time(int64_t results, const Gpu& gpu, bool own_launch) {
  double bytes = 8.0 * static_cast<double>(results);
  double cycles = bytes * gpu.ghz / std::max(gpu.gb_per_s, 1.0);
  if (own_launch) cycles += gpu.launch_us * 1e3 * gpu.ghz;
  return 128 * cycles;
}

}  // namespace mcc::tensor
