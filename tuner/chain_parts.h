// What the rules for chains of two products on CPUs have in common.
#pragma once

#include "tuner/analysis.h"
#include "tuner/draft.h"

namespace mcc::tuner {

struct ChainLoops {
  std::string batch,
      chunk;  // batch is empty where there is none, or where chunks of all batches are one loop
};
// The loops over the batch, which stand around that over chunks of rows, become one, and that, or both together, goes in parallel where
// this pays. block: the second product, of so many batches, which takes so many microseconds.
ChainLoops share_out(Draft& draft, const std::string& block, const std::vector<std::string>& batch,
                     int64_t batches, const std::string& chunk, double us);

// What stands between the products, below the loop over chunks, goes row by row with one of these blocks (lead), whose axis `row` is that
// over rows; in vectors along the row.
void place_rows_between(Draft& draft, const std::vector<BlockInfo>& blocks,
                        const std::vector<std::string>& between, const std::string& lead, size_t row,
                        const std::string& chunk);

}  // namespace mcc::tuner
