#include "tensor/interpret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tensor/build.h"
#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr ElementType f32 = ElementType::f32;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Func parse(const std::string& source) {
  Result<Func> f = parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors()) << "\n" << source;
  return *f;
}

using Tensor = std::vector<double>;

std::vector<std::byte> to_bytes(ElementType element, const Tensor& values) {
  const auto size = static_cast<size_t>(byte_size(element));
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = is_float(element) ? float_to_bits(element, values[i])
                                            : static_cast<uint64_t>(static_cast<int64_t>(values[i]));
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

Tensor from_bytes(ElementType element, const std::vector<std::byte>& bytes) {
  const auto size = static_cast<size_t>(byte_size(element));
  Tensor values;
  for (size_t at = 0; at < bytes.size(); at += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, size);
    const int64_t whole =
        wrap_int(is_float(element) ? ElementType::u64 : element, static_cast<int64_t>(bits));
    if (is_float(element)) {
      values.push_back(float_from_bits(element, bits));
    } else {
      values.push_back(element == ElementType::u64 ? static_cast<double>(bits) : static_cast<double>(whole));
    }
  }
  return values;
}

int64_t count(const Buffer& b, const Func& f, const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const Expr& extent : b.shape()) {
    int64_t value = 0;
    for (size_t i = 0; i < dims.size(); ++i)
      if (extent.same_as(f.dims[i])) value = dims[i];
    as_int(extent, &value);
    product *= value;
  }
  return product;
}

struct Outcome {
  std::string error;  // empty: it ran
  std::vector<Tensor> outputs;
  const Tensor& first() const { return outputs.at(0); }
};

Outcome run(const Func& f, const std::vector<Tensor>& inputs = {}, const std::vector<int64_t>& dims = {},
            const InterpretOptions& options = {}) {
  std::vector<std::vector<std::byte>> memory;
  for (size_t i = 0; i < inputs.size(); ++i)
    memory.push_back(to_bytes(f.params[i].element(), inputs[i]));
  for (size_t i = inputs.size(); i < f.params.size(); ++i) {
    const Buffer& b = f.params[i];
    memory.emplace_back(static_cast<size_t>(count(b, f, dims) * byte_size(b.element())));
  }
  std::vector<std::byte*> buffers;
  for (auto& bytes : memory)
    buffers.push_back(bytes.data());
  Status status = interpret(f, buffers, dims, options);
  Outcome out;
  if (!status.ok()) out.error = to_text(status.errors());
  for (size_t i = inputs.size(); i < f.params.size(); ++i)
    out.outputs.push_back(from_bytes(f.params[i].element(), memory[i]));
  return out;
}

Outcome run(const std::string& source, const std::vector<Tensor>& inputs = {},
            const std::vector<int64_t>& dims = {}, const InterpretOptions& options = {}) {
  return run(parse(source), inputs, dims, options);
}

