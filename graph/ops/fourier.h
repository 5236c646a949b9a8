// What discrete Fourier transforms compute, for their operators and for passes.
#pragma once

#include <optional>

#include "graph/op.h"

namespace mcc::graph {

// What a transform of `length` points does: `terms` inputs (further ones are 0 or cut off) to `results` outputs.
struct Transform {
  int64_t length = 1, terms = 1, results = 1;
  bool inverse = false;
  bool from_half = false;  // the inputs are the first half of a spectrum that belongs to a real signal
  bool complex_input = false, complex_output = true;
};

// Of a DFT along an axis of `extent` numbers of `parts` parts (2: complex); `given`: its length, where one is given.
Transform dft_of(const Attributes& attributes, int64_t extent, int64_t parts, std::optional<int64_t> given);

}  // namespace mcc::graph
