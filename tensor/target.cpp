#include "tensor/target.h"

#include <algorithm>
#include <numeric>

#include "support/hash.h"
#include "support/text.h"

namespace mcc::tensor {

int64_t Cache::lines_held(int64_t stride, int64_t run) const {
  const int64_t way = std::max<int64_t>(line, bytes / ways);
  const int64_t places = way / std::gcd(way, std::max<int64_t>(stride, 1));
  return std::min(way / line, places * run) * ways;
}

std::string Target::fingerprint() const {
  if (kind == TargetKind::cuda) return text(triple, " ", cpu);
  constexpr std::string_view kDigits = "0123456789abcdef";
  uint64_t hash = hash_bytes(features);
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += kDigits[(hash >> shift) & 15];
  return text(triple, " ", cpu, " ", vector_bits, " bits, features ", hex);
}

}  // namespace mcc::tensor