Tensor random_values(size_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  Tensor out(count);
  for (double& x : out)
    x = static_cast<double>(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
  return out;
}

// ---- Expressions ----

struct ExprCase {
  const char* type;
  const char* expr;
  double expected;
};
void PrintTo(const ExprCase& c, std::ostream* out) { *out << c.type << " " << c.expr; }

class Expression : public ::testing::TestWithParam<ExprCase> {};

TEST_P(Expression, HasItsValue) {
  const ExprCase& c = GetParam();
  Outcome out = run(text("func f() -> (y: ", c.type, "[1]) { y[0] = ", c.expr, " }"));
  ASSERT_EQ(out.error, "");
  if (std::isnan(c.expected)) {
    EXPECT_TRUE(std::isnan(out.first()[0])) << out.first()[0];
  } else {
    EXPECT_EQ(out.first()[0], c.expected);
    EXPECT_EQ(std::signbit(out.first()[0]), std::signbit(c.expected));
  }
}

const ExprCase kIntegers[] = {
    {"i32", "7:i32 / -2:i32", -3},
    {"i32", "7:i32 % -2:i32", 1},
    {"i32", "-7:i32 % 2:i32", -1},
    {"i32", "7:i32 // -2:i32", -4},
    {"i32", "7:i32 %% -2:i32", -1},
    {"i32", "-7:i32 %% 2:i32", 1},
    {"i32", "7:i32 / 0:i32", 0},
    {"i32", "7:i32 % 0:i32", 0},
    {"i32", "7:i32 // 0:i32", 0},
    {"i32", "7:i32 %% 0:i32", 0},
    {"i32", "-2147483648:i32 / -1:i32", -2147483648.0},
    {"i32", "-2147483648:i32 % -1:i32", 0},
    {"i64", "(-9223372036854775807 - 1) / -1", -0x1p63},
    {"i8", "127:i8 + 1:i8", -128},
    {"i8", "-128:i8 - 1:i8", 127},
    {"i8", "100:i8 * 3:i8", 44},
    {"i8", "-128:i8 / -1:i8", -128},
    {"u8", "255:u8 + 1:u8", 0},
    {"u8", "1:u8 - 2:u8", 255},
    {"u64", "18446744073709551615:u64 / 2:u64", 0x1p63},
    {"u64", "max(18446744073709551615:u64, 1:u64)", 0x1p64},
    {"bool", "18446744073709551615:u64 > 1:u64", 1},
    {"bool", "-1:i8 < 0:i8", 1},
    {"bool", "3 >= 4 || 3 != 4", 1},
    {"bool", "3 <= 4 && 3 == 4", 0},
    {"bool", "logical_not(1 == 2)", 1},
    {"i8", "-128:i8 >> 3:i8", -16},
    {"u8", "200:u8 >> 3:u8", 25},
    {"i8", "1:i8 << 7:i8", -128},
    {"i8", "1:i8 << 8:i8", 0},
    {"i8", "-1:i8 >> 100:i8", -1},
    {"u64", "18446744073709551615:u64 >> 63:u64", 1},
    {"i32", "12:i32 & 10:i32", 8},
    {"i32", "12:i32 | 10:i32", 14},
    {"i32", "12:i32 ^ 10:i32", 6},
    {"u8", "bit_not(1:u8)", 254},
    {"i16", "bit_not(1:i16)", -2},
    {"i8", "popcount(-1:i8)", 8},
    {"i8", "abs(-128:i8)", -128},
    {"i64", "abs(-5)", 5},
    {"i64", "min(-5, 3)", -5},
    {"i64", "fma(3, 4, 5)", 17},
    {"i64", "likely(3)", 3},
    {"i4", "7:i4 + 1:i4", -8},
    {"u4", "15:u4 + 2:u4", 1},
};
INSTANTIATE_TEST_SUITE_P(Integers, Expression, ::testing::ValuesIn(kIntegers));

const ExprCase kFloats[] = {
    {"f32", "7.5 / 2.0", 3.75},
    {"f32", "1.0 / 0.0", kInf},
    {"f32", "0.0 / 0.0", kNan},
    {"f32", "-7.5 % 2.0", -1.5},
    {"f32", "7.5 % -2.0", 1.5},
    {"f32", "min(nan, 1.0)", kNan},
    {"f32", "min(1.0, nan)", kNan},
    {"f32", "max(nan, 1.0)", kNan},
    {"f32", "max(1.0, nan)", kNan},
    {"f32", "max(1.0, 2.0)", 2},
    {"bool", "nan == nan", 0},
    {"bool", "nan != nan", 1},
    {"bool", "nan < 1.0", 0},
    {"f32", "16777216.0 + 1.0", 16777216},  // computed in float
    {"f64", "16777216.0:f64 + 1.0:f64", 16777217},
    {"f16", "2048.0:f16 + 1.0:f16", 2048},  // ties to even
    {"f16", "2050.0:f16 + 1.0:f16", 2052},
    {"f16", "65504.0:f16 + 15.0:f16", 65504},
    {"f16", "65504.0:f16 + 16.0:f16", kInf},
    {"f16", "0.00006103515625:f16 / 2048.0:f16", 0},  // half of the smallest: to even
    {"f16", "0.00006103515625:f16 / 1024.0:f16", 0x1p-24},
    {"bf16", "256.0:bf16 + 1.0:bf16", 256},
    {"bf16", "258.0:bf16 + 1.0:bf16", 260},
    {"f8e4m3", "448.0:f8e4m3 + 16.0:f8e4m3", 448},
    {"f8e4m3", "448.0:f8e4m3 + 32.0:f8e4m3", kNan},
    {"f8e5m2", "57344.0:f8e5m2 + 8192.0:f8e5m2", kInf},
    {"f8e5m2", "1.0:f8e5m2 + 0.125:f8e5m2", 1},
    {"f32", "fma(16777216.0, 16777216.0, 1.0) - 281474976710656.0", 0},
    {"f32", "fma(1.000244140625, 1.000244140625, -1.0)", 0x1p-11 + 0x1p-24},
    // 1.0009765625^2 is a tie in f16 up to a bit that a product rounded first would lose.
    {"f16", "fma(1.0009765625:f16, 1.0009765625:f16, 0.0:f16)", 1.001953125},
    {"f16", "fma(2048.0:f16, 1.0:f16, 1.0:f16)", 2048},
    {"bf16", "fma(257.0:bf16, 1.0:bf16, 0.0:bf16)", 256},
    {"f32", "exp(1.0)", 2.7182817459106445},
    {"f32", "exp2(10.0)", 1024},
    {"f32", "log(1.0)", 0},
    {"f32", "log2(8.0)", 3},
    {"f32", "log1p(0.0)", 0},
    {"f32", "expm1(0.0)", 0},
    {"f32", "pow(2.0, 0.5)", 1.4142135381698608},
    {"f32", "sqrt(2.0)", 1.4142135381698608},
    {"f64", "sqrt(2.0:f64)", 1.4142135623730951},
    {"f32", "rsqrt(4.0)", 0.5},
    {"f32", "tanh(inf)", 1},
    {"f32", "erf(0.5)", 0.5204998850822449},
    {"f32", "sigmoid(0.0)", 0.5},
    {"f32", "sigmoid(-inf)", 0},
    {"f32", "sin(0.0) + cos(0.0) + tan(0.0)", 1},
    {"f32", "asin(1.0) - acos(0.0)", 0},
    {"f32", "atan(0.0) + sinh(0.0) + cosh(0.0)", 1},
    {"f32", "asinh(0.0) + acosh(1.0) + atanh(0.0)", 0},
    {"f32", "abs(-2.5)", 2.5},
    {"f32", "floor(-2.5)", -3},
    {"f32", "ceil(-2.5)", -2},
    {"f32", "round(2.5)", 2},
    {"f32", "round(3.5)", 4},
    {"f32", "trunc(-2.5)", -2},
    {"bool", "is_nan(nan)", 1},
    {"bool", "is_inf(-inf)", 1},
    {"bool", "is_inf(nan)", 0},
    {"f32", "select(1 < 2, 3.0, 4.0)", 3},
};
INSTANTIATE_TEST_SUITE_P(Floats, Expression, ::testing::ValuesIn(kFloats));

const ExprCase kCasts[] = {
    {"i32", "i32(-1.9)", -1},
    {"i32", "i32(3000000000.0)", 2147483647},
    {"i32", "i32(-inf)", -2147483648.0},
    {"i32", "i32(nan)", 0},
    {"u8", "u8(-1.0)", 0},
    {"u8", "u8(300.0)", 255},
    {"i8", "i8(-300.0)", -128},
    {"i64", "i64(inf)", 0x1p63},
    {"i64", "i64(-inf)", -0x1p63},
    {"u64", "u64(inf)", 0x1p64},
    {"u64", "u64(-5.0)", 0},
    {"i8", "i8(300)", 44},
    {"u8", "u8(-1)", 255},
    {"i4", "i4(9)", -7},
    {"bool", "bool(0.5)", 1},
    {"bool", "bool(nan)", 1},
    {"bool", "bool(0)", 0},
    {"bool", "bool(256)", 1},
    {"f32", "f32(1 == 1)", 1},
    {"f32", "f32(16777217)", 16777216},
    {"f64", "f64(-1)", -1},
    {"f32", "f32(18446744073709551615:u64)", 0x1p64},
    {"f16", "f16(65520.0)", kInf},
    {"f16", "f16(65519.0)", 65504},
    {"f16", "f16(100000)", kInf},
    {"bf16", "bf16(1.00390625)", 1},
    {"bf16", "bf16(1.01171875)", 1.015625},
    {"f8e4m3", "f8e4m3(0.001)", 0.001953125},
    {"f8e5m2", "f8e5m2(-0.0)", -0.0},
    {"tf32", "tf32(1.00048828125)", 1},
    {"i32", "bit_cast<i32>(1.0)", 1065353216},
    {"f32", "bit_cast<f32>(1065353217:i32)", 1 + 0x1p-23},
    {"i16", "bit_cast<i16>(-2.0:f16)", -16384},
    {"bf16", "bit_cast<bf16>(16256:i16)", 1},
    {"u8", "bit_cast<u8>(448.0:f8e4m3)", 126},
    {"u64", "bit_cast<u64>(-1)", 0x1p64},
};
INSTANTIATE_TEST_SUITE_P(Casts, Expression, ::testing::ValuesIn(kCasts));

const ExprCase kVectors[] = {
    {"i64", "reduce_add(ramp(3, 2, 4))", 24},
    {"i64", "reduce_mul(ramp(1, 1, 5))", 120},
    {"f32", "reduce_add(broadcast(0.5, 8))", 4},
    {"f32", "reduce_max(f32x4(ramp(-2, 1, 4)))", 1},
    {"f32", "reduce_min(f32x4(ramp(-2, 1, 4)))", -2},
    {"bool", "reduce_logical_and(ramp(0, 1, 4) < broadcast(3, 4))", 0},
    {"bool", "reduce_logical_or(ramp(0, 1, 4) == broadcast(3, 4))", 1},
    {"i64", "shuffle(ramp(0, 1, 4), ramp(10, 1, 4); 6)", 12},
    {"i64", "reduce_add(shuffle(ramp(0, 1, 4), 100; 0, 4, 3))", 103},
    {"i64", "reduce_add(select(ramp(0, 1, 4) < broadcast(2, 4), ramp(0, 1, 4), broadcast(10, 4)))", 21},
    {"i64", "reduce_add(select(1 < 2, ramp(0, 1, 4), broadcast(10, 4)))", 6},
    {"f32", "reduce_add(fma(f32x4(ramp(0, 1, 4)), broadcast(2.0, 4), broadcast(1.0, 4)))", 16},
    {"i8", "reduce_add(ramp(126:i8, 1:i8, 4))", -2},
};
INSTANTIATE_TEST_SUITE_P(Vectors, Expression, ::testing::ValuesIn(kVectors));

TEST(Numeric, NarrowFloatsAgreeWithTheirBits) {
  for (ElementType element :
       {ElementType::f16, ElementType::bf16, ElementType::f8e4m3, ElementType::f8e5m2}) {
    const uint64_t end = uint64_t{1} << bit_width(element);
    for (uint64_t bits = 0; bits < end; ++bits) {
      const double value = float_from_bits(element, bits);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(float_from_bits(element, float_to_bits(element, value))));
        continue;
      }
      ASSERT_EQ(float_to_bits(element, value), bits) << to_text(element);
      ASSERT_EQ(round_float(element, value), value) << to_text(element) << " " << bits;
    }
  }
  EXPECT_EQ(float_from_bits(ElementType::f16, 0x3c01), 1.0009765625);
  EXPECT_EQ(float_from_bits(ElementType::f16, 0x0001), 0x1p-24);
  EXPECT_EQ(float_from_bits(ElementType::f16, 0xfbff), -65504);
  EXPECT_EQ(float_from_bits(ElementType::bf16, 0x4049), 3.140625);
  EXPECT_EQ(float_from_bits(ElementType::f8e4m3, 0x7e), 448);
  EXPECT_EQ(float_from_bits(ElementType::f8e5m2, 0x7b), 57344);
}

