// What lower_math does around its formulas; the formulas themselves are swept in tests/codegen/math_test.cpp.
#include "tensor/passes/lower_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/interpret.h"
#include "tensor/text.h"
#include "tensor_passes/equivalence.h"

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
