// The expansions of mathematical functions, compiled and swept over their arguments against the C library in long double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "codegen/codegen.h"
#include "tensor/text.h"
#include "ulp.h"

namespace mcc::codegen {
namespace {

using Reference = long double (*)(long double);

long double reference_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double reference_rsqrt(long double x) { return 1 / std::sqrt(x); }

struct Case {
  const char* name;
  Reference reference;
  double f32_bound, f64_bound;  // ULP
  double low, high;             // where the bound holds; outside of it only that nothing is lost
  bool flushes = false;         // results below the smallest normal number may be 0
};

const double kMax = 1.7e308;

const Case kCases[] = {
    {"exp", std::exp, 1.1, 1.1, -kMax, kMax, true},
    {"exp2", std::exp2, 1.3, 1.3, -kMax, kMax, true},
    {"expm1", std::expm1, 2, 2, -kMax, kMax},
    {"log", std::log, 1, 1, -kMax, kMax},
    {"log2", std::log2, 2, 2, -kMax, kMax},
    {"log1p", std::log1p, 2, 2, -kMax, kMax},
    {"sigmoid", reference_sigmoid, 3, 3, -kMax, kMax, true},
    {"rsqrt", reference_rsqrt, 1.5, 1.5, -kMax, kMax},
    {"tanh", std::tanh, 5, 3, -kMax, kMax},
    {"erf", std::erf, 5, 2, -kMax, kMax},
    {"sin", std::sin, 0.51, 1.5, -1048576, 1048576},
    {"cos", std::cos, 0.51, 1.5, -1048576, 1048576},
    {"tan", std::tan, 0.51, 3, -1048576, 1048576},
    {"asin", std::asin, 0.51, 3, -kMax, kMax},
    {"acos", std::acos, 0.51, 2, -kMax, kMax},
    {"atan", std::atan, 0.51, 2, -kMax, kMax},
    {"sinh", std::sinh, 0.51, 4, -kMax, kMax},
    {"cosh", std::cosh, 0.51, 4, -kMax, kMax},
    {"asinh", std::asinh, 0.51, 4, -kMax, kMax},
    {"acosh", std::acosh, 0.51, 4, -kMax, kMax},
    {"atanh", std::atanh, 0.51, 4, -kMax, kMax},
};

// Every exponent, both signs, and more of the magnitudes that occur.
template <class T>
std::vector<T> arguments(size_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::mt19937_64 engine(7);
  std::vector<T> x;
  for (T special : {T(0),
                    T(-0.0),
                    T(1),
                    T(-1),
                    T(0.5),
                    T(-0.5),
                    T(2),
                    std::numeric_limits<T>::infinity(),
                    -std::numeric_limits<T>::infinity(),
                    std::numeric_limits<T>::quiet_NaN(),
                    std::numeric_limits<T>::min(),
                    std::numeric_limits<T>::denorm_min(),
                    std::numeric_limits<T>::max(),
                    -std::numeric_limits<T>::max(),
                    T(88.72283),
                    T(-87.33654),
                    T(709.78271289338),
                    T(-708.39641853226),
                    T(128),
                    T(-126),
                    T(1024),
                    T(-1022)}) {
    x.push_back(special);
  }
  std::uniform_real_distribution<double> near(-12, 12), wide(-800, 800);
  while (x.size() < count) {
    switch (x.size() % 4) {
      case 0:
        x.push_back(std::bit_cast<T>(static_cast<Bits>(engine())));
        break;
      case 1:
        x.push_back(static_cast<T>(wide(engine)));
        break;
      case 2:
        x.push_back(static_cast<T>(1 + near(engine) / 64));
        break;
      default:
        x.push_back(static_cast<T>(near(engine)));
        break;
    }
  }
  return x;
}

tensor::Func function_of_one(const std::string& name, const std::string& element, size_t count, int lanes) {
  std::string source =
      text("func t(x: ", element, "[", count, "]) -> (y: ", element, "[", count, "]) { for i.o in ",
           count / static_cast<size_t>(lanes), " { vectorized for i.v in ", lanes, " { block y(i = i.o * ",
           lanes, " + i.v: spatial ", count, ") { y[i] = ", name, "(x[i]) } } } }");
  Result<tensor::Func> f = tensor::parse_func(source);
  MCC_CHECK(f.ok(), to_text(f.errors()));
  return *f;
}

// Runs f on the buffers, compiled with the options.
void run_with(const tensor::Func& f, const tensor::Target& target, const EmitOptions& options, std::span<void* const> buffers) {
  Result<std::unique_ptr<Jit>> jit = Jit::create(target);
  ASSERT_TRUE(jit.ok());
  Result<ObjectCode> object = emit_object(tensor::lower(f, target), "f", target, options);
  ASSERT_TRUE(object.ok()) << to_text(object.errors());
  Result<std::shared_ptr<Jit::Kernel>> kernel = (*jit)->load(*object, "f");
  ASSERT_TRUE(kernel.ok()) << to_text(kernel.errors());
  ASSERT_EQ((*kernel)->function(buffers.data(), nullptr, nullptr), 0);
}

class Math : public ::testing::TestWithParam<std::tuple<Case, const char*>> {
 protected:
  template <class T>
  void sweep(const Case& c, const char* element, double bound, const EmitOptions& options = {}) {
    Result<tensor::Target> target = make_target(std::get<1>(GetParam()));
    ASSERT_TRUE(target.ok());
    if (!runs_here(*target)) GTEST_SKIP() << target->name;
    std::vector<T> x = arguments<T>(size_t{1} << 16), y(x.size());
    int lanes = target->lanes(8 * sizeof(T));
    void* buffers[] = {x.data(), y.data()};
    run_with(function_of_one(c.name, element, x.size(), lanes), *target, options, buffers);
    if (HasFatalFailure()) return;
    double worst = 0;
    T worst_at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      long double expected = c.reference(static_cast<long double>(x[i]));
      if (std::isfinite(x[i]) && (x[i] < c.low || x[i] > c.high)) {
        EXPECT_EQ(std::isnan(y[i]), std::isnan(static_cast<T>(expected))) << c.name << "(" << x[i] << ")";
        continue;
      }
      if (c.flushes && y[i] == 0 && std::fabs(expected) < std::numeric_limits<T>::min()) continue;
      double distance = ulp_distance(y[i], expected);
      if (distance > worst) {
        worst = distance;
        worst_at = x[i];
      }
    }
    RecordProperty("worst_ulp", std::to_string(worst));
    long double expected = c.reference(static_cast<long double>(worst_at));
    EXPECT_LE(worst, bound) << c.name << "(" << text(static_cast<double>(worst_at)) << ") should be "
                            << text(static_cast<double>(expected));
  }
};

TEST_P(Math, F32) { sweep<float>(std::get<0>(GetParam()), "f32", std::get<0>(GetParam()).f32_bound); }
TEST_P(Math, F64) { sweep<double>(std::get<0>(GetParam()), "f64", std::get<0>(GetParam()).f64_bound); }
TEST_P(Math, F32FastMath) {
  EmitOptions options;
  options.fast_math = true;
  sweep<float>(std::get<0>(GetParam()), "f32", std::get<0>(GetParam()).f32_bound, options);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, const char*>>& info) {
  std::string target = std::get<1>(info.param);
  std::replace_if(target.begin(), target.end(), [](char c) { return !std::isalnum(c); }, '_');
  return std::string(std::get<0>(info.param).name) + "_" + target;
}

INSTANTIATE_TEST_SUITE_P(Functions, Math,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("cpu", "cpu:x86-64-v3", "cpu:x86-64-v2")),
                         name_of);

