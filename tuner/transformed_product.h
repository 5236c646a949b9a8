// A contraction between computed blocks, as Winograd's convolutions have it, found by the form of its blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tuner/analysis.h"

namespace mcc::tuner {

// rows, input: the transform along one side of a tile, then along the other, of `pads` or what the function reads.
// sums, result: the same of the products; the result with all that follows it element by element.
struct TransformedProduct {
  BlockInfo input, product, sums, result;
  std::string rows;
  std::vector<std::string> pads;
  size_t line = 0, column = 0;  // axes of the result
  int64_t tile = 0;             // results along a side of a tile
};

// Empty when the blocks around the contraction are of another form. Elementwise producers have to be inlined before.
std::optional<TransformedProduct> as_transformed_product(const tensor::Schedule& schedule,
                                                         const std::string& product);

}  // namespace mcc::tuner
