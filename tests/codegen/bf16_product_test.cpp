// Dot products and tiles of bf16: the instructions, after tensorize and lowering, against the interpreter on the unscheduled function.
// Operands are small integers, whose sums are exact in any order.
#include <gmock/gmock.h>

#include <bit>
#include <cstring>

#include "codegen/compiled.h"
#include "tensor/instructions.h"
#include "tensor/passes/lower.h"

namespace mcc::codegen {
namespace {

// Sums of 3 tiles of 7 rows and 2 of columns, over 12 pairs.
tensor::Func plain() {
  return parse(R"(func product(x: bf16[21, 24], w: bf16[2, 12, 16, 2]) -> (y: f32[21, 32]) {
  for i in 21 { for j in 32 { for k in 12 { for b in 2 {
    block y(i = i: spatial 21, j = j: spatial 32, k = k: reduce 12, b = b: reduce 2) {
      init { y[i, j] = f32(0) }
      y[i, j] = y[i, j] + f32(x[i, k * 2 + b]) * f32(w[j // 16, k, j %% 16, b])
    }
  } } } }
})");
}

constexpr const char* kDot = "dot2_bf16_f32x16";
constexpr const char* kTile = "tile_bf16_m7n16k12";

void must(tensor::Schedule& s, const tensor::Step& step) {
  tensor::Outcome outcome = s.apply(step);
  EXPECT_TRUE(static_cast<bool>(outcome)) << outcome.detail;
}

tensor::Func in_vectors() {
  tensor::Schedule s(plain());
  must(s, tensor::Split{"j", {2, 16}, {}});
  must(s, tensor::Reorder{{"j.0", "k", "j.1", "b"}});
  must(s, tensor::DecomposeReduction{"y", "k"});
  must(s, tensor::Tensorize{"j.1", kDot});
  return s.func();
}

tensor::Func in_tiles() {
  tensor::Schedule s(plain());
  must(s, tensor::Split{"i", {0, 7}, {"i.t", "i.r"}});
  must(s, tensor::Split{"j", {0, 16}, {"j.t", "j.c"}});
  must(s, tensor::Split{"k", {0, 6}, {"k.o", "k.i"}});
  must(s, tensor::Reorder{{"i.t", "k.o", "j.t", "i.r", "j.c", "k.i", "b"}});
  must(s, tensor::DecomposeReduction{"y", "k.o"});
  must(s, tensor::Tensorize{"i.r", kTile});
  must(s, tensor::Unroll{"j.t"});
  return s.func();
}

// From -64 to 63.
Memory inputs(const tensor::Func& f, int seed) {
  Memory memory = random_memory(f, static_cast<uint64_t>(seed));
  uint32_t state = 17U + static_cast<uint32_t>(seed);
  for (size_t i : {0, 1}) {
    for (size_t at = 0; at < memory[i].size(); at += 2) {
      state = state * 1664525U + 1013904223U;
      const auto number = static_cast<float>(static_cast<int>(state >> 25) - 64);
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
      std::memcpy(memory[i].data() + at, &bits, sizeof bits);
    }
  }
  return memory;
}

bool has(const tensor::Func& f, const std::string& what) {
  return tensor::to_text(f).find(what) != std::string::npos;
}

TEST(Bf16Products, AreExactWhereSumsAre) {
  std::vector<tensor::Target> targets = test_targets();
  for (const char* name : {"cpu:znver4", "cpu:sapphirerapids"}) {
    Result<tensor::Target> target = make_target(name);
    if (target.ok() && runs_here(*target)) targets.push_back(*target);
  }
  const tensor::Func f = plain();
  for (const tensor::Target& target : targets) {
    for (const auto& [scheduled, name, call] :
         {std::tuple{in_vectors(), kDot, "dot2_bf16("}, {in_tiles(), kTile, "tile_multiply_bf16("}}) {
      SCOPED_TRACE(text(target.name, ", ", name));
      EXPECT_EQ(has(tensor::lower(scheduled, target), call),
                tensor::has_instruction(target, *tensor::find_instruction(name)));
      for (int seed = 0; seed < 3; ++seed)
        expect_same(f, scheduled, target, inputs(f, seed));
    }
  }
}

// The lowered functions mean the same to the interpreter, and code for them can be made anywhere.
TEST(Bf16Products, MeanTheSameToTheInterpreter) {
  const tensor::Target target = *make_target("cpu:sapphirerapids");
  const tensor::Func f = plain();
  // A pair for all lanes comes from memory in the instruction itself.
  for (const auto& [scheduled, call, instruction] :
       {std::tuple{in_vectors(), "dot2_bf16(", "vdpbf16ps[^\n]*1to16"},
        {in_tiles(), "tile_multiply_bf16(", "tdpbf16ps"}}) {
    const tensor::Func lowered = tensor::lower(scheduled, target);
    ASSERT_TRUE(has(lowered, call));
    for (int seed = 0; seed < 3; ++seed)
      expect_same_meaning(f, lowered, inputs(f, seed));
    EmitOptions options;
    options.keep_assembly = true;
    const Result<ObjectCode> object = emit_object(lowered, "product", target, options);
    ASSERT_TRUE(object.ok()) << to_text(object.errors());
    EXPECT_THAT(object->assembly, testing::ContainsRegex(instruction));
  }
}

}  // namespace
}  // namespace mcc::codegen
