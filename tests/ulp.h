// How far a floating-point result is from what it should be.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace mcc {

// The distance in units in the last place of the reference rounded to T.
template <class T>
double ulp_distance(T got, long double expected) {
  T rounded = static_cast<T>(expected);
  if (std::isnan(got) && std::isnan(rounded)) return 0;
  if (got == rounded && std::isinf(got)) return 0;
  if (std::isnan(got) != std::isnan(rounded)) return 1e30;
  // The largest finite value and infinity are neighbours.
  long double beyond = std::ldexp(1.0L, std::numeric_limits<T>::max_exponent);
  long double a = std::isinf(got) ? std::copysign(beyond, static_cast<long double>(got)) : got;
  long double e = std::isinf(rounded) ? std::copysign(beyond, expected) : expected;
  int exponent = 0;
  std::frexp(std::isinf(rounded) ? std::numeric_limits<T>::max() : rounded, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(a - e) / unit);
}

}  // namespace mcc
