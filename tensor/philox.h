// Philox 4x32-10: a random number generator without a state. A block of four words is a function of a counter of 128 bits and a key
// of 64, so that any element of any tensor can be drawn by itself, in any order and by any thread.
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011), sections 3.3 and 4.
#pragma once

#include <array>
#include <cstdint>

namespace mcc::tensor {

inline constexpr int kPhiloxRounds = 10;
// Of words 0 and 2 of the counter.
inline constexpr std::array<uint32_t, 2> kPhiloxMultipliers = {0xD2511F53, 0xCD9E8D57};
// Added to the words of the key from one round to the next.
inline constexpr std::array<uint32_t, 2> kPhiloxSteps = {0x9E3779B9, 0xBB67AE85};

// The block of the counter whose words are the low and the high one of `low`, then those of `high`; of the key likewise.
constexpr std::array<uint32_t, 4> philox(uint64_t low, uint64_t high, uint64_t key) {
  const auto first = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto second = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  std::array<uint32_t, 4> c = {first(low), second(low), first(high), second(high)};
  std::array<uint32_t, 2> k = {first(key), second(key)};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p = uint64_t{kPhiloxMultipliers[0]} * c[0], q = uint64_t{kPhiloxMultipliers[1]} * c[2];
    c = {second(q) ^ c[1] ^ k[0], first(q), second(p) ^ c[3] ^ k[1], first(p)};
    k = {k[0] + kPhiloxSteps[0], k[1] + kPhiloxSteps[1]};
  }
  return c;
}

}  // namespace mcc::tensor
