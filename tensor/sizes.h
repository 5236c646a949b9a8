// The sizes that a function's symbolic dimensions may have, as one of its annotations: what is decided before they are known (schedules,
// memory of a thread) goes by it.
#pragma once

#include <optional>
#include <vector>

#include "tensor/simplify.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

// Both ends included. What may be below 0 is no size: a position that data decides.
struct SizeRange {
  int64_t min = 1, max = 1;
  bool operator==(const SizeRange&) const = default;
};

// Of each of f.dims. Part of the function's text: "sizes" = "1..64 1..512".
void mark_sizes(Func& f, const std::vector<SizeRange>& ranges);
// Nothing where the function does not say.
std::optional<std::vector<SizeRange>> sizes_of(const Func& f);

// What its dimensions are known to be.
Analyzer size_facts(const Func& f);

// The function for given sizes, one for each of its dimensions: the same blocks, loops and buffers by their names.
Func with_sizes(const Func& f, const std::vector<int64_t>& sizes);

}  // namespace mcc::tensor
