#include "tensor/numeric.h"

namespace mcc::tensor {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double too_large(const FloatFormat& format, double value) {
  if (format.specials == FloatSpecials::infinity) return std::copysign(std::numeric_limits<double>::infinity(), value);
  return format.specials == FloatSpecials::none ? std::copysign(format.largest, value) : kNan;
}

// Of f8e8m0.
double round_to_power(const FloatFormat& format, double value) {
  if (std::isnan(value) || std::signbit(value)) return kNan;
  const double least = std::ldexp(1.0, -format.bias);
  if (value <= least) return least;
  if (std::isinf(value)) return kNan;
  const double below = std::ldexp(1.0, std::ilogb(value));
  const double rounded = value >= 1.5 * below ? 2 * below : below;
  return rounded > format.largest ? kNan : rounded;
}

}  // namespace

IntLimits int_limits(ElementType element) {
  if (is_bool(element)) return {0, 1};
  const int bits = bit_width(element);
  if (is_unsigned_int(element)) {
    return {0, static_cast<int64_t>(~uint64_t{0} >> (64 - bits))};
  }
  const int64_t high = std::numeric_limits<int64_t>::max() >> (64 - bits);
  return {~high, high};
}

FloatFormat float_format(ElementType element) {
  switch (element) {
    case ElementType::f16:
      return {10, 5, 15, 65504.0, FloatSpecials::infinity};
    case ElementType::bf16:
      return {7, 8, 127, 3.3895313892515355e38, FloatSpecials::infinity};
    case ElementType::f8e4m3:
      return {3, 4, 7, 448.0, FloatSpecials::only_nan};
    case ElementType::f8e4m3fnuz:
      return {3, 4, 8, 240.0, FloatSpecials::unsigned_zero};
    case ElementType::f8e5m2:
      return {2, 5, 15, 57344.0, FloatSpecials::infinity};
    case ElementType::f8e5m2fnuz:
      return {2, 5, 16, 57344.0, FloatSpecials::unsigned_zero};
    case ElementType::f8e8m0:
      return {0, 8, 127, 0x1p127, FloatSpecials::power};
    case ElementType::f4e2m1:
      return {1, 2, 1, 6.0, FloatSpecials::none};
    case ElementType::tf32:
      return {10, 8, 127, 3.4011621342146535e38, FloatSpecials::infinity};
    case ElementType::f32:
      return {23, 8, 127, std::numeric_limits<float>::max(), FloatSpecials::infinity};
    case ElementType::f64:
      return {52, 11, 1023, std::numeric_limits<double>::max(), FloatSpecials::infinity};
    case ElementType::boolean:
    case ElementType::i2:
    case ElementType::i4:
    case ElementType::i8:
    case ElementType::i16:
    case ElementType::i32:
    case ElementType::i64:
    case ElementType::u2:
    case ElementType::u4:
    case ElementType::u8:
    case ElementType::u16:
    case ElementType::u32:
    case ElementType::u64:
    case ElementType::string:
      break;
  }
  MCC_UNREACHABLE("not a floating-point type: ", to_text(element));
}

double round_narrow(const FloatFormat& format, double value) {
  if (format.specials == FloatSpecials::power) return round_to_power(format, value);
  if (std::isnan(value)) return format.specials == FloatSpecials::none ? -0.0 : value;
  if (value == 0) return format.specials == FloatSpecials::unsigned_zero ? 0.0 : value;
  if (std::isinf(value)) return too_large(format, value);
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const int min_exponent = 1 - format.bias;
  double rounded;
  if (exponent >= min_exponent) {
    // Adding just under half a unit of the last kept bit, and one more if that bit is odd, then cutting; a carry goes
    // into the exponent as it should.
    const int dropped = 52 - format.fraction_bits;
    const uint64_t half = (uint64_t{1} << dropped) >> 1;
    const uint64_t odd = bits >> dropped & 1;
    rounded = std::bit_cast<double>((bits + (half - 1) + odd) & ~((uint64_t{1} << dropped) - 1));
  } else {
    // Multiples of the smallest subnormal: adding 1.5 * 2^52 of them leaves no room for a fraction.
    const double shift = std::ldexp(1.5, 52 + min_exponent - format.fraction_bits);
    rounded = std::copysign((std::fabs(value) + shift) - shift, value);
  }
  if (rounded == 0 && format.specials == FloatSpecials::unsigned_zero) return 0.0;
  return std::fabs(rounded) > format.largest ? too_large(format, value) : rounded;
}

