// Pseudo-random numbers that are the same on every machine.
#pragma once

#include <cstdint>

namespace mcc {

inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

// One step of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection whose outputs pass for independent.
inline uint64_t mix_bits(uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Its stream: a counter turned into well-mixed bits.
struct SplitMix {
  uint64_t state;
  uint64_t next() {
    const uint64_t bits = mix_bits(state);
    state += kSplitMixStep;
    return bits;
  }
};

}  // namespace mcc
