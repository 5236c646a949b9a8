// Random schedule steps on whatever blocks, loops and buffers a function has.
#pragma once

#include <cstdint>

#include "tensor/schedule/schedule.h"

namespace mcc::tensor::test {

// splitmix64
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

 private:
  uint64_t state_;
};

// A step that may well be refused.
Step random_step(const Schedule& schedule, Random& random);

// Applies random steps until `accepted` of them were, or ten times as many were tried.
Trace random_trace(const Func& func, Random& random, int accepted);

}  // namespace mcc::tensor::test
