// Every operation on every element type, in every form of vector that the levels have, against the interpreter.
#include "codegen/compiled.h"

namespace mcc::codegen {
namespace {

const char* const kFloats[] = {"f64", "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1"};
const char* const kInts[] = {"i64", "i32", "i16", "i8", "i4", "i2", "u64", "u32", "u16", "u8", "u4", "u2"};

constexpr int kCount = 203;  // no multiple of any vector

// One statement an operation, each with its own output, over vectors of `lanes` and a tail.
tensor::Func elementwise(const std::string& inputs,
                         const std::vector<std::pair<std::string, std::string>>& outputs, int lanes) {
  std::string params, blocks;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [element, value] = outputs[i];
    params += text(i ? ", " : "", "y", i, ": ", element, "[", kCount, "]");
    blocks += text("for i", i, ".o in ", (kCount + lanes - 1) / lanes, " { ", lanes > 1 ? "vectorized " : "",
                   "for i", i, ".v in ", lanes, " { block b", i, "(i = i", i, ".o * ", lanes, " + i", i,
                   ".v: spatial ", kCount, ") where i", i, ".o * ", lanes, " + i", i, ".v < ", kCount, " { y",
                   i, "[i] = ", value, " } } }\n");
  }
  return parse("func f(" + inputs + ") -> (" + params + ") {\n" + blocks + "}");
}

void expect_operations(const std::string& inputs,
                       const std::vector<std::pair<std::string, std::string>>& outputs, uint64_t seed) {
  for (const tensor::Target& target : test_targets()) {
    for (int lanes : {1, target.lanes(32)}) {
      SCOPED_TRACE(text(target.name, ", ", lanes, " lanes"));
      tensor::Func f = elementwise(inputs, outputs, lanes);
      expect_same(f, f, target, random_memory(f, seed));
      if (testing::Test::HasFailure()) return;
    }
  }
}

class Floats : public testing::TestWithParam<const char*> {};
class Ints : public testing::TestWithParam<const char*> {};

TEST_P(Floats, Arithmetic) {
  std::string t = GetParam(),
              in = text("a: ", t, "[", kCount, "], b: ", t, "[", kCount, "], c: ", t, "[", kCount, "]");
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* op : {"+", "-", "*", "/", "%"})
    outputs.emplace_back(t, text("a[i] ", op, " b[i]"));
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    outputs.emplace_back("bool", text("a[i] ", op, " b[i]"));
  for (const char* name : {"sqrt", "abs", "floor", "ceil", "round", "trunc"})
    outputs.emplace_back(t, text(name, "(a[i])"));
  outputs.emplace_back(t, "min(a[i], b[i]) + max(a[i], c[i])");
  outputs.emplace_back(t, text("max(a[i], ", t, "(0.0))"));
  outputs.emplace_back("bool", "is_nan(a[i])");
  outputs.emplace_back("bool", "is_inf(a[i]) || is_nan(b[i])");
  outputs.emplace_back(t, "select(a[i] < b[i], c[i], a[i] * c[i])");
  expect_operations(in, outputs, 1);
}

TEST_P(Floats, FusedMultiplyAdd) {
  std::string t = GetParam(),
              in = text("a: ", t, "[", kCount, "], b: ", t, "[", kCount, "], c: ", t, "[", kCount, "]");
  expect_operations(in, {{t, "fma(a[i], b[i], c[i])"}, {t, "mul_sum(a[i], b[i], c[i])"}}, 2);
}

TEST_P(Floats, ConvertToEveryType) {
  std::string t = GetParam();
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* to : kFloats)
    outputs.emplace_back(to, text(to, "(a[i])"));
  for (const char* to : kInts)
    outputs.emplace_back(to, text(to, "(a[i])"));
  outputs.emplace_back("bool", "bool(a[i])");
  expect_operations(text("a: ", t, "[", kCount, "]"), outputs, 3);
}

// As quantised operators do it, with numbers halfway between two integers, beyond all limits, and no numbers.
TEST(Bytes, OfWhatIsRounded) {
  const std::string in = text("a: f32[", kCount, "], b: f16[", kCount, "]");
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* to : {"u8", "i8"}) {
    for (const char* value :
         {"a[i]", "a[i] * 1000.0", "f32(b[i]) * 0.5", "f32(i) * 0.5 - 37.5", "a[i] / 0.0"}) {
      const std::string rounded = text("round(", value, ")");
      for (const std::string& result :
           {rounded, text(rounded, " + 7.0"), text("max(min(", rounded, " + -100.0, 255.0), 0.0)"),
            text("max(min(", rounded, " + 13.0, 127.0), -128.0)"),
            text("min(max(", rounded, ", 17.0), 90.0)"), text("max(", rounded, " + 3.0, -3.0)"),
            text("max(", rounded, " + 0.5, -2.5)"), text("min(", rounded, ", -5.0)"),
            text("max(min(", rounded, " + 1.0, -7.0), 2.0)")}) {
        const std::string bytes = text(to, "(", result, ")");
        outputs.emplace_back(to, bytes);
        // Bytes that are widened at once.
        outputs.emplace_back("i32", text("i32(", bytes, ") - 7"));
        outputs.emplace_back("i16", text("i16(", bytes, ")"));
        outputs.emplace_back("u64", text("u64(", bytes, ")"));
      }
    }
  }
  expect_operations(in, outputs, 8);
}

