#include "tensor/passes/math/builder.h"

#include <cmath>
#include <limits>

namespace mcc::tensor::math {

const FloatFacts& facts(ElementType element) {
  static constexpr FloatFacts f32{
      ElementType::i32, 23, 127, 12582912.0, 1.1754943508222875e-38, 0.693359375, -2.1219444005469057e-4};
  static constexpr FloatFacts f64{
      ElementType::i64,     52, 1023, 6755399441055744.0, 2.2250738585072014e-308, 0x1.62e42fee00000p-1,
      0x1.a39ef35793c76p-33};
  MCC_CHECK(element == ElementType::f32 || element == ElementType::f64, "expansion for ",
            mcc::to_text(element));
  return element == ElementType::f32 ? f32 : f64;
}

Expr MathBuilder::let(const char* name, const Expr& value) {
  double number = 0;
  if (value.kind() == ExprKind::Var || as_number(value, &number)) return value;
  Var var(name, value.type());
  bindings_->emplace_back(var, value);
  return var;
}

Expr MathBuilder::fma(const Expr& a, const Expr& b, const Expr& c) const {
  return has_fma_ ? call(Intrinsic::fma, {a, b, c}) : a * b + c;
}

Expr MathBuilder::polynomial(const Expr& x, std::initializer_list<double> coefficients) const {
  auto next = std::rbegin(coefficients);
  Expr sum = number(x, *next++);
  for (; next != std::rend(coefficients); ++next)
    sum = fma(sum, x, number(x, *next));
  return sum;
}

Expr MathBuilder::quotient(const Expr& dividend, const Expr& divisor) {
  if (!approximates(dividend)) return dividend / divisor;
  double one = 0;
  const bool is_of_one = as_number(dividend, &one) && one == 1;
  Expr a = is_of_one ? dividend : let("dividend", dividend), b = let("divisor", divisor);
  // One step of Newton's method: what a - b * q is short of 0.
  Expr reciprocal = let("reciprocal", call(Intrinsic::reciprocal_approx, {b}));
  Expr q = is_of_one ? reciprocal : let("quotient", a * reciprocal);
  return fma(fma(-b, q, a), reciprocal, q);
}

bool MathBuilder::has_exact_reciprocal(double divisor) {
  if (divisor == 0 || !std::isfinite(divisor)) return false;
  int exponent = 0;
  const double digits = std::ldexp(std::frexp(divisor, &exponent), 22);
  return std::abs(exponent) < 40 && digits == std::trunc(digits) && std::fabs(digits) != 0x1p21;
}

// The reciprocal as high + low has a relative error of 2^-49, and so has the sum of the products before it is rounded. A quotient
// of 24 bits by 22 is no closer to the middle between two floats than 2^-23 of their distance, so both round to the same.
Expr MathBuilder::multiply_by_reciprocal(const Expr& x, double divisor) const {
  const auto high = static_cast<float>(1 / divisor);
  const double low = 1 / divisor - high;
  const Expr quotient = fma(x, number(x, high), x * number(x, low));
  const Expr nearly = x * number(x, high);
  return select(abs(nearly) == abs(x), nearly,
                quotient);  // 0 and infinity, whose sign or value the sum would lose
}

std::pair<Expr, Expr> MathBuilder::product(const Expr& a, const Expr& b) {
  Expr high = let("product", a * b);
  if (has_fma_) return {high, let("error", call(Intrinsic::fma, {a, b, -high}))};
  MCC_CHECK(a.element() == ElementType::f64, "exact product of ", to_text(a.type()));
  auto split = [&](const Expr& x) {
    Expr t = let("t", x * number(x, 134217729.0));  // 2^27 + 1 (Dekker)
    Expr upper = let("upper", t - let("t", t - x));
    return std::pair{upper, let("lower", x - upper)};
  };
  auto [a1, a0] = split(a);
  auto [b1, b0] = split(b);
  return {high, let("error", a1 * b1 - high + a1 * b0 + a0 * b1 + a0 * b0)};
}

Expr MathBuilder::infinity(const Expr& like) { return number(like, std::numeric_limits<double>::infinity()); }
Expr MathBuilder::minus_infinity(const Expr& like) {
  return number(like, -std::numeric_limits<double>::infinity());
}
Expr MathBuilder::not_a_number(const Expr& like) {
  return number(like, std::numeric_limits<double>::quiet_NaN());
}

Expr MathBuilder::bits(const Expr& x) {
  return Call::make(Type{facts(x.element()).ints, x.lanes()}, Intrinsic::bit_cast, {x});
}

Expr MathBuilder::from_bits(const Expr& like, const Expr& i) {
  return Call::make(like.type(), Intrinsic::bit_cast, {i});
}

Expr MathBuilder::integer(const Expr& like, int64_t value) {
  return constant_int(Type{facts(like.element()).ints, like.lanes()}, value);
}

Expr MathBuilder::with_sign_of(const Expr& x, const Expr& magnitude) {
  int64_t sign_bit = x.element() == ElementType::f32 ? int64_t{INT32_MIN} : INT64_MIN;
  Expr sign = binary(BinaryOp::bit_and, bits(x), integer(x, sign_bit));
  return from_bits(x, binary(BinaryOp::bit_or, bits(magnitude), sign));
}

Expr MathBuilder::clamp(const Expr& x, double low, double high) {
  return min(max(x, number(x, low)), number(x, high));
}

}  // namespace mcc::tensor::math
