// Maps of a buffer's indices, as transform_layout takes them: "(k, n) -> (n // 16, k, n %% 16)".
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tensor/schedule/digits.h"

namespace mcc::tensor {

struct IndexMap {
  std::vector<Var> from;  // one a dimension of the buffer
  std::vector<Expr> to;   // the new indices in terms of them
};

// Nothing where the text is no such map. Indices are made of sums, products, divisions and remainders by constants, and of ^.
std::optional<IndexMap> parse_index_map(std::string_view source);

// coefficient * digit, or coefficient * (digit ^ flip), with the numbers of values that the digits take.
struct Part {
  int64_t coefficient;
  Digit digit;
  Expr extent;
  std::optional<Digit> flip = std::nullopt;
  Expr flip_extent = nullptr;
};

// A new index of a buffer of this shape as a sum of digits of the old ones, the smallest coefficient first; nothing if it is
// none.
std::optional<std::vector<Part>> parts_of(const Expr& index, const IndexMap& map,
                                          const std::vector<Expr>& shape);

}  // namespace mcc::tensor