// Neighbouring values of the format round to themselves, their middle to the even one, and everything else to the nearer.
TEST(Numeric, RoundsToNearestEven) {
  for (ElementType element :
       {ElementType::f16, ElementType::bf16, ElementType::f8e4m3, ElementType::f8e5m2}) {
    const uint64_t end = (uint64_t{1} << (bit_width(element) - 1)) - 1;
    for (uint64_t bits = 0; bits < end; ++bits) {
      const double low = float_from_bits(element, bits), high = float_from_bits(element, bits + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = low + (high - low) / 2;
      const double even = bits % 2 == 0 ? low : high;
      ASSERT_EQ(round_float(element, middle), even) << to_text(element) << " " << bits;
      ASSERT_EQ(round_float(element, -middle), -even) << to_text(element) << " " << bits;
      ASSERT_EQ(round_float(element, std::nextafter(middle, kInf)), high) << to_text(element) << " " << bits;
      ASSERT_EQ(round_float(element, std::nextafter(middle, -kInf)), low) << to_text(element) << " " << bits;
    }
  }
}

TEST(Interpret, EveryElementTypeIsStoredAndReadBack) {
#define X(name, literal, cls, bits) literal,
  for (std::string type : {MCC_ELEMENT_TYPES(X)}) {
#undef X
    if (type == "string") continue;
    Outcome out =
        run(text("func f(x: ", type, "[3]) -> (y: ", type, "[3]) { for i in 3 { y[i] = x[2 - i] } }"),
            {{0, 1, 1}});
    EXPECT_EQ(out.error, "") << type;
    EXPECT_THAT(out.first(), ElementsAre(1, 1, 0)) << type;
  }
}

// ---- Statements ----

TEST(Interpret, LoopsLetsAndBranches) {
  Outcome out = run(R"(
func f<n>(x: f32[n]) -> (y: f32[n], z: i64[4]) {
  for i in n {
    let v = x[i] * 2.0
    if v > 3.0 { y[i] = v } else { y[i] = -1.0 }
  }
  unrolled for i in 3 from 1 { z[i] = i * 10 }
  z[0] = n
  evaluate prefetch(x[1000], 3)
})",
                    {{1, 2, 3}}, {3});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.outputs[0], ElementsAre(-1, 4, 6));
  EXPECT_THAT(out.outputs[1], ElementsAre(3, 10, 20, 30));
}

