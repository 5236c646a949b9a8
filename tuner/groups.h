// Groups of a convolution, whose channels stand side by side, as batches of products.
#pragma once

#include <optional>
#include <string>

#include "tuner/analysis.h"
#include "tuner/draft.h"

namespace mcc::tuner {

// An axis along which an operand stands still for so many steps and then goes on (groups of a convolution side by side): neither an
// axis that it has nor one that it has not.
struct Repetition {
  size_t axis;
  int64_t width;  // 0: it cannot be told
};

// The first such axis of a block; empty where there is none.
std::optional<Repetition> repeated_elements(const tensor::Block& block, const BlockInfo& info);

// Such an axis of a contraction becomes two, `group` and what is in one: of the block, of who reads its result, and of the result in
// memory. False, and nothing changed, where the axis is not whole groups of several.
bool separate_groups(Draft& draft, const std::string& block, const Repetition& groups);

}  // namespace mcc::tuner