TEST_P(Ints, Arithmetic) {
  std::string t = GetParam(), in = text("a: ", t, "[", kCount, "], b: ", t, "[", kCount, "]");
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* op : {"+", "-", "*", "/", "%", "//", "%%", "&", "|", "^"})
    outputs.emplace_back(t, text("a[i] ", op, " b[i]"));
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    outputs.emplace_back("bool", text("a[i] ", op, " b[i]"));
  for (const char* op : {"/", "%", "//", "%%"}) {
    for (const char* by : {"3", "4", "7", "1"})
      outputs.emplace_back(t, text("a[i] ", op, " ", t, "(", by, ")"));
  }
  outputs.emplace_back(t, text("a[i] << (b[i] & ", t, "(3))"));
  outputs.emplace_back(t, text("a[i] >> (b[i] & ", t, "(3))"));
  outputs.emplace_back(t, "min(a[i], b[i])");
  outputs.emplace_back(t, "max(a[i], b[i])");
  outputs.emplace_back(t, "abs(a[i])");
  outputs.emplace_back(t, "bit_not(a[i])");
  outputs.emplace_back(t, "popcount(a[i])");
  expect_operations(in, outputs, 4);
}

TEST_P(Ints, ConvertToEveryType) {
  std::string t = GetParam();
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* to : kFloats)
    outputs.emplace_back(to, text(to, "(a[i])"));
  for (const char* to : kInts)
    outputs.emplace_back(to, text(to, "(a[i])"));
  outputs.emplace_back("bool", "bool(a[i])");
  expect_operations(text("a: ", t, "[", kCount, "]"), outputs, 5);
}

std::string name_of(const testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Types, Floats, testing::ValuesIn(kFloats), name_of);
INSTANTIATE_TEST_SUITE_P(Types, Ints, testing::ValuesIn(kInts), name_of);

TEST(Operations, Bool) {
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* op : {"&&", "||", "==", "!=", "^", "&", "|"})
    outputs.emplace_back("bool", text("a[i] ", op, " b[i]"));
  outputs.emplace_back("bool", "logical_not(a[i])");
  for (const char* to : {"f32", "f16", "i64", "u8", "f64"})
    outputs.emplace_back(to, text(to, "(a[i])"));
  expect_operations(text("a: bool[", kCount, "], b: bool[", kCount, "]"), outputs, 6);
}

TEST(Operations, BitCast) {
  expect_operations(
      text("a: f32[", kCount, "], b: i64[", kCount, "], c: f16[", kCount, "]"),
      {{"i32", "bit_cast<i32>(a[i])"}, {"f64", "bit_cast<f64>(b[i])"}, {"u16", "bit_cast<u16>(c[i])"}}, 7);
}

// A format without 0 and signs: what operations make of its numbers is rounded to it.
TEST(Operations, PowersOfTwo) {
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* op : {"+", "*", "/"})
    outputs.emplace_back("f8e8m0", text("p[i] ", op, " q[i]"));
  outputs.emplace_back("u8", "bit_cast<u8>(p[i])");
  outputs.emplace_back("f8e8m0", "bit_cast<f8e8m0>(u[i])");
  for (const char* to : {"f64", "f32", "f16", "f8e5m2", "f4e2m1", "i32", "u8", "bool"})
    outputs.emplace_back(to, text(to, "(bit_cast<f8e8m0>(u[i]))"));
  for (const char* from : {"a", "b", "c", "u"})
    outputs.emplace_back("f8e8m0", text("f8e8m0(", from, "[i])"));
  std::string in;
  for (const char* input : {"p: f8e8m0", "q: f8e8m0", "u: u8", "a: f32", "b: f64", "c: f16"})
    in += text(in.empty() ? "" : ", ", input, "[", kCount, "]");
  expect_operations(in, outputs, 8);
}

TEST(Operations, EveryPatternOfABytesFloats) {
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* t : {"f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"})
    outputs.emplace_back("f32", text("f32(bit_cast<", t, ">(u[i]))"));
  outputs.emplace_back("f32", "f32(bit_cast<f4e2m1>(u4(u[i])))");
  expect_operations(text("u: u8[", kCount, "]"), outputs, 9);
}

}  // namespace
}  // namespace mcc::codegen