TEST(Interpret, VectorStatementsUnderMasks) {
  Outcome out = run(R"(
func f(x: f32[10]) -> (y: f32[12]) {
  alloc t: f32[4] registers {
    for i in 3 {
      let k = ramp(i * 4, 1, 4)
      let mask = k < broadcast(10, 4)
      t[ramp(0, 1, 4)] = x[k; mask]
      y[k] = broadcast(-1.0, 4)
      y[ramp(i * 4 + 3, -1, 4); ramp(i * 4 + 3, -1, 4) < broadcast(10, 4)] = t[ramp(3, -1, 4)] + broadcast(1.0, 4)
    }
  }
})",
                    {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1, -1));
}

TEST(Interpret, VectorIndicesGatherAndScatter) {
  Outcome out = run(R"(
func f(x: f32[3, 4], k: i32[4]) -> (y: f32[2, 4]) {
  y[1, k[ramp(0, 1, 4)]] = x[2, ramp(0, 1, 4)]
  y[0, ramp(0, 1, 4)] = x[k[ramp(0, 1, 4)] %% broadcast(3:i32, 4), 1]
})",
                    {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 0, 2, 1}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(1, 1, 9, 5, 9, 11, 10, 8));
}

TEST(Interpret, EmptyLoopsAndBuffersAreFine) {
  Outcome out = run("func f<n>(x: f32[n]) -> (y: f32[n]) { for i in n { y[i] = x[i] } }", {{}}, {0});
  EXPECT_EQ(out.error, "");
}

// ---- Blocks ----

TEST(Interpret, MatrixProductWithSymbolicRows) {
  FuncBuilder b("matmul");
  Var m = b.dim("m");
  Buffer x = b.input("x", f32, {m, 7}), w = b.input("w", f32, {7, 3});
  Buffer y = b.reduce("y", f32, {m, 3}, {7}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]});
  });
  Buffer z = b.compute("z", f32, {m, 3}, [&](Axes i) {
    return max(load(y, {i[0], i[1]}), constant(f32, 0));
  });
  const Tensor xs = random_values(35, 1), ws = random_values(21, 2);
  Tensor expected;
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 7; ++k)
        sum += static_cast<float>(xs[i * 7 + k]) * static_cast<float>(ws[k * 3 + j]);
      expected.push_back(std::max(sum, 0.0f));
    }
  }
  Outcome out = run(b.finish({z}), {xs, ws}, {5});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAreArray(expected));
}

TEST(Interpret, ConvolutionWithPaddingReadsOnlyInside) {
  FuncBuilder b("conv");
  Buffer x = b.input("x", f32, {2, 5, 6}), w = b.input("w", f32, {3, 2, 3, 3});
  Buffer padded = b.compute("pad", f32, {2, 7, 8}, [&](Axes i) {
    Expr inside = i[1] >= 1 && i[1] < 6 && i[2] >= 1 && i[2] < 7;
    return select(inside, load(x, {i[0], i[1] - 1, i[2] - 1}), constant(f32, 0));
  });
  Buffer y = b.reduce("y", f32, {3, 3, 3}, {2, 3, 3}, Reducer::sum, [&](Axes s, Axes r) {
    return load(padded, {r[0], s[1] * 2 + r[1], s[2] * 2 + r[2]}) * load(w, {s[0], r[0], r[1], r[2]});
  });
  const Tensor xs = random_values(60, 3), ws = random_values(54, 4);
  Tensor expected;
  for (int o = 0; o < 3; ++o) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        float sum = 0;
        for (int c = 0; c < 2; ++c) {
          for (int p = 0; p < 3; ++p) {
            for (int q = 0; q < 3; ++q) {
              const int h = i * 2 + p - 1, v = j * 2 + q - 1;
              if (h < 0 || h >= 5 || v < 0 || v >= 6) continue;
              sum += static_cast<float>(xs[static_cast<size_t>((c * 5 + h) * 6 + v)]) *
                     static_cast<float>(ws[static_cast<size_t>(((o * 2 + c) * 3 + p) * 3 + q)]);
            }
          }
        }
        expected.push_back(sum);
      }
    }
  }
  Outcome out = run(b.finish({y}), {xs, ws});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAreArray(expected));
}

