// FNV-1a: a fixed 64-bit hash of bytes, the same in every build and run. Not for untrusted keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mcc {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = kHashSeed) {
  uint64_t h = seed;
  for (char c : bytes)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// The hash as 16 digits.
inline std::string hash_hex(std::string_view bytes) {
  std::string out(16, '0');
  uint64_t h = hash_bytes(bytes);
  for (size_t i = 16; i-- > 0; h >>= 4) out[i] = "0123456789abcdef"[h & 15];
  return out;
}

}  // namespace mcc
