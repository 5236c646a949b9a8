// Loads and stores of every pattern, element type and mask, against the interpreter.
#include <cstring>

#include "codegen/compiled.h"
#include "tensor/build.h"
#include "tensor/passes/lower.h"

namespace mcc::codegen {
namespace {

// Each index as text over the lane l and the step o of a loop; all stay below 2000 and are not negative.
const char* const kPatterns[] = {"o * 16 + l",        "o * 16 + 15 - l",  "o * 2",
                                 "o * 32 + 2 * l",    "o + 3 * l",        "4 * l + 7 * o",
                                 "o + 5 * l",         "150 - 3 * l",      "64 - 2 * l + o",
                                 "(o * 16 + l) // 2", "(o * 3 + l) %% 5", "l * l + o",
                                 "o * 4 + l // 4",    "o + l %% 4",       "o * 16 + (15 - l) // 2",
                                 "index[o * 16 + l]", "index[o] + l",     "index[o] + 2 * l + 1"};

class Access : public testing::TestWithParam<const char*> {};

tensor::Func with_block(const std::string& element, int lanes, const std::string& axes_where,
                        const std::string& body, int size) {
  return parse(text("func f(x: ", element, "[2000], m: bool[2000], index: i64[2000]) -> (y: ", element, "[",
                    size, "]) {\n", "  for p in ", size, " { block y.init(i = p: spatial ", size,
                    ") { y[i] = x[i] } }\n", "  for q in 5 { vectorized for v in ", lanes,
                    " { block y(o = q: spatial 5, l = v: spatial ", lanes, ")", axes_where, " { ", body,
                    " } } }\n}"));
}

void check(const std::string& element, const std::string& where, const std::string& body, int size) {
  for (const tensor::Target& target : test_targets()) {
    for (int lanes : {16, 8, 3}) {
      tensor::Func f = with_block(element, lanes, where, body, size);
      expect_same(f, f, target, random_memory(f, 11, 40));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Access, Loads) {
  for (const char* pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    check(GetParam(), "", text("y[o * 16 + l] = x[", pattern, "]"), 80);
    if (HasFailure()) return;
  }
}

TEST_P(Access, MaskedLoads) {
  for (const char* pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    check(GetParam(), " where q * 16 + v < 61", text("y[o * 16 + l] = x[", pattern, "]"), 80);
    check(GetParam(), "",
          text("y[o * 16 + l] = select(m[o * 16 + l], x[", pattern, "], ", GetParam(), "(1))"), 80);
    check(GetParam(), "",
          text("y[o * 16 + l] = select(l %% 2 == 0, x[", pattern, "], x[o * 8 + l // 2 + 1])"), 80);
    for (const char* lanes : {"l >= 1 && l < 6", "l < 13", "l >= 7"})
      check(GetParam(), "",
            text("y[o * 16 + l] = select(", lanes, ", x[", pattern, "], ", GetParam(), "(1))"), 80);
    if (HasFailure()) return;
  }
}

TEST_P(Access, Stores) {
  for (const char* pattern :
       {"o * 16 + l", "o * 16 + 15 - l", "o * 64 + 2 * l", "o + 5 * l", "79 - 5 * l - o"}) {
    SCOPED_TRACE(pattern);
    check(GetParam(), "", text("y[", pattern, "] = x[o * 3 + l]"), 300);
    check(GetParam(), " where q * 16 + v < 61", text("y[", pattern, "] = x[o * 3 + l]"), 300);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Access, testing::Values("f32", "f64", "f16", "i8", "u16", "bool", "i64"),
                         [](const auto& info) { return std::string(info.param); });

// What a scalar condition guards is not read when it does not hold: the index would be far outside.
TEST(Guards, LoadsUnderAScalarSelect) {
  tensor::Func f = parse(
      "func f(x: f32[10], n: i64[1]) -> (y: f32[30]) {\n"
      "  for p in 30 { block y(i = p: spatial 30) {\n"
      "    y[i] = select(i < n[0], exp(x[select(i < 10, i, i * 1000000000)]), 2.0) } } }");
  for (const tensor::Target& target : test_targets()) {
    Memory memory = random_memory(f, 1);
    int64_t limit = 10;
    std::memcpy(memory[1].data(), &limit, sizeof limit);
    for (size_t i = 0; i < 40; ++i)
      memory[0][i] = std::byte{0};
    expect_same(f, f, target, memory);
  }
}

// y[w, c, p] = x[c, 2 w + p] in a square of words.
tensor::Func words(const std::string& element) {
  return parse(
      text("func words(x: ", element, "[16, 32]) -> (y: ", element,
           "[16, 16, 2]) {\n  unrolled for w in 16 { unrolled for p in 2 { ",
           "vectorized for c in 16 { block y(a = w: spatial 16, b = c: spatial 16, q = p: spatial 2) { ",
           "y[a, b, q] = x[b, 2 * a + q] } } } }\n}"));
}

TEST(Words, MoveInTiles) {
  for (const char* element : {"bf16", "f16", "f32", "i8"}) {
    const tensor::Func f = words(element);
    for (const tensor::Target& target : test_targets())
      expect_same(f, f, target, random_memory(f, 3));
  }
}

// Of elements that lanes take twice, side by side.
TEST(Pairs, AreNotGathered) {
  const tensor::Target target = *make_target("cpu:x86-64-v4");
  const tensor::Func lowered = tensor::lower(
      with_block("f32", 16, "",
                 "y[o * 16 + l] = select(l %% 2 == 0, x[o * 8 + l // 2], x[o * 8 + l // 2 + 300])", 80),
      target);
  EmitOptions options;
  options.keep_assembly = true;
  const Result<ObjectCode> object = emit_object(lowered, "pairs", target, options);
  ASSERT_TRUE(object.ok()) << to_text(object.errors());
  EXPECT_EQ(object->assembly.find("gather"), std::string::npos) << object->assembly;
}

// Every second element, or fourth, for lanes from one on up to another.
TEST(Strides, OfSomeLanesAreNotGathered) {
  for (const char* pattern : {"o * 32 + 2 * l", "4 * l + 7 * o"}) {
    const tensor::Func f = with_block(
        "f32", 16, "", text("y[o * 16 + l] = select(l >= 2 && l < 13, x[", pattern, "], 0.0)"), 80);
    const tensor::Target target = *make_target("cpu:x86-64-v4");
    EmitOptions options;
    options.keep_llvm_ir = true;
    const Result<ObjectCode> object = emit_object(tensor::lower(f, target), "strided", target, options);
    ASSERT_TRUE(object.ok()) << to_text(object.errors());
    EXPECT_EQ(object->llvm_ir.find("masked.gather"), std::string::npos) << object->llvm_ir;
  }
}

// A byte's place in a table of all bytes.
tensor::Func look_up(const std::string& element, int lanes) {
  return parse(text("func look_up(x: u8[640], t: ", element, "[256]) -> (y: ", element,
                    "[640]) {\n  for o in ", 640 / lanes, " { vectorized for l in ", lanes,
                    " { block y(i = o * ", lanes, " + l: spatial 640) { y[i] = t[i64(x[i])] } } }\n}"));
}

TEST(Tables, OfBytes) {
  for (const char* element : {"u8", "i8", "bool", "f32"}) {
    for (int lanes : {2, 5, 16, 64, 128}) {
      const tensor::Func f = look_up(element, lanes);
      for (const tensor::Target& target : test_targets())
        expect_same(f, f, target, random_memory(f, 9, 256));
    }
  }
}

TEST(Tables, AreInRegisters) {
  EmitOptions options;
  options.keep_assembly = true;
  for (int lanes : {16, 64}) {
    const tensor::Target target = *make_target("cpu:sapphirerapids");
    const Result<ObjectCode> object =
        emit_object(tensor::lower(look_up("u8", lanes), target), "tables", target, options);
    ASSERT_TRUE(object.ok()) << to_text(object.errors());
    EXPECT_NE(object->assembly.find("vperm"), std::string::npos) << object->assembly;
    EXPECT_EQ(object->assembly.find("vpinsrb"), std::string::npos) << object->assembly;
  }
}

// What numbers of few bits in a word are as real ones.
tensor::Func few_bits(int lanes, int shift, int mask, const std::string& zero) {
  return parse(text("func few_bits(x: i32[320]) -> (y: f32[320]) {\n  for o in ", 320 / lanes,
                    " { vectorized for l in ", lanes, " { block y(i = o * ", lanes,
                    " + l: spatial 320) { y[i] = f32((x[i] >> ", shift, ":i32 & ", mask, ":i32)", zero,
                    ") } } }\n}"));
}

TEST(FewBits, AreWhatTheyAre) {
  for (int lanes : {1, 8, 16, 32}) {
    for (auto [shift, mask, zero] : {std::tuple{0, 15, ""},
                                     {28, 15, " - 8:i32"},
                                     {4, 3, " + 2:i32"},
                                     {9, 16, ""},
                                     {0, 15, " + 2147483647:i32"},
                                     {3, 10, " - 1:i32"}}) {
      const tensor::Func f = few_bits(lanes, shift, mask, zero);
      for (const tensor::Target& target : test_targets())
        expect_same(f, f, target, random_memory(f, 9, 1 << 30));
    }
  }
}

TEST(FewBits, AreLookedUpInRegisters) {
  EmitOptions options;
  options.keep_assembly = true;
  for (const char* zero : {"", " - 8:i32"}) {
    const Result<ObjectCode> object =
        emit_object(tensor::lower(few_bits(16, 8, 15, zero), *make_target("cpu:skylake-avx512")), "bits",
                    *make_target("cpu:skylake-avx512"), options);
    ASSERT_TRUE(object.ok()) << to_text(object.errors());
    EXPECT_NE(object->assembly.find("vperm"), std::string::npos) << object->assembly;
    for (const char* other : {"vcvtdq2ps", "vpand", "vpadd", "vpsub"})
      EXPECT_EQ(object->assembly.find(other), std::string::npos) << object->assembly;
  }
}

// What is narrow in memory is not widened on its way.
TEST(Words, StayNarrow) {
  const tensor::Target target = *make_target("cpu:sapphirerapids");
  const tensor::Func lowered = tensor::lower(words("bf16"), target);
  EXPECT_NE(to_text(lowered).find("shuffle"), std::string::npos);
  EmitOptions options;
  options.keep_assembly = true;
  const Result<ObjectCode> object = emit_object(lowered, "words", target, options);
  ASSERT_TRUE(object.ok()) << to_text(object.errors());
  for (const char* conversion : {"vpmovzxwd", "vcvtneps2bf16", "vpslld"})
    EXPECT_EQ(object->assembly.find(conversion), std::string::npos) << conversion;
}

TEST(Reductions, OfEveryWidth) {
  using namespace tensor;
  for (int64_t n : {2, 3, 5, 7, 8, 12, 16, 24, 31}) {
    FuncBuilder b("reductions");
    Buffer x = b.input("x", ElementType::i32, {3, n}), m = b.input("m", ElementType::boolean, {3, n});
    std::vector<Buffer> outputs;
    for (Reducer reducer :
         {Reducer::sum, Reducer::product, Reducer::min, Reducer::max, Reducer::any, Reducer::all}) {
      bool is_logical = reducer == Reducer::any || reducer == Reducer::all;
      const Buffer& from = is_logical ? m : x;
      outputs.push_back(b.reduce(text("r", outputs.size()), from.element(), {3}, {n}, reducer,
                                 [&](Axes s, Axes r) { return load(from, {s[0], r[0]}); }));
    }
    Func f = b.finish(outputs);
    Schedule schedule(f);
    for (const std::string& block : schedule.block_names()) {
      std::string loop = schedule.loop_names_of(block).back();
      for (const Step& step : {Step(DecomposeReduction{block, loop}), Step(Vectorize{loop})}) {
        Outcome outcome = schedule.apply(step);
        ASSERT_TRUE(outcome) << outcome.detail;
      }
    }
    for (const Target& target : test_targets())
      expect_same(f, schedule.func(), target, random_memory(f, 5));
  }
}

}  // namespace
}  // namespace mcc::codegen