TEST(Interpret, ReductionsByEveryReducer) {
  FuncBuilder b("reductions");
  Buffer x = b.input("x", f32, {2, 3});
  std::vector<Buffer> results;
  for (Reducer r : {Reducer::sum, Reducer::product, Reducer::min, Reducer::max}) {
    results.push_back(b.reduce("y", f32, {2}, {3}, r, [&](Axes s, Axes k) { return load(x, {s[0], k[0]}); }));
  }
  for (Reducer r : {Reducer::any, Reducer::all}) {
    results.push_back(b.reduce("b", ElementType::boolean, {2}, {3}, r, [&](Axes s, Axes k) {
      return load(x, {s[0], k[0]}) > constant(f32, 2.5);
    }));
  }
  Outcome out = run(b.finish(results), {{1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.outputs, ElementsAre(ElementsAre(6, 15), ElementsAre(6, 120), ElementsAre(1, 4),
                                       ElementsAre(3, 6), ElementsAre(1, 1), ElementsAre(0, 1)));
}

TEST(Interpret, ScanOverTimeSteps) {
  FuncBuilder b("scan");
  Buffer x = b.input("x", f32, {4, 2});
  Buffer state = b.new_buffer("state", f32, {5, 2});
  b.block("start", {{"i", 2}}, [&](Axes i) { return Store::make(state, {0, i[0]}, constant(f32, 0)); });
  b.serial_loop("t", 4, [&](Expr t) {
    b.block("step", {{"i", 2}}, [&](Axes i) {
      return Store::make(state, {t + 1, i[0]},
                         load(state, {t, i[0]}) * constant(f32, 2) + load(x, {t, i[0]}));
    });
  });
  Buffer y = b.compute("y", f32, {2}, [&](Axes i) { return load(state, {4, i[0]}); });
  Outcome out = run(b.finish({y}), {{1, 0, 1, 0, 1, 1, 1, 1}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(15, 3));
}

// The reduction loop is split by a factor that does not divide it, and moved outwards.
TEST(Interpret, ScheduledReductionInitialisesOnce) {
  Outcome out = run(R"(
func f(x: f32[4, 10]) -> (y: f32[4]) {
  for ko in 3 {
    parallel for i in 4 {
      vectorized for ki in 4 {
        block y(a = i: spatial 4, k = ko * 4 + ki: reduce 10)
            where ko * 4 + ki < 10
            reads x[a, k]
            writes y[a] {
          init { y[a] = 100.0 }
          y[a] = y[a] + x[a, k]
        }
      }
    }
  }
})",
                    {Tensor(40, 0.5)});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(105, 105, 105, 105));
}

// ---- Errors ----

struct BadProgram {
  const char* name;
  const char* source;
  const char* message;
};
void PrintTo(const BadProgram& c, std::ostream* out) { *out << c.name; }

class Faulty : public ::testing::TestWithParam<BadProgram> {};

TEST_P(Faulty, IsReportedWithItsPlace) {
  const BadProgram& c = GetParam();
  Func f = parse(c.source);
  std::vector<Tensor> inputs;
  for (int i = 0; i < f.num_inputs(); ++i)
    inputs.emplace_back(static_cast<size_t>(count(f.params[static_cast<size_t>(i)], f, {})), 1.0);
  EXPECT_THAT(run(f, inputs, {}, {.max_steps = 1000}).error, HasSubstr(c.message));
}

const BadProgram kBadPrograms[] = {
    {"read_outside", "func f(x: f32[2, 3]) -> (y: f32[2]) { for i in 3 { y[0] = x[1, i + 1] } }",
     "f: x[1, 3] is outside of the buffer's shape [2, 3], in i = 2"},
    {"negative_index", "func f(x: f32[3]) -> (y: f32[3]) { for i in 3 { y[i] = x[i - 1] } }",
     "x[-1] is outside of the buffer's shape [3], in i = 0"},
    {"write_outside", "func f() -> (y: f32[3]) { y[3] = 1.0 }",
     "y[3] is outside of the buffer's shape [3], in the function's body"},
    {"block_is_named",
     "func f() -> (y: f32[3]) { for i in 4 { for j in 2 { block b(p = i: spatial 4, q = j: spatial 2) writes "
     "y[p] { "
     "y[p] = 1.0 } } } }",
     "y[3] is outside of the buffer's shape [3], in block b at p = 3, q = 0"},
    {"lane_outside", "func f(x: f32[6]) -> (y: f32[8]) { y[ramp(0, 1, 8)] = x[ramp(0, 1, 8)] }",
     "x[6] is outside of the buffer's shape [6]"},
    {"select_of_vector_reads_both",
     "func f(x: f32[4]) -> (y: f32[4]) { y[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(2, 4), "
     "x[ramp(0, 1, 4)], "
     "x[ramp(2, 1, 4)]) }",
     "x[4] is outside of the buffer's shape [4]"},
    {"unwritten_copy", "func f() -> (y: f32[3]) { alloc t: f32[2] alloc s: f32[2] s[0] = t[1] y[0] = s[0] }",
     "s[0] is read but was never written"},
    {"unwritten_to_output", "func f() -> (y: f32[3]) { alloc t: f32[2] y[ramp(0, 1, 2)] = t[ramp(0, 1, 2)] }",
     "t[0] is read but was never written"},
    {"unwritten", "func f() -> (y: f32[3]) { alloc t: f32[2, 3]  t[1, 1] = 1.0  y[0] = t[1, 2] }",
     "t[1, 2] is read but was never written"},
    {"unwritten_output", "func f() -> (y: f32[3]) { y[0] = y[1] }", "y[1] is read but was never written"},
    {"allocated_anew",
     "func f() -> (y: f32[3]) { for i in 2 { alloc t: f32[1] { if i == 0 { t[0] = 1.0 } y[i] = t[0] } } }",
     "t[0] is read but was never written, in i = 1"},
    {"axis_outside",
     "func f() -> (y: f32[9]) { for i in 4 { block b(p = i * 2: spatial 6) writes y[p] { y[p] = 1.0 } } }",
     "axis p = 6 is outside of its domain 0 .. 6, in block b at p = 6"},
    {"lanes_collide", "func f() -> (y: f32[3]) { y[ramp(0, 1, 4) // broadcast(2, 4)] = broadcast(1.0, 4) }",
     "lanes 0 and 1 both write y[0]"},
    {"steps", "func f() -> (y: f32[3]) { for i in 100 { for j in 100 { y[0] = 1.0 } } }",
     "the limit of steps is reached"},
    {"long_empty_loop", "func f() -> (y: f32[3]) { for i in 1000000000000 { if i < 0 { y[0] = 1.0 } } }",
     "the limit of steps is reached"},
    {"negative_shape",
     "func f(x: f32[1]) -> (y: f32[1]) { for i in 2 { alloc t: f32[0 - i] { y[0] = 1.0 } } }",
     "buffer t has the shape [-1]"},
    {"bits_of_floats", "func f() -> (y: f32[1]) { y[0] = 1.0 & 2.0 }", "& of f32"},
    {"log_of_int", "func f() -> (y: i64[1]) { y[0] = log(1) }", "log of i64"},
    {"unequal_bit_cast", "func f() -> (y: i64[1]) { y[0] = bit_cast<i64>(1.0) }", "bit_cast from f32 to i64"},
    {"write_write_race", "func f() -> (y: f32[3]) { parallel for i in 3 { y[i // 2] = 1.0 } }",
     "y[0] is written, and read or written by another iteration of parallel loop i, in i = 1"},
    {"read_write_race", "func f() -> (y: f32[3]) { y[0] = 1.0 parallel for i in 2 { y[i + 1] = y[i] } }",
     "y[1] is read, and written by another iteration of parallel loop i, in i = 1"},
    {"write_after_read_race",
     "func f(x: f32[3]) -> (y: f32[3]) { alloc t: f32[1] t[0] = 1.0 parallel for i in 3 { y[i] = t[0] if i "
     "== 2 { t[0] "
     "= x[i] } } }",
     "t[0] is written, and read or written by another iteration of parallel loop i, in i = 2"},
    {"inner_race", "func f() -> (y: f32[4]) { parallel for i in 2 { parallel for j in 2 { y[i] = 1.0 } } }",
     "another iteration of parallel loop j, in i = 0, j = 1"},
    {"outer_race", "func f() -> (y: f32[4]) { parallel for i in 2 { parallel for j in 2 { y[j] = 1.0 } } }",
     "another iteration of parallel loop i, in i = 1, j = 0"},
    {"private_buffer_carried_over",
     "func f() -> (y: f32[4]) { alloc t: f32[1] parallel for i in 4 { if i == 0 { t[0] = 1.0 } y[i] = t[0] } "
     "}",
     "t[0] is read, and written by another iteration of parallel loop i, in i = 1"},
};
INSTANTIATE_TEST_SUITE_P(Interpret, Faulty, ::testing::ValuesIn(kBadPrograms),
                         [](const auto& info) { return info.param.name; });

TEST(Interpret, UnboundVariablesAndBuffersAreErrors) {
  Buffer y("y", ElementType::i64, {1}), stray("stray", ElementType::i64, {1});
  Func f;
  f.name = "f";
  f.params = {y};
  f.num_outputs = 1;
  f.body = Store::make(y, {0}, Var("v"));
  EXPECT_THAT(run(f).error, HasSubstr("variable v is not bound here"));
  f.body = Store::make(y, {0}, load(stray, {0}));
  EXPECT_THAT(run(f).error, HasSubstr("buffer stray is neither a parameter nor allocated here"));
}

TEST(Interpret, RacesMayBeAllowed) {
  Func f = parse("func f() -> (y: f32[3]) { for k in 2 { parallel for i in 3 { y[i // 2] = 1.0 } } }");
  EXPECT_NE(run(f).error, "");
  EXPECT_EQ(run(f, {}, {}, {.detect_races = false}).error, "");
}

// Each iteration has its own t, and the loops run one after the other.
TEST(Interpret, PrivateBuffersAndSuccessiveLoopsDoNotRace) {
  Outcome out = run(R"(
func f(x: f32[6]) -> (y: f32[4]) {
  alloc t: f32[6]
  alloc s: f32[6]
  parallel for i in 6 { s[i] = x[i] }
  parallel for i in 4 {
    for k in 3 { t[i + k] = s[i + k] }
    y[i] = t[i] + t[i + 1] + t[i + 2]
  }
  parallel for i in 2 { parallel for j in 2 { y[i * 2 + j] = y[i * 2 + j] + s[0] } }
})",
                    {{1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(7, 10, 13, 16));
}

TEST(Interpret, GapsMayBeCopied) {
  Outcome out = run(R"(
func f(x: f32[3]) -> (y: f32[3]) {
  alloc t: f32[4]
  alloc s: f32[4]
  alloc r: f32[4]
  for i in 3 { t[i] = x[i] }
  for i in 4 { s[i] = t[i] }
  r[ramp(0, 1, 4)] = s[ramp(0, 1, 4)]
  for i in 3 { y[i] = r[i] }
})",
                    {{1, 2, 3}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(1, 2, 3));
}

TEST(Interpret, ScalarSelectAndPredicatesGuardLoads) {
  Outcome out = run(R"(
func f(x: f32[3]) -> (y: f32[5]) {
  for i in 5 { y[i] = select(i < 3, x[i], 7.0) + x[i; i < 3] }
})",
                    {{1, 2, 3}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(2, 4, 6, 7, 7));
}

// ---- Launches ----

// 4 threads reverse each row of 4; `between` stands between writing and reading.
std::string reverse_rows(const std::string& between) {
  return text(R"(func f(x: f32[2, 4]) -> (y: f32[2, 4]) {
  bound for b in 2 @{thread="block.x"} {
    alloc s: f32[4] shared {
      bound for t in 4 @{thread="thread.x"} {
        s[t] = x[b, t]
        )",
              between, R"(
        y[b, t] = s[3 - t]
      }
    }
  }
})");
}

