// Comparing tensors, and making inputs.
#pragma once

#include <optional>
#include <string>

#include "graph/graph.h"

namespace mcc::tools {

struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-4;
};

struct Comparison {
  bool same = false;
  std::string reason;  // empty when same
  int64_t mismatches = 0;
  int64_t first = -1;    // row-major position of the first mismatch
  double max_error = 0;  // largest absolute difference; infinity where one of the two is not finite
};

// Floats: |got - want| <= atol + rtol * |want|; NaN equals NaN, infinities equal themselves. Everything else must be
// equal. Another shape or element type is a mismatch as a whole.
Comparison compare(const graph::Constant& got, const graph::Constant& want, const Tolerance& tolerance);

// The tolerance for outputs of this type: 16-bit floats may be two units in the last place off, because a fused kernel
// rounds less often than the operators one by one.
Tolerance tolerance_for(ElementType element, Tolerance given);

// Floats: standard normal. Integers: 0..99, or 0..1 where the name contains "mask". bool: either. Depends on nothing but
// its arguments.
graph::Constant random_tensor(const std::string& name, ElementType element, const std::vector<int64_t>& shape,
                              uint64_t seed);

}  // namespace mcc::tools