double fused_multiply_add(ElementType element, double a, double b, double c) {
  if (element == ElementType::f64) return std::fma(a, b, c);
  if (element == ElementType::f32) {
    return static_cast<double>(std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));
  }
  // The product is exact in double. The sum is rounded to odd (Boldo and Melquiond, "Emulation of a FMA and correctly
  // rounded sums", 2008), so that rounding it again to the narrow type is as rounding once.
  const double product = a * b;
  double sum = product + c;
  if (std::isfinite(sum)) {
    const double part = sum - product;
    const double error = (product - (sum - part)) + (c - part);
    if (error != 0 && (std::bit_cast<uint64_t>(sum) & 1) == 0) {
      sum = std::nextafter(sum, std::copysign(std::numeric_limits<double>::infinity(), error));
    }
  }
  return round_float(element, sum);
}

uint64_t float_to_bits(ElementType element, double value) {
  if (element == ElementType::f64) return std::bit_cast<uint64_t>(value);
  if (element == ElementType::f32 || element == ElementType::tf32) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  const FloatFormat format = float_format(element);
  const uint64_t wide = std::bit_cast<uint64_t>(value);
  const uint64_t sign_bit = uint64_t{1} << (format.fraction_bits + format.exponent_bits);
  const uint64_t sign = wide >> 63 != 0 ? sign_bit : 0;
  const uint64_t all_ones = ((uint64_t{1} << format.exponent_bits) - 1) << format.fraction_bits;
  const uint64_t full_fraction = (uint64_t{1} << format.fraction_bits) - 1;
  switch (format.specials) {
    case FloatSpecials::infinity:
      if (std::isnan(value)) return sign | all_ones | uint64_t{1} << (format.fraction_bits - 1);
      if (std::isinf(value)) return sign | all_ones;
      break;
    case FloatSpecials::only_nan:
      if (!std::isfinite(value)) return sign | all_ones | full_fraction;
      break;
    case FloatSpecials::unsigned_zero:
      if (!std::isfinite(value)) return sign_bit;
      if (value == 0) return 0;
      break;
    case FloatSpecials::none:
      if (std::isnan(value)) return sign_bit;
      if (std::isinf(value)) return sign | all_ones | full_fraction;
      break;
    case FloatSpecials::power:
      value = round_to_power(format, value);
      return std::isnan(value) ? all_ones : static_cast<uint64_t>(std::ilogb(value) + format.bias);
  }
  const int exponent = static_cast<int>(wide >> 52 & 0x7ff) - 1023;
  const int min_exponent = 1 - format.bias;
  if (exponent < min_exponent) {
    return sign | static_cast<uint64_t>(std::ldexp(std::fabs(value), format.fraction_bits - min_exponent));
  }
  const uint64_t fraction = (wide & ((uint64_t{1} << 52) - 1)) >> (52 - format.fraction_bits);
  return sign | static_cast<uint64_t>(exponent + format.bias) << format.fraction_bits | fraction;
}

double float_from_bits(ElementType element, uint64_t bits) {
  if (element == ElementType::f64) return std::bit_cast<double>(bits);
  if (element == ElementType::f32 || element == ElementType::tf32) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const FloatFormat format = float_format(element);
  const uint64_t max_exponent = (uint64_t{1} << format.exponent_bits) - 1;
  const uint64_t max_fraction = (uint64_t{1} << format.fraction_bits) - 1;
  const uint64_t fraction = bits & max_fraction;
  const uint64_t exponent = bits >> format.fraction_bits & max_exponent;
  const bool negative = bits >> (format.fraction_bits + format.exponent_bits) & 1;
  if (format.specials == FloatSpecials::power)
    return exponent == max_exponent ? kNan : std::ldexp(1.0, static_cast<int>(exponent) - format.bias);
  if (format.specials == FloatSpecials::unsigned_zero && negative && exponent == 0 && fraction == 0) return kNan;
  const bool has_infinity = format.specials == FloatSpecials::infinity;
  const bool has_top_nan = format.specials == FloatSpecials::only_nan && fraction == max_fraction;
  double value;
  if (exponent == max_exponent && (has_infinity || has_top_nan)) {
    value = has_infinity && fraction == 0 ? std::numeric_limits<double>::infinity() : kNan;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(fraction), 1 - format.bias - format.fraction_bits);
  } else {
    const uint64_t wide = (exponent + static_cast<uint64_t>(1023 - format.bias)) << 52 |
                          fraction << (52 - format.fraction_bits);
    value = std::bit_cast<double>(wide);
  }
  return negative ? -value : value;
}

}  // namespace mcc::tensor