TEST(InterpretLaunch, ThreadsShareMemoryBetweenBarriers) {
  Outcome out = run(parse(reverse_rows("evaluate barrier()")), {{1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(4, 3, 2, 1, 8, 7, 6, 5));
}

TEST(InterpretLaunch, ReportsRacesOfThreads) {
  EXPECT_THAT(run(parse(reverse_rows("")), {{1, 2, 3, 4, 5, 6, 7, 8}}).error,
              HasSubstr("s[3] is read but was never written"));
  Outcome out = run(parse(R"(func f(x: f32[4]) -> (y: f32[4]) {
  bound for t in 4 @{thread="thread.y"} {
    for i in 2 { y[(t + i) %% 4] = x[t] }
  }
})"),
                    {{1, 2, 3, 4}});
  EXPECT_THAT(out.error, HasSubstr("y[1] is written, and read or written by thread 0 with no barrier in between, by thread 1"));
}

TEST(InterpretLaunch, ReportsRacesOfBlocks) {
  Outcome out = run(parse(R"(func f(x: f32[4]) -> (y: f32[4]) {
  bound for b in 4 @{thread="block.x"} { bound for t in 1 @{thread="thread.x"} {
    y[b // 2] = x[b]
  } }
})"),
                    {{1, 2, 3, 4}});
  EXPECT_THAT(out.error, HasSubstr("y[0] is written, and read or written by another block of the launch"));
}

TEST(InterpretLaunch, ReportsDivergentBarriers) {
  Outcome out = run(parse(reverse_rows("if t < 2 { evaluate barrier() }")), {{1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_THAT(out.error, HasSubstr("a barrier in divergent control flow: thread 0 comes to it and thread 2 does not"));
  out = run(parse(reverse_rows("for k in t + 1 { evaluate barrier() }")), {{1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_THAT(out.error, HasSubstr("a barrier in divergent control flow"));
}

TEST(InterpretLaunch, ThreadsExchangeValues) {
  Outcome out = run(parse(R"(func f(x: f32[32]) -> (y: f32[32], z: f32[32], w: f32[32]) {
  bound for t in 32 @{thread="thread.x"} {
    alloc s: f32[1] local {
      s[0] = x[t]
      for k in 5 { s[0] = s[0] + select(k == 0, shuffle_xor(s[0], 1), select(k == 1, shuffle_xor(s[0], 2),
          select(k == 2, shuffle_xor(s[0], 4), select(k == 3, shuffle_xor(s[0], 8), shuffle_xor(s[0], 16))))) }
      y[t] = s[0]
      z[t] = shuffle_down(x[t], 3)
      let v = shuffle_xor(x[t], 1) { w[t] = v * 2.0 }
    }
  }
})"),
                    {Tensor{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                            17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}});
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.outputs[0], Tensor(32, 528));
  EXPECT_EQ(out.outputs[1][0], 4);
  EXPECT_EQ(out.outputs[1][28], 32);
  EXPECT_EQ(out.outputs[1][29], 30);
  EXPECT_EQ(out.outputs[2][4], 12);
}

TEST(InterpretLaunch, ReportsExchangesThatSomeMiss) {
  Outcome out = run(parse(R"(func f(x: f32[32]) -> (y: f32[32]) {
  bound for t in 32 @{thread="thread.x"} { if t < 30 { y[t] = shuffle_xor(x[t], 1) } }
})"),
                    {Tensor(32, 1)});
  EXPECT_THAT(out.error, HasSubstr("shuffle_xor by thread 0: thread 30 of the same warp does not take part"));
}

// A of 16 x 16 times B of 16 x 8, as fragments by their definition: each thread fetches its own part.
std::string matrix_product(const std::string& a_row, const std::string& b_row, const std::string& condition) {
  return text(R"(func f(x: f16[256], w: f16[128]) -> (y: f32[128]) {
  alloc a: f16[256] shared { alloc b: f16[128] shared {
    bound for g in 8 @{thread="thread.y"} { bound for t in 4 @{thread="thread.x"} {
      for k in 8 { a[k * 32 + g * 4 + t] = x[k * 32 + g * 4 + t] }
      for k in 4 { b[k * 32 + g * 4 + t] = w[k * 32 + g * 4 + t] }
      evaluate barrier()
      if )", condition, R"( {
      let fa = load_matrices(a[ramp()", a_row, R"(, 1, 8)], 4)
      let fb = load_matrices_transposed(b[ramp()", b_row, R"(, 1, 8)], 2)
      let c = mma_f16(fa, fb, broadcast(1.0, 4)) {
        y[g * 8 + t * 2] = shuffle(c; 0)
        y[g * 8 + t * 2 + 1] = shuffle(c; 1)
        y[g * 8 + t * 2 + 64] = shuffle(c; 2)
        y[g * 8 + t * 2 + 65] = shuffle(c; 3)
      }
      }
    } }
  } }
})");
}

TEST(InterpretLaunch, WarpsMultiplyMatrices) {
  Tensor x, w, want;
  for (int n = 0; n < 256; ++n)
    x.push_back(n % 7 - 3);
  for (int n = 0; n < 128; ++n)
    w.push_back(n % 5 - 2);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t k = 0; k < 16; ++k)
        sum += x[i * 16 + k] * w[k * 8 + j];
      want.push_back(sum);
    }
  }
  // Thread 8 m + r has row r of matrix m: of A rows 0 and 8, then the other half of k; of B the halves of k.
  const std::string a = "(g %% 2 * 4 + t + g // 2 %% 2 * 8) * 16 + g // 4 * 8", b = "(g %% 2 * 4 + t + g // 2 %% 2 * 8) * 8";
  Outcome out = run(parse(matrix_product(a, b, "g < 8")), {x, w});
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first(), want);
  // The second and the third matrix exchanged.
  out = run(parse(matrix_product("(g %% 2 * 4 + t + g // 4 * 8) * 16 + g // 2 %% 2 * 8", b, "g < 8")), {x, w});
  EXPECT_NE(out.first(), want);
  out = run(parse(matrix_product(a, b, "g < 7")), {x, w});
  EXPECT_THAT(out.error, HasSubstr("load_matrices by thread (0, 0): thread (7, 0) of the same warp does not take part"));
}

