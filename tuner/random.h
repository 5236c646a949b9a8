// Counter-based random numbers: value i of a stream is a hash of its key and i. So what is drawn for one candidate does not
// depend on how many others were drawn before it, or on which thread.
#pragma once

#include <cstdint>

#include "support/random_bits.h"

namespace mcc::tuner {

class Random {
 public:
  // A stream of its own for each seed, task, and index of what is drawn.
  explicit Random(uint64_t seed, uint64_t task = 0, uint64_t index = 0)
      : key_(mix_bits(mix_bits(mix_bits(seed) ^ task) ^ index)) {}

  uint64_t next() { return mix_bits(key_ ^ mix_bits(counter_++)); }
  // 0 .. n-1; n is positive. The bias of the remainder is below n / 2^64.
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  // [0, 1)
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t key_, counter_ = 0;
};

}  // namespace mcc::tuner
