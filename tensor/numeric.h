// Arithmetic on single elements, exactly as the tensor IR defines it (tensor/expr.h). Integers and booleans are held in an
// int64_t, sign- or zero-extended from their width; floats in a double that is a value of their type.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/expr.h"

namespace mcc::tensor {

// ---- Integers ----

// The value modulo 2^width, sign- or zero-extended; "!= 0" for bool.
inline int64_t wrap_int(ElementType element, int64_t value) {
  if (is_bool(element)) return value != 0;
  const int unused = 64 - bit_width(element);
  const uint64_t top = static_cast<uint64_t>(value) << unused;
  return is_signed_int(element) ? static_cast<int64_t>(top) >> unused : static_cast<int64_t>(top >> unused);
}

// op on two values of a type of the given width, before wrapping. wide_unsigned: the type is u64; narrower unsigned
// types are non-negative as int64_t already. A shift by the width or more moves every bit out.
template <BinaryOp op, bool wide_unsigned>
inline int64_t int_op(int64_t a, int64_t b, int width) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const auto less = [](int64_t x, int64_t y) {
    return wide_unsigned ? static_cast<uint64_t>(x) < static_cast<uint64_t>(y) : x < y;
  };
  if constexpr (op == BinaryOp::add) return static_cast<int64_t>(ua + ub);
  if constexpr (op == BinaryOp::sub) return static_cast<int64_t>(ua - ub);
  if constexpr (op == BinaryOp::mul) return static_cast<int64_t>(ua * ub);
  if constexpr (op == BinaryOp::div || op == BinaryOp::floor_div) {
    if (b == 0) return 0;
    if (wide_unsigned) return static_cast<int64_t>(ua / ub);
    if (b == -1) return static_cast<int64_t>(0 - ua);
    const int64_t q = a / b;
    return op == BinaryOp::floor_div && q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  }
  if constexpr (op == BinaryOp::mod || op == BinaryOp::floor_mod) {
    if (b == 0) return 0;
    if (wide_unsigned) return static_cast<int64_t>(ua % ub);
    if (b == -1) return 0;
    const int64_t r = a % b;
    return op == BinaryOp::floor_mod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  if constexpr (op == BinaryOp::min) return less(b, a) ? b : a;
  if constexpr (op == BinaryOp::max) return less(a, b) ? b : a;
  if constexpr (op == BinaryOp::eq) return a == b;
  if constexpr (op == BinaryOp::ne) return a != b;
  if constexpr (op == BinaryOp::lt) return less(a, b);
  if constexpr (op == BinaryOp::le) return !less(b, a);
  if constexpr (op == BinaryOp::gt) return less(b, a);
  if constexpr (op == BinaryOp::ge) return !less(a, b);
  if constexpr (op == BinaryOp::logical_and) return a != 0 && b != 0;
  if constexpr (op == BinaryOp::logical_or) return a != 0 || b != 0;
  if constexpr (op == BinaryOp::bit_and) return a & b;
  if constexpr (op == BinaryOp::bit_or) return a | b;
  if constexpr (op == BinaryOp::bit_xor) return a ^ b;
  if constexpr (op == BinaryOp::shl)
    return ub < static_cast<uint64_t>(width) ? static_cast<int64_t>(ua << ub) : 0;
  if constexpr (op == BinaryOp::shr) {
    if (ub >= static_cast<uint64_t>(width)) return !wide_unsigned && a < 0 ? -1 : 0;
    return wide_unsigned ? static_cast<int64_t>(ua >> ub) : a >> b;
  }
}

// The bounds that a cast from float saturates to.
struct IntLimits {
  int64_t low, high;  // of u64: high is all ones
};
IntLimits int_limits(ElementType element);

// ---- Floats ----

constexpr bool is_float_op(BinaryOp op) {
  return op <= BinaryOp::mod || op == BinaryOp::min || op == BinaryOp::max;
}

// op in double; to be rounded to the element type. For types of 24 significand bits or fewer, rounding the result of
// +, -, * and / once more is the same as computing in that type.
template <BinaryOp op>
inline double float_op(double a, double b) {
  static_assert(is_float_op(op));
  if constexpr (op == BinaryOp::add) return a + b;
  if constexpr (op == BinaryOp::sub) return a - b;
  if constexpr (op == BinaryOp::mul) return a * b;
  if constexpr (op == BinaryOp::div) return a / b;
  if constexpr (op == BinaryOp::mod) return std::fmod(a, b);
  if constexpr (op == BinaryOp::min) return std::isnan(a) ? a : std::isnan(b) ? b : b < a ? b : a;
  if constexpr (op == BinaryOp::max) return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? b : a;
}

template <BinaryOp op>
inline bool float_compare(double a, double b) {
  static_assert(is_comparison(op));
  if constexpr (op == BinaryOp::eq) return a == b;
  if constexpr (op == BinaryOp::ne) return a != b;
  if constexpr (op == BinaryOp::lt) return a < b;
  if constexpr (op == BinaryOp::le) return a <= b;
  if constexpr (op == BinaryOp::gt) return a > b;
  if constexpr (op == BinaryOp::ge) return a >= b;
}

// What a format has besides numbers with a sign.
enum class FloatSpecials : uint8_t {
  infinity,       // the largest exponent is of infinities and NaN
  only_nan,       // all ones are NaN, which is also what is too large
  unsigned_zero,  // what would be -0 is NaN, which is also what is too large
  none,           // what is too large becomes the largest number, NaN becomes -0
  power,          // there are positive powers of two only, without 0, and NaN: all ones, also what is negative or too large
};

// A binary format narrower than f32, or f32 cut to fewer significand bits (tf32).
struct FloatFormat {
  int fraction_bits;
  int exponent_bits;
  int bias;
  double largest;
  FloatSpecials specials;
};
FloatFormat float_format(ElementType element);

double round_narrow(const FloatFormat& format, double value);

// Rounds to nearest even; to powers of two to the nearest, upwards from the middle.
inline double round_float(ElementType element, double value) {
  if (element == ElementType::f32) return static_cast<double>(static_cast<float>(value));
  if (element == ElementType::f64) return value;
  return round_narrow(float_format(element), value);
}

// a * b + c, rounded once to the element type.
double fused_multiply_add(ElementType element, double a, double b, double c);

// The element's bits in memory (in the low bits), and back. The value is one of the type.
uint64_t float_to_bits(ElementType element, double value);
double float_from_bits(ElementType element, uint64_t bits);

}  // namespace mcc::tensor
