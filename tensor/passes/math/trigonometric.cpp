// Trigonometric functions and their inverses. Coefficients come from fit.py.
#include "tensor/passes/math/builder.h"

namespace mcc::tensor::math {

namespace {

constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;

// x = k * pi/2 + r, |r| <= pi/4; sine and cosine of r; the low bits of quadrant hold k.
struct Turn {
  Expr sine, cosine, quadrant;
};

// 1 - z/2 + z^2 c with z = r^2, with the rounding error of 1 - z/2 put back, and extra.
Expr cosine_of(MathBuilder& b, const Expr& z, const Expr& c, const Expr& extra) {
  Expr half = b.let("half", b.number(z, 0.5) * z);
  Expr rest = b.let("rest", b.number(z, 1) - half);
  Expr error = (b.number(z, 1) - rest) - half;
  return b.let("cosine", rest + b.fma(z * z, c, extra.defined() ? error + extra : error));
}

Turn reduce_turn_f64(MathBuilder& b, const Expr& x) {
  Expr magic = b.number(x, facts(ElementType::f64).magic);
  Expr t = b.let("t", b.fma(x, b.number(x, 0.6366197723675814), magic));
  Expr k = b.let("k", t - magic);
  // pi/2 in parts of 33 bits: their products with k are exact while k is below 2^20.
  Expr r = b.let("r", b.fma(k, b.number(x, -0x1.921fb54400000p+0), x));
  r = b.let("r", b.fma(k, b.number(x, -0x1.0b4611a600000p-34), r));
  r = b.let("r", b.fma(k, b.number(x, -0x1.3198a2e037073p-69), r));
  r = b.let("r", b.clamp(r, -0.8, 0.8));
  Expr z = b.let("z", r * r);
  Expr s = b.polynomial(
      z, {-0.1666666666666666664, 0.008333333333333322828, -0.0001984126984125513672, 2.755731921422709075e-6,
          -2.505210492133846122e-8, 1.605836789411941463e-10, -7.578761818444474586e-13});
  Expr c = b.polynomial(z, {0.04166666666666666661, -0.001388888888888887421, 0.0000248015873015715392,
                            -2.755731921539448226e-7, 2.087675437036546943e-9, -1.14702937443650434e-11,
                            4.73813063888572985e-14});
  return {b.let("sine", b.fma(r * z, s, r)), cosine_of(b, z, c, nullptr), b.let("quadrant", b.bits(t))};
}

// An unevaluated sum.
struct Pair {
  Expr high, low;
};

// a + b and what rounding loses of it (Knuth's TwoSum).
Pair exact_sum(MathBuilder& b, const Expr& a, const Expr& c) {
  Expr sum = b.let("sum", a + c);
  Expr other = b.let("other", sum - a);
  return {sum, b.let("lost", (a - (sum - other)) + (c - other))};
}

// x - k pi/2, for f32 with fused multiplication. pi/2 has three parts; with the first the difference is exact where x is close to k pi/2.
Pair take_turns(MathBuilder& b, const Expr& x, const Expr& k) {
  Expr nearly = b.let("nearly", b.fma(k, b.number(x, -0x1.921fb6p+0), x));
  auto [part, error] = b.product(k, b.number(x, 0x1.777a5cp-25));
  Pair rest = exact_sum(b, nearly, part);
  return {rest.high, b.let("low", b.fma(k, b.number(x, 0x1.ee59dap-50), rest.low + error))};
}

// The integer next to x * 2/pi that is a multiple of 2^n, and the sum whose low bits hold it. magic: 1.5 * 2^(23 + n)
Pair count_turns(MathBuilder& b, const Expr& x, double magic) {
  Expr t = b.let("t", b.fma(x, b.number(x, 0.6366197723675814), b.number(x, magic)));
  return {b.let("k", t - b.number(x, magic)), t};
}

// In f32 alone: first multiples of 2^21 quarter turns are taken away (none, where |x| <= 2^20), then single ones.
Turn reduce_turn_f32(MathBuilder& b, const Expr& x) {
  // Beyond 2^42 the parts of pi/2 do not suffice: what is left is 0, of infinity NaN.
  Expr known = b.let("x", select(b.abs(x) < b.number(x, 0x1p42), x, x - x));
  Pair most = take_turns(b, known, count_turns(b, known, 0x1.8p44).high);
  Pair turns = count_turns(b, most.high, 0x1.8p23);
  Pair rest = take_turns(b, most.high, turns.high);
  Expr low = b.let("low", rest.low + most.low);
  Expr r = b.let("r", rest.high + low);
  Expr lost = b.let("lost", (rest.high - r) + low);
  Expr z = b.let("z", r * r);
  Expr s = b.polynomial(z, {-0.1666666655, 0.008333321028, -0.0001983714459, 2.7011476e-6});
  Expr c = b.polynomial(z, {0.04166660497, -0.001388564655, 2.427202395e-5});
  Expr sine = select(x == b.number(x, 0), x, r + b.fma(r * z, s, lost));  // -0 stays
  return {b.let("sine", sine), cosine_of(b, z, c, -(r * lost)), b.let("quadrant", b.bits(turns.low))};
}

Turn reduce_turn(MathBuilder& b, const Expr& x) {
  return x.element() == ElementType::f32 ? reduce_turn_f32(b, x) : reduce_turn_f64(b, x);
}

Expr is_bit_set(const Expr& x, const Expr& i, int64_t bit) {
  return binary(BinaryOp::bit_and, i, MathBuilder::integer(x, bit)) != MathBuilder::integer(x, 0);
}

Expr sine_of_quadrant(MathBuilder& b, const Expr& x, const Turn& turn, const Expr& quadrant) {
  Expr q = b.let("quadrant", quadrant);
  Expr value = b.let("value", select(is_bit_set(x, q, 1), turn.cosine, turn.sine));
  return select(is_bit_set(x, q, 2), -value, value);
}

// asin of |x| <= 1/2 (of x itself), or of sqrt((1 - |x|) / 2) for larger ones
struct ArcSine {
  Expr is_large, value;
};

ArcSine small_asin(MathBuilder& b, const Expr& x) {
  Expr half = b.number(x, 0.5);
  Expr a = b.let("a", b.abs(x));
  Expr is_large = b.let("is_large", a > half);
  Expr z = b.let("z", select(is_large, (b.number(x, 1) - a) * half, a * a));
  Expr s = b.let("s", select(is_large, b.sqrt(z), x));
  Expr p = b.polynomial(
      z, {0.1666666666666665954, 0.07500000000002544001, 0.04464285713967620639, 0.03038194464527145332,
          0.02237215158527478836, 0.01735294556379478832, 0.01396187131320576475, 0.01158598436686577513,
          0.009481992864063513065, 0.01001909184963748334, 0.0006513006276870551166, 0.02489331836146286032,
          -0.02623503620160320433, 0.03369264345917690295});
  return {is_large, b.let("arc", b.fma(s * z, p, s))};
}

}  // namespace

Expr sin(MathBuilder& b, const Expr& x) {
  Turn turn = reduce_turn(b, x);
  return sine_of_quadrant(b, x, turn, turn.quadrant);
}

Expr cos(MathBuilder& b, const Expr& x) {
  Turn turn = reduce_turn(b, x);
  return sine_of_quadrant(b, x, turn, turn.quadrant + b.integer(x, 1));
}

Expr tan(MathBuilder& b, const Expr& x) {
  Turn turn = reduce_turn(b, x);
  Expr is_odd = b.let("is_odd", is_bit_set(x, turn.quadrant, 1));
  Expr numerator = select(is_odd, -turn.cosine, turn.sine);
  return numerator / select(is_odd, turn.sine, turn.cosine);
}

Expr asin_f64(MathBuilder& b, const Expr& x) {
  ArcSine arc = small_asin(b, x);
  Expr large = b.number(x, kHalfPi) - (arc.value + arc.value - b.number(x, kHalfPiLow));
  return select(arc.is_large, b.with_sign_of(x, large), arc.value);
}

Expr acos_f64(MathBuilder& b, const Expr& x) {
  ArcSine arc = small_asin(b, x);
  Expr twice = b.let("twice", arc.value + arc.value);
  Expr negative = b.number(x, 2 * kHalfPi) - (twice - b.number(x, 2 * kHalfPiLow));
  Expr large = select(x < b.number(x, 0), negative, twice);
  Expr small = b.number(x, kHalfPi) - (arc.value - b.number(x, kHalfPiLow));
  return select(arc.is_large, large, small);
}

// |x| > 1 by pi/2 - atan(1/|x|); then above tan(pi/8) by pi/4 + atan((t - 1) / (t + 1)).
Expr atan_f64(MathBuilder& b, const Expr& x) {
  Expr one = b.number(x, 1);
  Expr a = b.let("a", b.abs(x));
  Expr is_large = b.let("is_large", a > one);
  Expr t = b.let("t", select(is_large, one / a, a));
  Expr is_middle = b.let("is_middle", t > b.number(x, 0.41421356237309503));
  Expr u = b.let("u", select(is_middle, (t - one) / (t + one), t));
  Expr z = b.let("z", u * u);
  Expr p = b.polynomial(
      z, {-0.3333333333333332759, 0.1999999999999769258, -0.1428571428539095282, 0.1111111108836152349,
          -0.09090908151166091185, 0.07692282908946770056, -0.06666228979679938252, 0.05877043589855367814,
          -0.05218544865494169703, 0.04504121462455135225, -0.03348779433904733675, 0.01520871981581326489});
  Expr arc = b.let("arc", b.fma(u * z, p, u));
  arc = b.let("arc", select(is_middle, b.number(x, kHalfPi / 2) + (arc + b.number(x, kHalfPiLow / 2)), arc));
  arc = select(is_large, b.number(x, kHalfPi) - (arc - b.number(x, kHalfPiLow)), arc);
  return b.with_sign_of(x, arc);
}

}  // namespace mcc::tensor::math
