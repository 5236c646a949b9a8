// FNV-1a: a fixed 64-bit hash of bytes, the same in every build and run. Not for untrusted keys.
#pragma once

#include <cstdint>
#include <string_view>

namespace mcc {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = kHashSeed) {
  uint64_t h = seed;
  for (char c : bytes)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace mcc
