// What lower_math does around its formulas; the formulas themselves are swept in tests/codegen/math_test.cpp.
#include "tensor/passes/lower_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/interpret.h"
#include "tensor/text.h"
#include "tensor_passes/equivalence.h"
#include "ulp.h"

namespace mcc::tensor {
namespace {

Func without_fma(const Func& f) {
  Target target;
  target.has_fma = false;
  return lower_math(f, target);
}

TEST(LowerMath, EveryFunctionIsExpandedForScalarsAndVectors) {
  for (const char* name :
       {"exp", "exp2", "log",  "log2", "log1p", "expm1", "rsqrt", "tanh",  "erf",   "sigmoid", "sin",
        "cos", "tan",  "asin", "acos", "atan",  "sinh",  "cosh",  "asinh", "acosh", "atanh"}) {
    for (const char* element : {"f32", "f64"}) {
      SCOPED_TRACE(text(name, " of ", element));
      Func scalar = parse(text("func f(x: ", element, "[64]) -> (y: ", element,
                               "[64]) { for i in 64 { y[i] = ", name, "(x[i]) } }"));
      Func vector =
          parse(text("func f(x: ", element, "[64]) -> (y: ", element,
                     "[64]) { for i in 4 { y[ramp(i * 16, 1, 16)] = ", name, "(x[ramp(i * 16, 1, 16)]) } }"));
      for (const Func& f : {scalar, vector}) {
        Func g = without_fma(f);
        EXPECT_EQ(to_text(g).find(text(name, "(")), std::string::npos) << to_text(g);
        expect_equivalent(f, g, {}, {2e-6, 1e-7});
      }
    }
  }
}

// Bit by bit, for any counter and key.
TEST(LowerMath, RandomBitsAreExact) {
  for (const char* name : {"philox", "philox_rest"}) {
    const Func scalar =
        parse(text("func f(a: u64[64], b: u64[64], k: u64[64]) -> (y: u64[64]) { for i in 64 { y[i] = ", name,
                   "(a[i], b[i], k[i]) } }"));
    const Func vector = parse(text(
        "func f(a: u64[64], b: u64[64], k: u64[64]) -> (y: u64[64]) { for i in 8 { y[ramp(i * 8, 1, 8)] = ",
        name, "(a[ramp(i * 8, 1, 8)], b[ramp(i * 8, 1, 8)], k[ramp(i * 8, 1, 8)]) } }"));
    std::mt19937_64 engine(3);
    std::vector<uint64_t> a(64), b(64), k(64), expected(64), actual(64);
    for (auto* words : {&a, &b, &k})
      for (uint64_t& word : *words)
        word = engine();
    const auto run = [&](const Func& f, std::vector<uint64_t>& y) {
      std::byte* buffers[] = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data()),
                              reinterpret_cast<std::byte*>(k.data()), reinterpret_cast<std::byte*>(y.data())};
      return interpret(f, buffers).ok();
    };
    ASSERT_TRUE(run(scalar, expected));
    for (const Func& f : {scalar, vector}) {
      const Func g = without_fma(f);
      EXPECT_EQ(to_text(g).find(text(name, "(")), std::string::npos) << to_text(g);
      ASSERT_TRUE(run(g, actual));
      EXPECT_EQ(actual, expected) << name;
    }
  }
}

// GPUs have 2^x, 1 / x and 1 / sqrt(x) as instructions: what is written around them holds at the ends, too, and loses little between them.
TEST(LowerMath, ApproximationsOfGpusHoldEverywhere) {
  Target target;
  target.kind = TargetKind::cuda;
  struct Case {
    const char *name, *instruction;
    double ulp;
  };
  for (const Case& c : {Case{"exp", "exp2_approx", 2.5}, Case{"exp2", "exp2_approx", 2.5},
                        Case{"sigmoid", "exp2_approx", 4.5}, Case{"sigmoid", "reciprocal_approx", 4.5},
                        Case{"tanh", "reciprocal_approx", 5}, Case{"erf", "reciprocal_approx", 5},
                        Case{"rsqrt", "rsqrt_approx", 1}}) {
    SCOPED_TRACE(c.name);
    Func f =
        parse(text("func f(x: f32[4096]) -> (y: f32[4096]) { for i in 4096 { y[i] = ", c.name, "(x[i]) } }"));
    Func g = lower_math(f, target);
    EXPECT_NE(to_text(g).find(text(c.instruction, "(")), std::string::npos) << to_text(g);
    EXPECT_EQ(to_text(g).find(" / "), std::string::npos) << to_text(g);
    std::vector<float> x(4096), expected(4096), actual(4096);
    auto run = [&](const Func& h, std::vector<float>& y) {
      std::byte* buffers[] = {reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(y.data())};
      return interpret(h, buffers).ok();
    };
    const float inf = std::numeric_limits<float>::infinity();
    const float ends[] = {inf, -inf, std::nanf(""), 0.0f, -0.0f, 1e30f, -1e30f, 128.0f, 1000.0f, -1000.0f};
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = i < std::size(ends) ? ends[i] : -86.0f + 174.0f * static_cast<float>(i) / 4096;
    ASSERT_TRUE(run(f, expected));
    ASSERT_TRUE(run(g, actual));
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = expected[i], a = actual[i];
      if (std::isnan(e)) {
        EXPECT_TRUE(std::isnan(a)) << x[i];
      } else if (std::isinf(e) || std::fabs(e) < 1.2e-38) {
        EXPECT_EQ(a, std::isinf(e) ? e : 0) << x[i];
      } else {
        EXPECT_LE(std::fabs(a - e), std::fabs(e) * c.ulp * 0x1p-23) << x[i];
      }
    }
  }
}

