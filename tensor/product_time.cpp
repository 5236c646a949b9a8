#include "tensor/product_time.h"

#include <algorithm>
#include <cmath>

namespace mcc::tensor {

namespace {

constexpr ProductTile kTiles[] = {{16, 16, 8, 8, 8}, {8, 16, 8, 8, 8}, {16, 16, 4, 4, 16}, {8, 16, 4, 4, 16},
                                  {8, 8, 8, 4, 16},  {8, 8, 4, 4, 16}, {16, 8, 4, 4, 16},  {8, 8, 2, 4, 16},
                                  {4, 16, 2, 4, 16}, {4, 8, 2, 4, 16}};

// Multiplications and additions in f32 that a multiprocessor does in a cycle (CUDA programming guide, throughput of instructions).
double multiply_adds(const Gpu& gpu) { return gpu.sm() >= 60 && gpu.sm() <= 80 ? 64 : 128; }

int64_t blocks_along(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

}  // namespace

std::span<const ProductTile> product_tiles() { return kTiles; }

int64_t depth_of(const ProductTile& t, const ProductExtents& p) {
  constexpr int64_t kLongest = 64;
  int64_t depth = t.depth;
  if (p.period > 1 && p.period <= kLongest) {
    depth = std::max<int64_t>((t.depth + p.period / 2) / p.period, 1) * p.period;
  }
  return std::min(depth, p.k);
}

double product_time(const ProductTile& t, const ProductExtents& p, const Gpu& gpu) {
  constexpr int64_t kVector = ProductTile::kVector;
  double blocks = static_cast<double>(blocks_along(p.i, t.block_i()) * blocks_along(p.j, t.block_j()) * p.g);
  // Accumulators, a row and a column, and what addresses take.
  int64_t registers = t.rows * t.columns + 2 * (t.rows + t.columns) + 32;
  int64_t shared = p.stages * (t.block_i() + kVector + t.block_j() + kVector) * depth_of(t, p) * 4;
  int64_t resident =
      std::min({gpu.threads_per_multiprocessor / t.threads(),
                gpu.registers_per_multiprocessor / (registers * t.threads()),
                gpu.shared_per_multiprocessor / shared, int64_t{gpu.blocks_per_multiprocessor}});
  if (p.j <= t.block_j() - t.threads_j * kVector) return INFINITY;  // a group of columns without one of C
  if (resident < 1 || shared > gpu.shared_per_block || registers > gpu.registers_per_thread) return INFINITY;
  double products = static_cast<double>(t.block_i() * t.block_j() * p.k);
  // A multiprocessor fetches 32 words a cycle.
  double fetches =
      products * (0.25 / static_cast<double>(t.rows) + 1.0 / static_cast<double>(t.columns)) * 4 / kVector;
  double from_memory = static_cast<double>((t.block_i() + t.block_j()) * p.k) * 8;
  double at_once = std::clamp(blocks / gpu.multiprocessors, 1.0, static_cast<double>(resident));
  // Too few threads do not hide what they wait for.
  double busy = std::min(1.0, at_once * static_cast<double>(t.threads()) / 256);
  double rounds = std::ceil(blocks / (gpu.multiprocessors * at_once));
  // Copies that run beside the arithmetic still take its place now and then.
  double step =
      std::max(products * 128 / multiply_adds(gpu), fetches) + from_memory / static_cast<double>(p.stages);
  return rounds * at_once * step / busy;
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
