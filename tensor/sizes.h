// The sizes that a function's symbolic dimensions may have, as one of its annotations: what is decided before they are known (schedules,
// memory of a thread) goes by it.
#pragma once

#include <optional>
#include <vector>

#include "tensor/simplify.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

// The largest size of a dimension without a bound: models compute with sizes in 32 bits, too, and some exporters write it for "to the
// end" of a slice. Memory is not planned for it.
inline constexpr int64_t kLargestSize = 1'000'000'000;

// Both ends included. What may be below 0 is no size: a position that data decides.
struct SizeRange {
  int64_t min = 1, max = 1;
  // The size that costs and schedules are made for; with a bound 0 stands for one in the middle.
  int64_t typical = 0;
  bool has_bound() const { return typical == 0 || max < kLargestSize; }
  bool operator==(const SizeRange&) const = default;
};

// The variable has a size of the range.
void learn_size(Analyzer& facts, const Var& dim, const SizeRange& range);

// Of each of f.dims. Part of the function's text: "sizes" = "1..64 1..512", "1..~128" without a bound and mostly about 128, "1..64~32".
void mark_sizes(Func& f, const std::vector<SizeRange>& ranges);
// Nothing where the function does not say.
std::optional<std::vector<SizeRange>> sizes_of(const Func& f);

// The size that is neither small nor large for a dimension: what costs go by.
int64_t typical_size(const SizeRange& range);

// Sizes of f.dims, one list after the other, at which the function is looked at where one number is needed for each: costs and times are
// those at the first, results are compared at all. An annotation, too ("samples" = "4 128, 3 81"), but of no kernel's own text.
void mark_samples(Func& f, const std::vector<std::vector<int64_t>>& samples);
// Empty where the function does not say.
std::vector<std::vector<int64_t>> samples_of(const Func& f);
// The function, scheduled or not, at the first of its samples, or else at typical sizes; itself where it has no dimensions.
Func at_first_sample(const Func& f);

// What its dimensions are known to be.
Analyzer size_facts(const Func& f);

// In the size of a kernel's workspace: how many threads a run has.
const Var& thread_count();

// The function for given sizes, one for each of its dimensions: the same blocks, loops and buffers by their names. Also of one that is
// scheduled.
Func with_sizes(const Func& f, const std::vector<int64_t>& sizes);
// The function for runs in which one of its dimensions has this size; it stays one of them.
Func with_size(const Func& f, const Var& dim, int64_t size);

}  // namespace mcc::tensor
