// Dot products of integers: the instruction, after tensorize and lowering, against the interpreter on the unscheduled function.
#include <algorithm>

#include "codegen/compiled.h"
#include "codegen/replayed.h"
#include "tensor/build.h"
#include "tensor/instructions.h"
#include "tensor/passes/lower.h"

namespace mcc::codegen {
namespace {

struct Form {
  const char* instruction;
  int lanes;
  const char *left, *right;
  int parts;        // of a word of the left side
  const char* cpu;  // one that has the instruction
};

constexpr Form kForms[] = {{"dot4_u8i8_i32x16", 16, "u8", "i8", 4, "cpu:icelake-server"},
                           {"dot4_u8i8_i32x8", 8, "u8", "i8", 4, "cpu:alderlake"},
                           {"dot4_i8u8_i32x16", 16, "i8", "u8", 4, "cpu:icelake-server"},
                           {"dot4_i8u8_i32x8", 8, "i8", "u8", 4, "cpu:alderlake"},
                           {"dot2_i16i8_i32x16", 16, "i16", "i8", 2, "cpu:skylake-avx512"},
                           {"dot2_i16i8_i32x8", 8, "i16", "i8", 2, "cpu:haswell"},
                           {"dot2_i16i8_i32x4", 4, "i16", "i8", 2, "cpu:x86-64-v2"}};

// Sums of 4 rows and 2 vectors of columns, over 20 products.
tensor::Func plain(const Form& form) {
  const int columns = 2 * form.lanes, words = 20 / form.parts;
  return parse(text(
      "func dot(x: ", form.left, "[4, 20], w: ", form.right, "[2, ", words, ", ", form.lanes, ", ",
      form.parts, "], z: i32[4, ", columns, "]) -> (y: i32[4, ", columns, "]) {\n", "for i in 4 { for j in ",
      columns, " { for k in 20 { block y(a = i: spatial 4, b = j: spatial ", columns,
      ", c = k: reduce 20) { init { y[a, b] = z[a, b] } y[a, b] = y[a, b] + i32(x[a, c]) * i32(w[b // ",
      form.lanes, ", c // ", form.parts, ", b %% ", form.lanes, ", c %% ", form.parts, "]) } } } }\n}"));
}

tensor::Func scheduled(const Form& form) {
  tensor::Schedule s(plain(form));
  auto must = [&](const tensor::Step& step) {
    tensor::Outcome outcome = s.apply(step);
    EXPECT_TRUE(static_cast<bool>(outcome)) << outcome.detail;
  };
  must(tensor::Split{"j", {2, form.lanes}, {}});
  must(tensor::Split{"k", {20 / form.parts, form.parts}, {}});
  must(tensor::Reorder{{"j.0", "k.0", "j.1", "k.1"}});
  must(tensor::DecomposeReduction{"y", "k.0"});
  must(tensor::Tensorize{"j.1", form.instruction});
  return s.func();
}

// Every pair of extremes, in every place of a group; then anything. Initial sums so large that some sums wrap.
Memory inputs(const tensor::Func& f, int seed) {
  Memory memory = random_memory(f, static_cast<uint64_t>(seed));
  if (seed == 0) {
    std::fill(memory[0].begin(), memory[0].end(), std::byte{255});
    std::fill(memory[1].begin(), memory[1].end(), std::byte{0x80});
  } else if (seed == 1) {
    for (size_t i = 0; i < memory[0].size(); ++i)
      memory[0][i] = std::byte(i % 3 == 0 ? 255 : i % 3 == 1 ? 128 : 127);
    for (size_t i = 0; i < memory[1].size(); ++i)
      memory[1][i] = std::byte(i % 5 < 2 ? 0x80 : 0x7f);
  }
  return memory;
}

std::vector<tensor::Target> dot_targets() {
  std::vector<tensor::Target> targets = test_targets();
  for (const char* name : {"cpu", "cpu:alderlake", "cpu:icelake-server", "cpu:znver4"}) {
    Result<tensor::Target> target = make_target(name);
    if (target.ok() && runs_here(*target)) targets.push_back(*target);
  }
  return targets;
}

bool uses_dot(const tensor::Func& f) {
  const std::string all = tensor::to_text(f);
  return std::any_of(std::begin(kForms), std::end(kForms), [&](const Form& form) {
    const std::string_view name = form.instruction;
    return all.find(text(name.substr(0, name.rfind('_')), "(")) != std::string::npos;
  });
}

TEST(DotProducts, AreExactAtTheExtremes) {
  int used = 0;
  for (const tensor::Target& target : dot_targets()) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(text(target.name, ", ", form.instruction));
      tensor::Func f = plain(form), s = scheduled(form);
      const bool has = tensor::has_instruction(target, *tensor::find_instruction(form.instruction));
      EXPECT_EQ(uses_dot(tensor::lower(s, target)), has);
      used += has;
      for (int seed = 0; seed < 6; ++seed)
        expect_same(f, s, target, inputs(f, seed));
    }
  }
  std::cout << used << " targets and lengths with the instruction\n";
}

