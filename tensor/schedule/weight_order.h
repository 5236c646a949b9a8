// Weights: parameters whose values are known when code is generated. A schedule may have their elements in another order
// (transform_layout); who compiles the kernel then stores them so.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tensor/schedule/schedule.h"

namespace mcc::tensor {

// Marks parameters, by their names, as weights: annotation "weights" of the function.
void mark_weights(Func& f, const std::vector<std::string>& names);
bool is_weight(const Func& f, const Buffer& buffer);

// A permutation of a parameter's elements, as loops over its digits, outermost first: the loops run through the new order
// while `strides` (elements) lead through the old one.
struct WeightOrder {
  size_t parameter = 0;
  std::string map;  // as the schedule's step has it
  int64_t element_bytes = 0;
  std::vector<int64_t> extents, strides;

  int64_t bytes() const;
};

// What a schedule made of the function does to its weights; several for one parameter follow each other.
std::vector<WeightOrder> weight_orders(const Func& unscheduled, const Trace& trace);

// Writes the elements of `from` in the new order; both have order.bytes() and do not overlap.
void reorder(const WeightOrder& order, const std::byte* from, std::byte* to);
std::vector<std::byte> reordered(const WeightOrder& order, std::span<const std::byte> elements);  // of order.bytes()

}  // namespace mcc::tensor
