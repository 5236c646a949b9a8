// Hyperbolic functions, their inverses, and the error function. Coefficients come from fit.py.
#include "tensor/passes/math/builder.h"

namespace mcc::tensor::math {

namespace {

constexpr double kLn2 = 0.6931471805599453;

// Above, x^2 + 1 is x^2, and log1p is log.
constexpr double kLarge = 18014398509481984.0;  // 2^54

// x P(x^2) / Q(x^2), which is all of tanh and erf until they are 1 in f32.
Expr odd_rational(MathBuilder& b, const Expr& x, double end, std::initializer_list<double> p,
                  std::initializer_list<double> q) {
  Expr inside = b.let("x", b.clamp(x, -end, end));
  Expr z = b.let("z", inside * inside);
  return b.clamp(b.quotient(inside * b.polynomial(z, p), b.polynomial(z, q)), -1, 1);
}

}  // namespace

Expr tanh_f32(MathBuilder& b, const Expr& x) {
  return odd_rational(
      b, x, 9.02,
      {1.0, 0.1385250552, 0.004089887723, 3.290595073e-5, 4.543445735e-8, -3.134584285e-11, 2.523806631e-14},
      {1.0, 0.4718583875, 0.02804268549, 0.0004342685544, 1.662443133e-6});
}

Expr erf_f32(MathBuilder& b, const Expr& x) {
  return odd_rational(b, x, 3.92,
                      {1.128379169, 0.1851351595, 0.05424401863, 0.003838623719, 0.0003767610791,
                       4.609294537e-6, -1.280010426e-8},
                      {1.0, 0.4974051695, 0.113873753, 0.01543005811, 0.001301527916, 6.239974617e-5});
}

// With t = e^2x - 1: t / (t + 2).
Expr tanh_f64(MathBuilder& b, const Expr& x) {
  Expr doubled = b.let("x", b.clamp(x + x, -40, 40));
  Expr t = b.let("t", expm1(b, doubled));
  return t / (t + b.number(x, 2));
}

// |x| < 1: x p(x^2). Else 1 - e^(-x^2) p(t) with t = (|x| - 3) / (|x| + 2), which is 1 from 6 on.
Expr erf_f64(MathBuilder& b, const Expr& x) {
  Expr a = b.let("a", min(b.abs(x), b.number(x, 6)));
  Expr z = b.let("z", a * a);
  Expr low = b.polynomial(
      z, {1.128379167095512574, -0.376126389031837476, 0.1128379167095485749, -0.02686617064507289415,
          0.0052239776247808591, -0.0008548326978741749793, 0.000120553310368825813,
          -0.00001492559350647424802, 1.646097281031501713e-6, -1.635002515179259635e-7,
          1.465787937124145281e-8, -1.136566417465113491e-9, 5.945258796630804999e-11});
  Expr t = b.let("t", (a - b.number(x, 3)) / (a + b.number(x, 2)));
  Expr high =
      b.polynomial(t, {0.1790011511813899504,     -0.271861300035864357,     0.125247978960919051,
                       -0.03757161933886940373,   0.00407931280027360124,    0.001707856561152693002,
                       -0.0005378017270744272175, -0.0001368498417980297962, 0.00006054217701052137388,
                       0.0000199241148289424945,  -6.44429783675512462e-6,   -3.799014218248804859e-6,
                       3.684358753893831302e-7,   7.122735241278321629e-7,   1.048965027012775903e-7,
                       -1.03184666115459227e-7,   -5.04116326205759752e-8,   3.706552592977610957e-9,
                       1.021699668585708592e-8,   2.80292609824128501e-9});
  Expr minus_z = b.let("z", -z);
  Expr rest = b.number(x, 1) - exp(b, minus_z) * high;
  return b.with_sign_of(x, select(a < b.number(x, 1), a * low, rest));
}

// With t = e^|x| - 1: (t + t / (t + 1)) / 2; large ones by the square of e^(|x|/2), which overflows only with the result.
Expr sinh_f64(MathBuilder& b, const Expr& x) {
  Expr half = b.number(x, 0.5);
  Expr a = b.let("a", b.abs(x));
  Expr t = b.let("t", expm1(b, a));
  Expr root = b.let("root", exp(b, b.let("x", half * a)));
  Expr low = half * (t + t / (t + b.number(x, 1)));
  return b.with_sign_of(x, select(a < b.number(x, 22), low, half * root * root));
}

Expr cosh_f64(MathBuilder& b, const Expr& x) {
  Expr half = b.number(x, 0.5);
  Expr root = b.let("root", exp(b, b.let("x", half * b.abs(x))));
  return half * root * root + half / (root * root);
}

// With a = |x|: log1p(a + a^2 / (1 + sqrt(a^2 + 1)))
Expr asinh_f64(MathBuilder& b, const Expr& x) {
  Expr one = b.number(x, 1);
  Expr a = b.let("a", b.abs(x));
  Expr z = b.let("z", a * a);
  Expr is_large = b.let("is_large", a > b.number(x, kLarge));
  Expr inner = b.let("inner", a + z / (one + b.sqrt(z + one)));
  // One logarithm for both: of 1 + inner, or of a.
  Expr value = log1p(b, b.let("x", select(is_large, a, inner)));
  return b.with_sign_of(x, value + select(is_large, b.number(x, kLn2), b.number(x, 0)));
}

// With t = x - 1: log1p(t + sqrt(t (t + 2)))
Expr acosh_f64(MathBuilder& b, const Expr& x) {
  Expr t = b.let("t", x - b.number(x, 1));
  Expr is_large = b.let("is_large", x > b.number(x, kLarge));
  Expr inner = b.let("inner", t + b.sqrt(t * (t + b.number(x, 2))));
  Expr value = log1p(b, b.let("x", select(is_large, x, inner)));
  value = value + select(is_large, b.number(x, kLn2), b.number(x, 0));
  return select(t >= b.number(x, 0), value, b.not_a_number(x));
}

// With a = |x|: log1p(2 a / (1 - a)) / 2
Expr atanh_f64(MathBuilder& b, const Expr& x) {
  Expr a = b.let("a", b.abs(x));
  Expr inner = b.let("x", (a + a) / (b.number(x, 1) - a));
  return b.with_sign_of(x, b.number(x, 0.5) * log1p(b, inner));
}

}  // namespace mcc::tensor::math