// The lowered function, with the intrinsic in it, means the same to the interpreter.
TEST(DotProducts, MeanTheSameToTheInterpreter) {
  for (const Form& form : kForms) {
    tensor::Func f = plain(form), lowered = tensor::lower(scheduled(form), *make_target(form.cpu));
    ASSERT_TRUE(uses_dot(lowered)) << form.instruction;
    for (int seed = 0; seed < 6; ++seed)
      expect_same_meaning(f, lowered, inputs(f, seed));
  }
}

// Bytes that the function makes by a mask, and products of four of them with signed ones.
struct Masked {
  tensor::Func plain, scheduled;
};

Masked masked(int64_t mask) {
  using namespace tensor;
  FuncBuilder b("product");
  Buffer x = b.input("x", ElementType::i8, {3, 20});
  Buffer w = b.input("w", ElementType::u8, {5, 8, 4});
  Buffer bits = b.compute("bits", ElementType::u8, {5, 8, 4}, [&](Axes i) {
    return binary(BinaryOp::bit_and, load(w, {i[0], i[1], i[2]}), constant_int({ElementType::u8, 1}, mask));
  });
  auto wide = [](const Expr& e) { return cast(ElementType::i32, e); };
  Buffer y = b.reduce("y", ElementType::i32, {3, 8}, {5, 4}, Reducer::sum, [&](Axes s, Axes r) {
    return wide(load(x, {s[0], r[0] * 4 + r[1]})) * wide(load(bits, {r[0], s[1], r[1]}));
  });
  Masked out{b.finish({y}), {}};
  out.scheduled = replayed(out.plain, R"(reorder(loops=["y.i0", "y.r0", "y.i1", "y.r1"])
decompose_reduction(block="y", loop="y.r0")
tensorize(loop="y.i1", instruction="dot4_i8u8_i32x8")
)")
                      .func();
  return out;
}

// Where no sum of two products can saturate, the instruction that saturates them takes their place.
TEST(DotProducts, OfSmallBytesAreSummedInPairs) {
  const tensor::Target target = *make_target("cpu:haswell");
  for (const auto& [mask, is_small] : {std::pair{15, true}, {127, true}, {128, false}, {255, false}}) {
    const Masked product = masked(mask);
    EmitOptions options;
    options.keep_assembly = true;
    const Result<ObjectCode> object =
        emit_object(tensor::lower(product.scheduled, target), "product", target, options);
    ASSERT_TRUE(object.ok()) << to_text(object.errors());
    EXPECT_EQ(object->assembly.find("vpmaddubsw") != std::string::npos, is_small) << mask;
    if (!runs_here(target)) continue;
    for (int seed = 0; seed < 4; ++seed) {
      Memory memory = random_memory(product.plain, static_cast<uint64_t>(seed));
      if (seed < 2) {
        std::fill(memory[0].begin(), memory[0].end(), std::byte(seed == 0 ? 0x80 : 0x7f));
        std::fill(memory[1].begin(), memory[1].end(), std::byte{255});
      }
      expect_same(product.plain, product.scheduled, target, memory);
    }
  }
}

}  // namespace
}  // namespace mcc::codegen
