#include "tensor/span.h"

namespace mcc::tensor {
namespace {

__int128 wide_product(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return static_cast<__int128>(a) * b;  // an infinity times anything stays beyond 2^62
}

}  // namespace

Span add(Span a, Span b) {
  Span out = Span::of(static_cast<__int128>(a.lo) + b.lo, static_cast<__int128>(a.hi) + b.hi);
  if (!a.has_lo() || !b.has_lo()) out.lo = kNegInf;
  if (!a.has_hi() || !b.has_hi()) out.hi = kPosInf;
  return out;
}

Span multiply(Span a, Span b) {
  auto corners = {wide_product(a.lo, b.lo), wide_product(a.lo, b.hi), wide_product(a.hi, b.lo),
                  wide_product(a.hi, b.hi)};
  return Span::of(std::min(corners), std::max(corners));
}

Span scale(Span a, int64_t factor) { return multiply(a, {factor, factor}); }

Span floor_divide(Span a, int64_t divisor) {
  Span out;
  if (a.has_lo()) out.lo = floor_quotient(a.lo, divisor);
  if (a.has_hi()) out.hi = floor_quotient(a.hi, divisor);
  return out;
}

Span unite(Span a, Span b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
Span intersect(Span a, Span b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

}  // namespace mcc::tensor