// What the options license is done to the model's own arithmetic: x + 1e8 - 1e8 is 0 as written, and x reassociated.
TEST(FastMath, ReachesTheModelsArithmetic) {
  Result<tensor::Target> target = make_target("cpu");
  ASSERT_TRUE(target.ok());
  Result<tensor::Func> f = tensor::parse_func(
      "func t(x: f32[16]) -> (y: f32[16]) { vectorized for i in 16 { block y(i = i: spatial 16) { y[i] = x[i] + 100000000.0 - "
      "100000000.0 } } }");
  ASSERT_TRUE(f.ok()) << to_text(f.errors());
  std::vector<float> x(16, 1.5f), y(16);
  void* buffers[] = {x.data(), y.data()};
  EmitOptions options;
  for (bool fast : {false, true}) {
    options.fast_math = fast;
    run_with(*f, *target, options, buffers);
    EXPECT_EQ(y[3], fast ? 1.5f : 0.0f);
  }
  options.strict = true;  // has the last word
  run_with(*f, *target, options, buffers);
  EXPECT_EQ(y[3], 0.0f);
}

// pow over pairs: the special ones among themselves, and random ones whose result is in range.
template <class T>
void sweep_pow(const std::string& target_name, const char* element, double bound) {
  Result<tensor::Target> target = make_target(target_name);
  ASSERT_TRUE(target.ok());
  if (!runs_here(*target)) GTEST_SKIP() << target->name;
  Result<std::unique_ptr<Jit>> jit = Jit::create(*target);
  ASSERT_TRUE(jit.ok());
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T special[] = {0,       T(-0.0), 1,   -1,   2,   -2,      3,        -3,       T(0.5),
                       T(-0.5), T(1.5),  inf, -inf, nan, T(1e30), T(-1e30), T(7e-39), 101};
  std::vector<T> x, y;
  for (T a : special) {
    for (T b : special)
      x.push_back(a), y.push_back(b);
  }
  std::mt19937 engine(3);
  std::uniform_real_distribution<double> exponent(-20, 20), power(-60, 60), near(-0.01, 0.01);
  while (x.size() < 1 << 15) {
    bool is_near_one = x.size() % 2 == 0;
    x.push_back(static_cast<T>(is_near_one ? 1 + near(engine) : std::exp2(exponent(engine))));
    y.push_back(static_cast<T>(is_near_one ? power(engine) * 60 : power(engine) / 10));
  }
  std::vector<T> z(x.size());
  std::string source =
      text("func t(x: ", element, "[", x.size(), "], y: ", element, "[", x.size(), "]) -> (z: ", element, "[",
           x.size(), "]) { for i.o in ", x.size() / 8, " { vectorized for i.v in 8 { block z(i = i.o * 8",
           " + i.v: spatial ", x.size(), ") { z[i] = pow(x[i], y[i]) } } } }");
  Result<tensor::Func> f = tensor::parse_func(source);
  ASSERT_TRUE(f.ok()) << to_text(f.errors());
  void* buffers[] = {x.data(), y.data(), z.data()};
  Status status = (*jit)->run(*f, buffers);
  ASSERT_TRUE(status.ok()) << to_text(status.errors());
  for (size_t i = 0; i < x.size(); ++i) {
    long double expected = std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i]));
    EXPECT_LE(ulp_distance(z[i], expected), bound) << "pow(" << x[i] << ", " << y[i] << ") = " << z[i];
    EXPECT_TRUE(std::isnan(z[i]) || std::signbit(z[i]) == std::signbit(expected)) << x[i] << ", " << y[i];
  }
}

TEST(Pow, F32) { sweep_pow<float>("cpu", "f32", 0.51); }
TEST(Pow, F64) { sweep_pow<double>("cpu", "f64", 2); }
TEST(Pow, F64WithoutFma) { sweep_pow<double>("cpu:x86-64-v2", "f64", 2); }

}  // namespace
}  // namespace mcc::codegen