// y = expression for each element of a and b, as GPUs compute it, by the interpreter.
std::vector<float> compute_for_gpus(const char* expression, std::vector<float> a, std::vector<float> b) {
  Target target;
  target.kind = TargetKind::cuda;
  const size_t n = a.size();
  const Func f = lower_math(parse(text("func f(a: f32[", n, "], b: f32[", n, "]) -> (y: f32[", n,
                                       "]) { for i in ", n, " { y[i] = ", expression, " } }")),
                            target);
  EXPECT_EQ(to_text(f).find("f64"), std::string::npos) << to_text(f);
  std::vector<float> y(n);
  std::byte* buffers[] = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data()),
                          reinterpret_cast<std::byte*>(y.data())};
  EXPECT_TRUE(interpret(f, buffers).ok());
  return y;
}

// f64 is slow on many GPUs: what CPUs compute by way of it is f32 there.
TEST(LowerMath, TrigonometricFunctionsOfGpusAreSinglePrecision) {
  const float inf = std::numeric_limits<float>::infinity();
  const double half_pi = 1.5707963267948966;
  std::mt19937 engine(5);
  std::vector<float> x{0.0f, -0.0f, inf, -inf, std::nanf(""), 1e-40f, -1e-30f, 9.424778f, 1e6f};
  const size_t specials = x.size();
  for (double most : {0.8, 12.0, 1000.0, 0x1p15, 0x1p20}) {
    std::uniform_real_distribution<double> anywhere(-most, most);
    for (int i = 0; i < 1500; ++i) {
      const double drawn = anywhere(engine);
      x.push_back(static_cast<float>(drawn));
      x.push_back(static_cast<float>(std::round(drawn / half_pi) * half_pi));  // close to where they are 0
    }
  }
  const size_t precise = x.size();
  for (int i = 0; i < 3000; ++i)
    x.push_back(
        static_cast<float>(std::ldexp(std::uniform_real_distribution<double>(-1, 1)(engine), 21 + i % 22)));
  x.push_back(1e30f);
  struct Case {
    const char* name;
    double (*reference)(double);
    double ulp;
  };
  for (const Case& c :
       {Case{"sin(a[i])", std::sin, 1}, Case{"cos(a[i])", std::cos, 1}, Case{"tan(a[i])", std::tan, 3}}) {
    SCOPED_TRACE(c.name);
    const std::vector<float> y = compute_for_gpus(c.name, x, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = c.reference(x[i]);
      if (i < precise) {
        EXPECT_LE(ulp_distance(y[i], expected), c.ulp) << x[i];
      } else if (std::fabs(x[i]) >= 0x1p42f) {
        EXPECT_LE(std::fabs(y[i]), 1) << x[i];
      } else if (c.ulp == 1) {
        EXPECT_LE(std::fabs(y[i] - expected), 6e-8) << x[i];
      }
      if (i < specials && expected == 0) {
        EXPECT_EQ(std::signbit(y[i]), std::signbit(expected)) << x[i];
      }
    }
  }
}