// Each thread copies an element, the statements, and takes its neighbour's.
std::string copied(const std::string& between) {
  return text(R"(func f(x: f32[4]) -> (y: f32[4]) {
  alloc s: f32[4] shared {
    bound for t in 4 @{thread="thread.x"} {
      evaluate async_copy(s[t], x[t])
      )", between, R"(
      y[t] = s[3 - t]
    }
  }
})");
}

TEST(InterpretLaunch, CopiesBesideTheThreadsAreThereAfterWaitAndBarrier) {
  auto outcome = [](const std::string& between) { return run(parse(copied(between)), {{1, 2, 3, 4}}); };
  Outcome out = outcome("evaluate async_commit() evaluate async_wait(0) evaluate barrier()");
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(outcome("evaluate async_commit() evaluate async_wait(1) evaluate barrier()").error,
              HasSubstr("s[3] is read but was never written"));
  EXPECT_THAT(outcome("evaluate async_wait(0) evaluate barrier()").error, HasSubstr("s[3] is read but was never written"));
  EXPECT_THAT(outcome("evaluate async_commit() evaluate barrier() evaluate async_wait(0)").error,
              HasSubstr("s[3] is read, and written by thread 3 with no barrier in between, by thread 0"));
  EXPECT_THAT(outcome("evaluate async_commit() evaluate async_wait(0)").error,
              HasSubstr("is read"));
}

