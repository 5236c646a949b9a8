// Exponentials and logarithms. Coefficients come from fit.py.
#include "tensor/passes/math/builder.h"

namespace mcc::tensor::math {

namespace {

// log2 e, and what is left of it
constexpr double kLog2eF32 = 0x1.715476p+0, kLog2eLowF32 = 0x1.4ae0bf85ddf44p-26;
constexpr double kLog2eF64 = 0x1.71547652b82fep+0, kLog2eLowF64 = 0x1.777d0ffda0d24p-56;

bool is_f32(const Expr& x) { return x.element() == ElementType::f32; }

// x = n * ln 2 + r with n an integer and |r| <= ln 2 / 2. The low bits of t hold n.
struct Reduced {
  Expr t, n, r;
};

Reduced reduce(MathBuilder& b, const Expr& x) {
  const FloatFacts& f = facts(x.element());
  Reduced out;
  out.t = b.let("t", b.fma(x, b.number(x, 1.4426950408889634), b.number(x, f.magic)));
  out.n = b.let("n", out.t - b.number(x, f.magic));
  out.r = b.let("r", b.fma(out.n, b.number(x, -f.ln2_high), x));
  out.r = b.let("r", b.fma(out.n, b.number(x, -f.ln2_low), out.r));
  return out;
}

Expr shift_left(const Expr& like, const Expr& i, int count) {
  return binary(BinaryOp::shl, i, MathBuilder::integer(like, count));
}

// p * 2^n by adding n to the exponent; p is in [1/sqrt 2, sqrt 2], the result normal. The low bits of t hold n.
Expr scale(const Expr& p, const Expr& t) {
  Expr n = shift_left(p, MathBuilder::bits(t), facts(p.element()).mantissa);
  return MathBuilder::from_bits(p, MathBuilder::bits(p) + n);
}

// Puts the ends right: 0 below low; infinity above high, and NaN stays (both by x + infinity).
Expr finish_exp(MathBuilder& b, const Expr& x, const Expr& value, double low, double high) {
  Expr flushed = select(x < b.number(x, low), b.number(x, 0), value);
  return select(x <= b.number(x, high), flushed, x + b.infinity(x));
}

// e^r - 1 = r + r^2 q(r)
Expr small_expm1(MathBuilder& b, const Expr& r) {
  Expr q = is_f32(r) ? b.polynomial(r, {0.5000000046, 0.1666666682, 0.04166635479, 0.008333273074,
                                        0.001394099784, 0.0001991415581})
                     : b.polynomial(
                           r, {0.5, 0.1666666666666666666, 0.04166666666666669205, 0.008333333333333338522,
                               0.001388888888887194095, 0.0001984126984124553933, 0.00002480158735002447864,
                               2.755731927760787692e-6, 2.755725196871944477e-7, 2.505204757306566172e-8,
                               2.092156194020526092e-9, 1.609337980394880841e-10});
  return b.fma(q, r * r, r);
}

// x = m * 2^e with m in [sqrt(1/2), sqrt 2); of positive finite x, subnormal ones included.
struct Parts {
  Expr exponent, significand;
};

Parts split_exponent(MathBuilder& b, const Expr& x) {
  const FloatFacts& f = facts(x.element());
  bool single = is_f32(x);
  double up = single ? 33554432.0 : 18014398509481984.0;  // 2^25, 2^54
  Expr is_small = b.let("is_small", x < b.number(x, f.smallest));
  Expr scaled = b.let("scaled", select(is_small, x * b.number(x, up), x));
  int64_t sqrt_half = single ? 0x3f3504f3 : 0x3fe6a09e667f3bcd;
  Expr bits = b.let("bits", b.bits(scaled));
  Expr k = b.let("k", binary(BinaryOp::shr, bits - b.integer(x, sqrt_half), b.integer(x, f.mantissa)));
  Expr correction = select(is_small, b.number(x, single ? 25 : 54), b.number(x, 0));
  return {b.let("e", cast(x.element(), k) - correction),
          b.let("m", b.from_bits(x, bits - shift_left(x, k, f.mantissa)))};
}

// (log((1 + s) / (1 - s)) - 2 s) / s^3 with z = s^2
Expr log_series_f64(MathBuilder& b, const Expr& z) {
  return b.polynomial(
      z, {0.6666666666666666098, 0.4000000000000624653, 0.2857142856908602572, 0.2222222264677273782,
          0.1818177566758614109, 0.153870906613569198, 0.1325012040353463341, 0.1325130766507122547});
}

// log(1 + f) = f + the result; for 1 + f in [sqrt(1/2), sqrt 2). extra is a small term added in on the way.
Expr log_tail(MathBuilder& b, const Expr& f, const Expr& extra) {
  if (is_f32(f)) {
    Expr z = b.let("z", f * f);
    Expr p = b.polynomial(f, {0.3333331045, -0.2499998658, 0.2000222631, -0.1666925173, 0.142186639,
                              -0.1238433626, 0.118729261, -0.1178985982, 0.06915535324});
    Expr y = b.fma(p, f * z, extra);
    return b.fma(z, b.number(f, -0.5), y);
  }
  Expr s = b.let("s", f / (f + b.number(f, 2)));
  Expr z = b.let("z", s * s);
  Expr p = log_series_f64(b, z);
  Expr half = b.let("half", b.number(f, 0.5) * f * f);
  return b.fma(s, b.fma(p, z, half), extra) - half;
}

// infinity -> infinity, 0 -> -infinity, negative and NaN -> NaN
Expr finish_log(MathBuilder& b, const Expr& x, const Expr& value) {
  Expr finite = select(x < b.infinity(x), value, b.infinity(x));
  Expr otherwise = select(x == b.number(x, 0), b.minus_infinity(x), b.not_a_number(x));
  return select(x > b.number(x, 0), finite, otherwise);
}

// 2^(w + low) by instruction, of a low close to 0: 2^low = 1 + low * ln 2.
Expr exp2_of_sum(MathBuilder& b, const Expr& w, const Expr& low) {
  return b.exp2_approx(w) * b.fma(low, b.number(w, 0.6931471805599453), b.number(w, 1));
}

// 2^(x log2 e), with what the product has lost made good. Beyond the clamp 0 or infinity comes out.
Expr exp_by_exp2(MathBuilder& b, const Expr& x, double most = 89) {
  Expr inside = b.let("x", b.clamp(x, -104, most));
  Expr y = b.let("y", inside * b.number(x, kLog2eF32));
  Expr lost = b.let("lost", b.fma(inside, b.number(x, kLog2eF32), -y));
  lost = b.let("lost", b.fma(inside, b.number(x, kLog2eLowF32), lost));
  return exp2_of_sum(b, y, lost);
}

}  // namespace

Expr exp(MathBuilder& b, const Expr& x) {
  if (b.approximates(x)) return exp_by_exp2(b, x);
  Reduced d = reduce(b, x);
  Expr q =
      is_f32(x)
          ? b.polynomial(d.r, {0.5000000095, 0.166665189, 0.04166620596, 0.008368882195, 0.001395048035})
          : b.polynomial(d.r, {0.5, 0.1666666666666668383, 0.04166666666666672423, 0.00833333333331675132,
                               0.001388888888885856759, 0.000198412698970267231, 0.00002480158737351072785,
                               2.755723426967900183e-6, 2.755723354543494466e-7, 2.511222815744622608e-8,
                               2.092688857873350297e-9});
  Expr p = b.let("p", b.fma(q, d.r * d.r, d.r) + b.number(x, 1));
  bool single = is_f32(x);
  return finish_exp(b, x, scale(p, d.t), single ? -87.33654022216797 : -708.3964185322641,
                    single ? 88.72283172607422 : 709.782712893384);
}

Expr exp2(MathBuilder& b, const Expr& x) {
  if (b.approximates(x)) return b.exp2_approx(x);
  const FloatFacts& f = facts(x.element());
  Expr t = b.let("t", x + b.number(x, f.magic));
  Expr r = b.let("r", x - (t - b.number(x, f.magic)));
  Expr q = is_f32(x)
               ? b.polynomial(r, {0.6931471805, 0.2402265108, 0.05550410963, 0.009618036912, 0.001333343077,
                                  0.0001546711008, 1.531495076e-5})
               : b.polynomial(r, {0.6931471805599453094, 0.2402265069591007122, 0.05550410866482157992,
                                  0.009618129107628487843, 0.001333355814642845854, 0.0001540353039335395459,
                                  0.00001525273380403261089, 1.321548682306323407e-6, 1.017808603429345315e-7,
                                  7.054891812157064313e-9, 4.445525922552416074e-10, 2.573705907689691224e-11,
                                  1.372255294079945598e-12});
  Expr p = b.let("p", b.fma(q, r, b.number(x, 1)));
  bool single = is_f32(x);
  return finish_exp(b, x, scale(p, t), single ? -126 : -1022,
                    single ? 127.99999237060547 : 1023.9999999999999);
}

// With s = 2^(n-1): 2 (s (e^r - 1) + (s - 1/2)); beyond the clamp the result is -1 or infinity anyway.
Expr expm1(MathBuilder& b, const Expr& x) {
  const FloatFacts& f = facts(x.element());
  bool single = is_f32(x);
  Expr inside = b.let("x", b.clamp(x, single ? -18 : -38, single ? 89 : 710));
  Reduced d = reduce(b, inside);
  Expr exponent = shift_left(x, b.bits(d.t), f.mantissa) + b.integer(x, int64_t{f.bias - 1} << f.mantissa);
  Expr s = b.let("s", b.from_bits(x, exponent));
  Expr q = b.let("q", small_expm1(b, d.r));
  return b.number(x, 2) * b.fma(s, q, s - b.number(x, 0.5));
}

Expr log(MathBuilder& b, const Expr& x) {
  const FloatFacts& facts_of_x = facts(x.element());
  Parts parts = split_exponent(b, x);
  Expr f = b.let("f", parts.significand - b.number(x, 1));
  Expr tail = log_tail(b, f, parts.exponent * b.number(x, facts_of_x.ln2_low));
  Expr value = b.fma(parts.exponent, b.number(x, facts_of_x.ln2_high), f + tail);
  return finish_log(b, x, value);
}

Expr log2(MathBuilder& b, const Expr& x) {
  Parts parts = split_exponent(b, x);
  Expr f = b.let("f", parts.significand - b.number(x, 1));
  Expr natural = f + log_tail(b, f, b.number(x, 0));
  Expr value = b.fma(natural, b.number(x, 1.4426950408889634), parts.exponent);
  return finish_log(b, x, value);
}

// log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term is what the rounding lost.
Expr log1p(MathBuilder& b, const Expr& x) {
  Expr u = b.let("u", x + b.number(x, 1));
  Expr main = b.let("main", log(b, u));
  Expr lost = (x - (u - b.number(x, 1))) / u;
  return select(u > b.number(x, 0) && x < b.infinity(x), main + lost, main);
}

Expr sigmoid(MathBuilder& b, const Expr& x) {
  Expr negated = b.let("x", -x);
  // The largest power that is finite: the result is 0 from 2^126 on.
  constexpr double kMost = 88;
  Expr power = b.approximates(x) ? exp_by_exp2(b, negated, kMost) : exp(b, negated);
  return b.quotient(b.number(x, 1), b.number(x, 1) + power);
}

Expr rsqrt(MathBuilder& b, const Expr& x) {
  return b.approximates(x) ? b.rsqrt_approx(x) : b.number(x, 1) / b.sqrt(x);
}

// ---- Powers ----

// log2 of x > 0 as high + low, correct to 2^-58 or so of its value (f32: 2^-29).
static std::pair<Expr, Expr> precise_log2(MathBuilder& b, const Expr& x) {
  Parts parts = split_exponent(b, x);
  const Expr& m = parts.significand;
  Expr one = b.number(x, 1), two = b.number(x, 2);
  // s = (m - 1) / (m + 1) as s1 + s0
  Expr f = b.let("f", m - one);
  Expr d1 = b.let("d1", m + one);
  Expr d0 = b.let("d0", m - (d1 - one));
  Expr s1 = b.let("s1", b.quotient(f, d1));
  auto [q1, q0] = b.product(s1, d1);
  Expr s0 = b.let("s0", b.quotient(f - q1 - q0 - s1 * d0, d1));
  Expr z = b.let("z", s1 * s1);
  Expr p = is_f32(x) ? b.polynomial(z, {0.6666666565, 0.4000033529, 0.2853730203, 0.2358228295})
                     : log_series_f64(b, z);
  // log m = 2 s + s z p, high part first; the derivative of s z p is some 2 z
  Expr small = b.let("small", b.fma(s1, z * p, two * b.fma(s0, z, s0)));
  Expr natural1 = b.let("natural1", b.fma(two, s1, small));
  Expr natural0 = b.let("natural0", small - (natural1 - two * s1));
  Expr log2e = b.number(x, is_f32(x) ? kLog2eF32 : kLog2eF64);
  auto [l1, l0] = b.product(natural1, log2e);
  Expr low =
      b.let("low", l0 + natural1 * b.number(x, is_f32(x) ? kLog2eLowF32 : kLog2eLowF64) + natural0 * log2e);
  Expr high = b.let("high", parts.exponent + l1);
  return {high, b.let("low", (parts.exponent - high) + l1 + low)};
}

// exp2_of_sum down to what is subnormal, which the instruction takes to be 0.
static Expr scaled_exp2_of_sum(MathBuilder& b, const Expr& w, const Expr& low) {
  Expr is_small = b.let("is_small", w < b.number(w, -125));
  Expr value = exp2_of_sum(b, b.let("w", select(is_small, w + b.number(w, 64), w)), low);
  return value * select(is_small, b.number(w, 0x1p-64), b.number(w, 1));
}

// 2^(w + low) for |w| <= 1100, down to what is subnormal.
static Expr exp2_of_sum_f64(MathBuilder& b, const Expr& w, const Expr& low) {
  Expr magic = b.number(w, facts(ElementType::f64).magic);
  Expr t = b.let("t", w + magic);
  Expr r = b.let("r", (w - (t - magic)) + low);
  Expr q = b.polynomial(
      r, {0.6931471805599453094, 0.2402265069591007122, 0.05550410866482157992, 0.009618129107628487843,
          0.001333355814642845854, 0.0001540353039335395459, 0.00001525273380403261089,
          1.321548682306323407e-6, 1.017808603429345315e-7, 7.054891812157064313e-9, 4.445525922552416074e-10,
          2.573705907689691224e-11, 1.372255294079945598e-12});
  // 2^n in two factors: their product may be subnormal or overflow.
  Expr n = b.let("n", b.bits(t) - b.bits(magic));
  Expr n1 = b.let("n1", binary(BinaryOp::shr, n, b.integer(w, 1)));
  auto power_of_two = [&](const Expr& e) {
    return b.from_bits(w, shift_left(w, e + b.integer(w, 1023), 52));
  };
  return b.fma(q, r, b.number(w, 1)) * power_of_two(n1) * power_of_two(n - n1);
}

Expr pow(MathBuilder& b, const Expr& x, const Expr& y) {
  Expr zero = b.number(x, 0), one = b.number(x, 1), infinity = b.infinity(x);
  Expr a = b.let("a", b.abs(x));
  auto [l1, l0] = precise_log2(b, a);
  // Larger exponents than these give the same as they do.
  const double most = is_f32(x) ? 1e30 : 1e300, bits = is_f32(x) ? 200 : 1100;
  Expr within = b.let("y", b.clamp(y, -most, most));
  auto [w1, w0] = b.product(within, l1);
  Expr w = b.let("w", b.clamp(w1, -bits, bits));
  Expr low = b.let("low", select(w == w1, b.fma(within, l0, w0), zero));
  Expr positive = b.let("positive", is_f32(x) ? scaled_exp2_of_sum(b, w, low) : exp2_of_sum_f64(b, w, low));

  Expr toward_zero = b.let("toward_zero", y > zero);  // of a zero base; an infinite one goes the other way
  positive = select(a == zero, select(toward_zero, zero, infinity), positive);
  positive = b.let("positive", select(a == infinity, select(toward_zero, infinity, zero), positive));

  Expr half = b.let("half", y * b.number(x, 0.5));
  Expr is_integer = b.let("is_integer", y == call(Intrinsic::trunc, {y}));
  Expr is_odd = is_integer && half != call(Intrinsic::trunc, {half});
  Expr is_negative = b.bits(x) < b.integer(x, 0);
  Expr value = b.let("value", select(is_negative && is_odd, -positive, positive));
  Expr has_no_value = x < zero && x > b.minus_infinity(x) && logical_not(is_integer);
  value = select(has_no_value, b.not_a_number(x), value);
  value = select(x != x || y != y, x + y, value);
  return select(x == one || y == zero, one, value);
}

}  // namespace mcc::tensor::math
