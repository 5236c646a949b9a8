// What the expansions of mathematical functions are written with. Internal to lower_math.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "tensor/stmt.h"

namespace mcc::tensor::math {

// The binary format of f32 or f64, as the expansions need it.
struct FloatFacts {
  ElementType ints;  // of the same width
  int mantissa;      // stored bits
  int bias;
  double magic;     // 1.5 * 2^mantissa: adding it rounds to an integer, which the low bits then hold
  double smallest;  // normal
  double ln2_high;  // few bits, so that its product with an exponent is exact
  double ln2_low;
};
const FloatFacts& facts(ElementType element);

// Writes expressions over f32 or f64 of any number of lanes. Whatever is used more than once goes through let(),
// which names it: the result is a chain of bindings and never an expression that repeats itself.
class MathBuilder {
 public:
  using Bindings = std::vector<std::pair<Var, Expr>>;

  // approximates: the machine has exp2_approx, reciprocal_approx and rsqrt_approx.
  MathBuilder(bool has_fma, bool approximates, Bindings* bindings)
      : has_fma_(has_fma), approximates_(approximates), bindings_(bindings) {}

  Expr let(const char* name, const Expr& value);
  // a * b + c; rounded once where the machine can.
  Expr fma(const Expr& a, const Expr& b, const Expr& c) const;
  // coefficients[0] + x * (coefficients[1] + x * ...)
  Expr polynomial(const Expr& x, std::initializer_list<double> coefficients) const;
  // a * b as the unevaluated sum of its rounded value and the error of that; exact.
  std::pair<Expr, Expr> product(const Expr& a, const Expr& b);

  static Expr number(const Expr& like, double value) { return constant(like.type(), value); }
  static Expr infinity(const Expr& like);
  static Expr minus_infinity(const Expr& like);
  static Expr not_a_number(const Expr& like);
  static Expr bits(const Expr& x);                         // float -> integer of the same width
  static Expr from_bits(const Expr& like, const Expr& i);  // and back
  static Expr integer(const Expr& like, int64_t value);    // a constant of like's integer type
  static Expr abs(const Expr& x) { return call(Intrinsic::abs, {x}); }
  static Expr sqrt(const Expr& x) { return call(Intrinsic::sqrt, {x}); }
  // magnitude (not negative) with the sign of x
  static Expr with_sign_of(const Expr& x, const Expr& magnitude);
  // Whether there are instructions that approximate functions of x's type.
  bool approximates(const Expr& x) const { return approximates_ && x.element() == ElementType::f32; }
  static Expr exp2_approx(const Expr& x) { return call(Intrinsic::exp2_approx, {x}); }
  static Expr rsqrt_approx(const Expr& x) { return call(Intrinsic::rsqrt_approx, {x}); }
  // a / b, or within 1 ULP of it where there are instructions for that, of finite a and 1 <= b < infinity: then a / b with b > 2^126
  // is 0. An exact quotient takes GPUs some 20 instructions and a branch.
  Expr quotient(const Expr& dividend, const Expr& divisor);
  // Whether multiply_by_reciprocal takes the divisor: numbers of few digits that are no powers of two, as counts of elements are.
  static bool has_exact_reciprocal(double divisor);
  // x / divisor in f32 with fused multiplication, rounded as IEEE 754 has it; within 1 ULP for |x| < 2^-80.
  Expr multiply_by_reciprocal(const Expr& x, double divisor) const;
  // low <= x <= high; NaN stays.
  static Expr clamp(const Expr& x, double low, double high);

 private:
  bool has_fma_, approximates_;
  Bindings* bindings_;
};

// Expansions. The argument is bound by let() already. _f32 work on f32 only and _f64 on f64 only; the others on both.
// Bounds are on the error in units in the last place (ULP) over all arguments; results below the smallest normal
// number are flushed to zero by exp, exp2 and sigmoid, and nowhere else. Where the machine approximates, what is
// made of its powers of two and square roots has 2 ULP more.
Expr exp(MathBuilder& b, const Expr& x);        // 1.1 ULP
Expr exp2(MathBuilder& b, const Expr& x);       // 1.3 ULP
Expr expm1(MathBuilder& b, const Expr& x);      // 2 ULP
Expr log(MathBuilder& b, const Expr& x);        // 1 ULP
Expr log2(MathBuilder& b, const Expr& x);       // 2 ULP
Expr log1p(MathBuilder& b, const Expr& x);      // 2 ULP
Expr sigmoid(MathBuilder& b, const Expr& x);    // 3 ULP
Expr rsqrt(MathBuilder& b, const Expr& x);      // 1.5 ULP
Expr tanh_f32(MathBuilder& b, const Expr& x);   // 5 ULP
Expr tanh_f64(MathBuilder& b, const Expr& x);   // 3 ULP
Expr erf_f32(MathBuilder& b, const Expr& x);    // 5 ULP
Expr erf_f64(MathBuilder& b, const Expr& x);    // 2 ULP
Expr sinh_f64(MathBuilder& b, const Expr& x);   // 4 ULP
Expr cosh_f64(MathBuilder& b, const Expr& x);   // 4 ULP
Expr asinh_f64(MathBuilder& b, const Expr& x);  // 4 ULP
Expr acosh_f64(MathBuilder& b, const Expr& x);  // 4 ULP
Expr atanh_f64(MathBuilder& b, const Expr& x);  // 4 ULP
// Arguments up to 2^20 in magnitude; beyond, the reduction loses bits, and the results of sin and cos stay in [-1, 1]. In f32 for
// machines with fused multiplication; there 6e-8 is the most that is lost of sin and cos up to 2^42.
Expr sin(MathBuilder& b, const Expr& x);       // 1.5 ULP
Expr cos(MathBuilder& b, const Expr& x);       // 1.5 ULP
Expr tan(MathBuilder& b, const Expr& x);       // 3 ULP
Expr asin_f64(MathBuilder& b, const Expr& x);  // 3 ULP
Expr acos_f64(MathBuilder& b, const Expr& x);  // 2 ULP
Expr atan_f64(MathBuilder& b, const Expr& x);  // 2 ULP
// C's pow, special cases included. 1 ULP while the result's exponent is small, 8 ULP near the ends of the range. In f32 where the
// machine approximates: 3 ULP.
Expr pow(MathBuilder& b, const Expr& x, const Expr& y);

// Random bits, of u64 (tensor/philox.h): the first two words of the block, or the last two.
Expr philox(MathBuilder& b, const Expr& low, const Expr& high, const Expr& key, bool is_rest);

}  // namespace mcc::tensor::math