// A of 64 x 16 times B of 16 x 8 by a warpgroup, both in squares of 8 x 8 elements: of A first those along k, then of the next rows;
// rows of B stand along its columns.
std::string warpgroup_product(const std::string& before, const std::string& product, const std::string& behind) {
  return text(R"(func f(x: f16[1024], w: f16[128]) -> (y: f32[512]) {
  alloc a: f16[1024] shared { alloc b: f16[128] shared {
    bound for z in 4 @{thread="thread.z"} { bound for g in 8 @{thread="thread.y"} { bound for t in 4 @{thread="thread.x"} {
      alloc c: f32[4] registers {
        for k in 8 {
          let at = z * 256 + g * 32 + t * 8 + k
          a[at // 16 // 8 * 128 + at %% 16 // 8 * 64 + at // 16 %% 8 * 8 + at %% 8] = x[at]
        }
        b[z * 32 + g * 4 + t] = w[z * 32 + g * 4 + t]
        c[0] = 1.0
        c[1] = 1.0
        c[2] = 1.0
        c[3] = 1.0
        )", before, R"(
        evaluate barrier()
        )", product, R"(
        )", behind, R"(
        y[z * 128 + g * 8 + t * 2] = c[0]
        y[z * 128 + g * 8 + t * 2 + 1] = c[1]
        y[z * 128 + g * 8 + t * 2 + 64] = c[2]
        y[z * 128 + g * 8 + t * 2 + 65] = c[3]
      }
    } } }
  } }
})");
}

TEST(InterpretLaunch, WarpgroupsMultiplyBesideTheThreads) {
  Tensor x, w, want;
  for (int n = 0; n < 1024; ++n)
    x.push_back(n % 7 - 3);
  for (int n = 0; n < 128; ++n)
    w.push_back(n % 5 - 2);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t k = 0; k < 16; ++k)
        sum += x[i * 16 + k] * w[k * 8 + j];
      want.push_back(sum);
    }
  }
  const std::string sums = "c[ramp(0, 1, 4)]", fence = "evaluate fence_async() ",
                    first = text("evaluate wgmma_fence(", sums, ") "),
                    multiply = text("evaluate wgmma_f16(", sums,
                                    ", a[0], 128, 64, 0, 0, b[0], 0, 64, 1, 0) evaluate wgmma_commit() "),
                    wait = text("evaluate wgmma_wait(", sums, ", 0) ");
  auto outcome = [&](const std::string& before, const std::string& product, const std::string& behind) {
    return run(parse(warpgroup_product(before, product, behind)), {x, w});
  };
  Outcome out = outcome(fence, first + multiply, wait);
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first(), want);
  // The sums are read too early, or changed; or the group is not the last but one.
  EXPECT_THAT(outcome(fence, first + multiply, "").error, HasSubstr("c[0] is read but was never written"));
  EXPECT_THAT(outcome(fence, first + multiply, text("evaluate wgmma_wait(", sums, ", 1)")).error,
              HasSubstr("c[0] is read but was never written"));
  EXPECT_THAT(outcome(fence, first + multiply, "c[1] = 0.0 " + wait).error,
              HasSubstr("c[1] is written while a product adds to it"));
  // An operand changes while it is read, before and behind a barrier.
  EXPECT_THAT(outcome(fence, first + multiply, "a[z * 256 + g * 32 + t * 8] = 0.0:f16 " + wait).error,
              HasSubstr("is written, and read or written by thread"));
  EXPECT_THAT(outcome(fence, first + multiply, "evaluate barrier() a[z * 256 + g * 32 + t * 8] = 0.0:f16 " + wait).error,
              HasSubstr("a[0] is written while a product reads it"));
  // Fences of both kinds.
  EXPECT_THAT(outcome("", first + multiply, wait).error, HasSubstr("has not said fence_async() since it wrote it"));
  EXPECT_THAT(outcome(fence, multiply, wait).error, HasSubstr("a product without wgmma_fence since the last wait"));
  // Some are elsewhere.
  EXPECT_THAT(outcome(fence, text(first, "if z < 3 { ", multiply, " }"), wait).error,
              HasSubstr("without all of its warpgroup of 128 threads"));
}

// A box of a matrix of 16 rows, of which the last rows are outside, in units that are exchanged by the row.
std::string bulk_copy(const std::string& fence, const std::string& bytes, const std::string& wait) {
  return text(R"(func f(x: f16[1024]) -> (y: f16[512]) {
    bound for b in 1 @{thread="block.x"} { alloc a: f16[512] shared align 1024 { alloc full: i64[1] shared {
      bound for t in 32 @{thread="thread.x"} {
        if t == 0 { evaluate bulk_init(full[0]) } )",
              fence, R"( if t == 0 {
          evaluate bulk_expect(full[0], )",
              bytes, R"()
          evaluate bulk_copy(full[0], a[0], 128, x[0], 64, 8, 64, 0, 12)
        } )",
              wait, R"( for k in 16 { y[k * 32 + t] = a[k * 32 + t] }
      } } } } })");
}

TEST(InterpretLaunch, CopiesBoxesBesideTheThreads) {
  Tensor x, want(512);
  for (int n = 0; n < 1024; ++n)
    x.push_back(n % 61 - 30);
  for (size_t n = 0; n < 512; ++n) {
    const size_t source = 12 * 64 + n;
    want[n ^ n / 64 % 8 * 8] = source < x.size() ? x[source] : 0;
  }
  const std::string fence = "evaluate fence_async() evaluate barrier()",
                    wait = "evaluate bulk_wait(full[0], 0)";
  auto outcome = [&](const std::string& before, const std::string& bytes, const std::string& behind) {
    return run(parse(bulk_copy(before, bytes, behind)), {x});
  };
  Outcome out = outcome(fence, "1024", wait);
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first(), want);
  EXPECT_THAT(outcome(fence, "1024", "").error, HasSubstr("a[0] is read but was never written"));
  EXPECT_THAT(outcome(fence, "2048", wait).error,
              HasSubstr("of 2048 bytes that were expected, 1024 are copied"));
  EXPECT_THAT(outcome(fence, "1024", "evaluate bulk_wait(full[0], 1)").error,
              HasSubstr("a wait for a phase that comes later"));
  EXPECT_THAT(outcome("evaluate barrier()", "1024", wait).error,
              HasSubstr("has not said fence_async() since bulk_init"));
  EXPECT_THAT(outcome("evaluate fence_async()", "1024", wait).error, HasSubstr("with no barrier in between"));
}

}  // namespace
}  // namespace mcc::tensor
