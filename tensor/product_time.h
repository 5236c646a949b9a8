// What a sum of products takes on a GPU: C[g, i, j] += A[g, i, k] * B[g, k, j] in tiles of registers, with operands that come by way
// of shared memory (tuner/rule_grid_product.cpp). The rule picks its tiles by this, and graph passes the algorithm.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/gpu.h"

namespace mcc::tensor {

// Attention of 16-bit operands whose scores stay in registers: what a thread of a warp has of 16 rows.
struct HeldScores {
  int64_t keys, values;     // scores of a row at a time; numbers of a value
  bool is_rolling = false;  // parts of the keys follow each other: a second sum for each value
  // Scores and what is made of them; sums.
  int64_t registers() const { return 6 * ((keys + 7) / 8) + (is_rolling ? 8 : 4) * ((values + 7) / 8); }
  // With more than so many ptxas spills some (of CUDA 13.0; 64 to 344 keys, values of 16 to 416): conditions take some where rows end
  // within a tile.
  static constexpr int64_t kMostWhole = 240, kMostPart = 228, kMostRolling = 204;
  bool fits(bool are_rows_whole) const {
    return registers() <= (is_rolling ? kMostRolling : are_rows_whole ? kMostWhole : kMostPart);
  }
};

struct ProductExtents {
  int64_t g = 1, i = 1, j = 1, k = 1;  // C is contiguous along j
  int64_t period = 1;                  // elements after which the inner axes of k begin anew
  bool is_async = false;               // whether operands can be copied to shared memory asynchronously
  // B is fetched element by element along k out of windows of volumes: of no two elements that a thread fetches one place says the other.
  bool is_scattered = false;

  int64_t results() const { return g * i * j; }
  bool has_windows() const { return period > 1 && period <= (is_scattered ? kMostOfScattered : kMostOfWindow); }

  static constexpr int64_t kMostOfWindow = 64, kMostOfScattered = 32;
};

struct ProductTile {
  static constexpr int64_t kVector = 4;      // elements of 32 bits that one instruction loads
  static constexpr int64_t kMostStages = 4;  // of at least 2

  int64_t threads_i, threads_j;  // of a block
  int64_t rows, columns;         // of C for each thread; columns in groups of kVector
  int64_t depth;                 // of k at a time
  int64_t stages = 2;            // parts of the operands in shared memory at once, where these are copied asynchronously
  int64_t block_i() const { return threads_i * rows; }
  int64_t block_j() const { return threads_j * columns; }
  int64_t threads() const { return threads_i * threads_j; }
};

// Tiles among which there is a good one for any extents.
std::span<const ProductTile> product_tiles();

// Of k at a time: the tile's, in whole periods where these are short.
int64_t depth_of(const ProductTile& tile, const ProductExtents& p);

// Cycles of a multiprocessor, times 128. Rounds of blocks over the multiprocessors, each as long as its arithmetic, the instructions
// that are issued, or what is fetched from shared memory, or as it waits for memory. Infinite where a GPU cannot run it.
double product_time(const ProductTile& tile, const ProductExtents& p, const Gpu& gpu);
double best_product_time(const ProductExtents& p, const Gpu& gpu);

// In the same unit, what it takes to store and load that many partial results, by one launch more or in one that is there anyway.
double parts_time(int64_t results, const Gpu& gpu, bool own_launch = true);

}  // namespace mcc::tensor
