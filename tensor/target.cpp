#include "tensor/target.h"

#include "support/hash.h"
#include "support/text.h"

namespace mcc::tensor {

std::string Target::fingerprint() const {
  if (kind == TargetKind::cuda) return text(triple, " ", cpu);
  constexpr std::string_view kDigits = "0123456789abcdef";
  uint64_t hash = hash_bytes(features);
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += kDigits[(hash >> shift) & 15];
  return text(triple, " ", cpu, " ", vector_bits, " bits, features ", hex);
}

}  // namespace mcc::tensor
