#include "tensor/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "golden.h"
#include "tensor/build.h"

namespace mcc::tensor {
namespace {

using ::testing::HasSubstr;

constexpr ElementType f32 = ElementType::f32;

Func parse(const std::string& source) {
  Result<Func> f = parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors());
  return *f;
}

TEST(Text, EveryConstructReadsBackToTheLetter) {
  std::string source = read_file(test_data("tensor/data/text/tour.txt"));
  std::string printed = to_text(parse(source));
  EXPECT_EQ(printed, source.substr(source.find('\n') + 1));
  EXPECT_TRUE(structurally_equal(parse(printed), parse(source)));
}

TEST(Text, BuiltFunctionsReadBack) {
  FuncBuilder b("matmul");
  Var n = b.dim("n");
  Buffer x = b.input("x", f32, {n, 32}), w = b.input("w", f32, {32, 16});
  Buffer y = b.reduce("y", f32, {n, 16}, {32}, Reducer::sum,
                      [&](Axes s, Axes r) { return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
  Buffer z =
      b.compute("z", f32, {n, 16}, [&](Axes i) { return max(load(y, {i[0], i[1]}), constant(f32, 0)); });
  Func f = b.finish({z});
  std::string printed = to_text(f);
  Func again = parse(printed);
  EXPECT_EQ(to_text(again), printed);
  EXPECT_TRUE(structurally_equal(again, f)) << printed;
  EXPECT_EQ(structural_hash(again), structural_hash(f));
}

TEST(Text, NamesInSightAreToldApart) {
  Var outer("i"), inner("i");
  Buffer out("i", ElementType::i64, {4, 4});
  Func f;
  f.name = "names";
  f.params = {out};
  f.num_outputs = 1;
  f.body =
      For::make(outer, 0, 4, LoopKind::serial,
                For::make(inner, 0, 4, LoopKind::serial, Store::make(out, {outer, inner}, outer - inner)));
  std::string printed = to_text(f);
  EXPECT_THAT(printed, HasSubstr("i[i_1, i_2] = i_1 - i_2"));
  EXPECT_EQ(to_text(parse(printed)), printed);
}

TEST(Text, NamesDoNotMatterToEquality) {
  Func a = parse("func a(x: f32[4]) -> (y: f32[4]) { for i in 4 { y[i] = x[i] } }");
  Func b = parse("func b(p: f32[4]) -> (q: f32[4]) { for k in 4 { q[k] = p[k] } }");
  Func c = parse("func c(p: f32[4]) -> (q: f32[4]) { for k in 4 { p[k] = q[k] } }");
  EXPECT_TRUE(structurally_equal(a, b));
  EXPECT_EQ(structural_hash(a), structural_hash(b));
  EXPECT_FALSE(structurally_equal(a, c));
}

TEST(Text, FloatsReadBackExactly) {
  std::mt19937_64 random(1);
  Buffer out("y", ElementType::f64, {1});
  for (int trial = 0; trial < 2000; ++trial) {
    uint64_t bits = random();
    double wide = std::bit_cast<double>(bits);
    float narrow = std::bit_cast<float>(static_cast<uint32_t>(bits >> 7));
    for (auto [element, value] : {std::pair{ElementType::f64, wide},
                                  {f32, static_cast<double>(narrow)},
                                  {ElementType::bf16, static_cast<double>(narrow)},
                                  {ElementType::f16, wide / 1e300},
                                  {ElementType::f8e4m3, static_cast<double>(bits % 1000) / 7}}) {
      Expr e = constant(element, value);
      std::string source =
          "func f() -> (y: " + std::string(mcc::to_text(element)) + "[]) { y[] = " + to_text(e) + " }";
      Func f = parse(source);
      const Expr& back = f.body.as<Store>()->value;
      EXPECT_TRUE(structurally_equal(back, e) || (value != value)) << to_text(e) << " " << to_text(back);
    }
  }
}

TEST(Text, BareIntegersTakeTheTypeBesideThem) {
  Func f = parse(
      "func f(x: f32[4], k: i32[4]) -> (y: f32[4]) { y[k[0] + 1] = x[0] * 2 + select(k[1] > 0, 1, x[1]) }");
  EXPECT_THAT(to_text(f), HasSubstr("y[k[0] + 1:i32] = x[0] * 2.0 + select(k[1] > 0:i32, 1.0, x[1])"));
}

struct BadText {
  const char* source;
  const char* message;
};

TEST(Text, ErrorsNameThePlace) {
  const BadText cases[] = {
      {"func", "<text>:1:5: expected the function's name, got end of text"},
      {"func f() -> (y: f32[4]) {\n  y[0] = z\n}", "<text>:2:10: unknown name 'z'"},
      {"func f() -> (y: f32[4]) {\n  y[0] = 1.0 + 1:i32\n}", "<text>:2:14: '+' of f32 and i32"},
      {"func f() -> (y: f32[4]) { y[0, 1] = 1.0 }", "store to y with 2 indices, rank is 1"},
      {"func f() -> (y: f99[4]) { }", "<text>:1:17: unknown element type 'f99'"},
      {"func f() -> (y: f32[4]) { y[0] = foo(1.0) }", "unknown function 'foo'"},
      {"func f() -> (y: f32[4]) { y[0] = exp(1.0, 2.0) }", "exp takes 1 arguments, got 2"},
      {"func f() -> (y: f32[4]) { y[1 < 2 < 3] = 1.0 }", "comparisons do not chain: '<' before '<'"},
      {"func f() -> (y: f32[4]) { y[99999999999999999999] = 1.0 }", "is out of range"},
      {"func f() -> (y: f32[4]) { if 1 { } }", "if without a condition"},
      {"func f() -> (y: f32[4]) { y[0] = y }", "buffer 'y' without indices"},
      {"func f() -> (y: f32[4]) { y[0] = 1.0 ", "expected a statement, got end of text"},
      {"func f() -> (y: f32[4]) { y[0] = \x01 }", "unexpected character"},
      {"func f() -> (y: f32[4]) { y[0] = broadcast(1.0, 0) }", "a number of lanes outside 1 .. 65536"},
      {"func f() -> (y: f32[4]) { loop for i in 4 { } }", "expected a kind of loop, got 'loop'"},
      {"func f() -> (y: f32[4]) { } }", "expected the end of the text, got '}'"},
  };
  for (const BadText& bad : cases) {
    Result<Func> f = parse_func(bad.source);
    ASSERT_FALSE(f.ok()) << bad.source;
    EXPECT_THAT(to_text(f.errors()), HasSubstr(bad.message)) << bad.source;
  }
}

TEST(Text, DeepNestingIsAnError) {
  std::string source = "func f() -> (y: f32[4]) { y[0] = " + std::string(100000, '(') + "1.0";
  EXPECT_FALSE(parse_func(source).ok());
  std::string loops = "func f() -> (y: f32[4]) { ";
  for (int i = 0; i < 10000; ++i)
    loops += "for i in 4 { ";
  EXPECT_FALSE(parse_func(loops).ok());
}

TEST(Text, MutilatedTextNeverCrashes) {
  std::string source = read_file(test_data("tensor/data/text/tour.txt"));
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bad = source;
    for (int edit = 0; edit < 3; ++edit) {
      size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0:
          bad.erase(at, random() % 8);
          break;
        case 1:
          bad[at] = static_cast<char>(32 + random() % 95);
          break;
        default:
          bad.insert(at, source.substr(random() % source.size(), random() % 12));
      }
    }
    Result<Func> f = parse_func(bad);
    if (!f.ok()) continue;
    EXPECT_EQ(to_text(parse(to_text(*f))), to_text(*f));
  }
}

}  // namespace
}  // namespace mcc::tensor
