// Comparing tensors, and making inputs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "graph/graph.h"

namespace mcc::tools {

struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-4;
  double steps = 0;  // integers may be so far apart
};

struct Comparison {
  bool same = false;
  std::string reason;  // empty when same
  int64_t mismatches = 0;
  int64_t first = -1;    // row-major position of the first mismatch
  double max_error = 0;  // largest absolute difference; infinity where one of the two is not finite
};

// Floats: |got - want| <= atol + rtol * |want|; NaN equals NaN, infinities equal themselves. Integers: |got - want| <=
// steps. Everything else must be equal. Another shape or element type is a mismatch as a whole.
Comparison compare(const graph::Constant& got, const graph::Constant& want, const Tolerance& tolerance);

// The largest absolute value that is finite; 0 if there is none.
double largest_finite(const graph::Constant& values);

// The largest absolute difference of elements that are finite in both; 0 where shapes differ, and of strings.
double largest_difference(const graph::Constant& a, const graph::Constant& b);

// The tolerance for comparing with an expected output: the given one, but at least what rounding makes of it. Two units
// in the last place of a 16-bit float, because a fused kernel rounds less often than the operators one by one; and
// 2^-22 of the largest expected value, because where terms of a sum cancel their rounding errors stay.
Tolerance tolerance_for(const graph::Constant& want, Tolerance given);

// Floats: standard normal. Integers: 0..99, or 0..1 where the name contains "mask". bool: either. Strings: mostly `words`, if there are any.
// Depends on nothing but
// its arguments.
graph::Constant random_tensor(const std::string& name, ElementType element, const std::vector<int64_t>& shape,
                              uint64_t seed, std::span<const std::string> words = {});

}  // namespace mcc::tools
