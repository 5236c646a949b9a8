// Inclusive bounds of integers, with infinities, and their arithmetic. Internal to tensor/.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mcc::tensor {

inline constexpr int64_t kNegInf = INT64_MIN;
inline constexpr int64_t kPosInf = INT64_MAX;

// Finite bounds stay within +-2^62, so that sums of two do not overflow; what lies outside is widened.
struct Span {
  int64_t lo = kNegInf, hi = kPosInf;

  static Span of(__int128 lo, __int128 hi) {
    constexpr __int128 kLimit = __int128{1} << 62;
    Span s;
    s.lo = lo < -kLimit ? kNegInf : static_cast<int64_t>(std::min(lo, kLimit));
    s.hi = hi > kLimit ? kPosInf : static_cast<int64_t>(std::max(hi, -kLimit));
    return s;
  }
  static Span point(int64_t v) { return of(v, v); }

  bool has_lo() const { return lo != kNegInf; }
  bool has_hi() const { return hi != kPosInf; }
  bool within(int64_t low, int64_t high) const { return lo >= low && hi <= high && has_lo() && has_hi(); }
};

// Division by a positive divisor, toward minus infinity.
inline int64_t floor_quotient(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b < 0 ? q - 1 : q;
}
inline int64_t floor_remainder(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r < 0 ? r + b : r;
}

Span add(Span a, Span b);
Span multiply(Span a, Span b);
Span scale(Span a, int64_t factor);
Span floor_divide(Span a, int64_t divisor);  // divisor > 0
Span unite(Span a, Span b);                  // either
Span intersect(Span a, Span b);              // both

}  // namespace mcc::tensor