TEST(LowerMath, PowersOfGpusAreSinglePrecision) {
  const float inf = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.0f,   -2.0f,  3.0f,   -3.0f,  0.5f,         -0.5f,
                            1.5f, inf,   -inf, 1e30f, -1e30f, 7e-39f, 101.0f, 100.0f, std::nanf("")};
  std::vector<float> x, y;
  for (float a : specials) {
    for (float b : specials)
      x.push_back(a), y.push_back(b);
  }
  std::mt19937 engine(3);
  auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine);
  };
  while (x.size() < 12000) {
    const size_t kind = x.size() % 4;
    x.push_back(static_cast<float>(kind == 0   ? 1 + draw(-0.01, 0.01)
                                   : kind == 1 ? std::exp2(draw(-20, 20))
                                   : kind == 2 ? draw(0.5, 2)
                                               : draw(1e-3, 50)));
    y.push_back(static_cast<float>(kind == 0   ? draw(-8000, 8000)
                                   : kind == 1 ? draw(-6, 6)
                                   : kind == 2 ? draw(-126, 126)
                                               : -0.75));
  }
  const std::vector<float> z = compute_for_gpus("pow(a[i], b[i])", x, y);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::pow(static_cast<double>(x[i]), static_cast<double>(y[i]));
    EXPECT_LE(ulp_distance(z[i], expected), 3) << x[i] << ", " << y[i];
    EXPECT_TRUE(std::isnan(z[i]) || std::signbit(z[i]) == std::signbit(expected)) << x[i] << ", " << y[i];
  }
}

// Of few digits, so that the product is the exact quotient; others are divided by.
TEST(LowerMath, DivisionsByCountsOfElementsAreProductsOnGpus) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x{0.0f,   -0.0f, inf, -inf, std::nanf(""), std::numeric_limits<float>::max(),
                       1e-20f, 3e-30f};
  for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits += 977)
    x.push_back(std::bit_cast<float>(bits));
  for (float divisor :
       {3.0f, 7.0f, 49.0f, 768.0f, 1000.0f, 3072.0f, 2097151.0f, 4194303.0f, -5.0f, 0.75f, 0.1f, 0.0f}) {
    const std::vector<float> y = compute_for_gpus(text("a[i] / ", divisor).c_str(), x, x);
    const Func f =
        parse(text("func f(a: f32[4]) -> (y: f32[4]) { for i in 4 { y[i] = a[i] / ", divisor, " } }"));
    Target target;
    target.kind = TargetKind::cuda;
    const bool divides = to_text(lower_math(f, target)).find(" / ") != std::string::npos;
    EXPECT_EQ(divides, divisor == 0 || divisor == 0.1f) << divisor;
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = x[i] / divisor;
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(y[i])
                                       : std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(expected))
          << x[i] << " / " << divisor << " = " << y[i];
    }
  }
}

// erf and tanh lose little by it; other functions, other elements and variable divisors keep the division.
TEST(LowerMath, ArgumentsDividedByConstantsAreMultiplied) {
  auto divisions = [](const char* element, const char* value) {
    const Func f = parse(text("func f(x: ", element, "[16]) -> (y: ", element,
                              "[16]) { for i in 16 { y[i] = ", value, " } }"));
    const Func g = without_fma(f);
    expect_equivalent(f, g, {}, {2e-6, 1e-7});
    const std::string source = to_text(g);
    size_t count = 0;
    for (size_t at = source.find(" / "); at != std::string::npos; at = source.find(" / ", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(divisions("f32", "erf(x[i])"), 1);
  EXPECT_EQ(divisions("f32", "erf(x[i] / 1.4142135)"), 1);
  EXPECT_EQ(divisions("f32", "tanh(x[i] / -3.0)"), 1);
  EXPECT_EQ(divisions("f32", "erf(x[i] / 1e-39)"), 2);
  EXPECT_EQ(divisions("f32", "erf(x[i] / (x[i] + 2.0))"), 2);
  EXPECT_EQ(divisions("f32", "sigmoid(x[i] / 3.0)"), 2);
  EXPECT_EQ(divisions("f16", "erf(x[i] / 1.5:f16)"), 2);
}

TEST(LowerMath, ConstantExponentsNeedNoLogarithm) {
  for (const char* exponent : {"0.5", "1.0", "2.0", "3.0", "4.0", "-1.0", "-2.0"}) {
    Func f = parse(
        text("func f(x: f32[16]) -> (y: f32[16]) { for i in 16 { y[i] = pow(x[i], ", exponent, ") } }"));
    Func g = without_fma(f);
    EXPECT_LT(to_text(g).size(), 400u) << to_text(g);
    expect_equivalent(f, g);
  }
}

TEST(LowerMath, ALoadUnderASelectStaysGuarded) {
  Func f = parse(
      "func f(x: f32[4]) -> (y: f32[6]) { for i in 6 { "
      "y[i] = select(i > 0 && i < 5, exp(x[i - 1]) + sigmoid(x[i - 1]), 2.0) } }");
  expect_equivalent(f, without_fma(f));
}

TEST(LowerMath, HalfPrecisionIsComputedInSingle) {
  Func f = parse("func f(x: f32[8]) -> (y: f32[8]) { for i in 8 { y[i] = f32(tanh(f16(x[i]))) } }");
  expect_equivalent(f, without_fma(f), {}, {1e-3, 1e-3});
}

}  // namespace
}  // namespace mcc::tensor
