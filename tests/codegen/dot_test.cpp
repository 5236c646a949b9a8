// Dot products of bytes: the instruction, after tensorize and lowering, against the interpreter on the unscheduled function.
#include "codegen/compiled.h"
#include "tensor/instructions.h"
#include "tensor/passes/lower.h"

namespace mcc::codegen {
namespace {

// Sums of 4 rows and 2 vectors of columns, over 5 groups of four.
std::string product(int lanes, const std::string& body, bool is_exchanged) {
  return text("func dot(x: ", is_exchanged ? "i8" : "u8", "[4, 20], w: ", is_exchanged ? "u8" : "i8",
              "[2, 5, ", lanes, ", 4], z: i32[4, ", 2 * lanes, "]) -> (y: i32[4, ", 2 * lanes, "]) {\n", body,
              "}");
}

tensor::Func plain(int lanes, bool is_exchanged) {
  return parse(
      product(lanes,
              text("for i in 4 { for j in ", 2 * lanes,
                   " { for k in 20 { block y(a = i: spatial 4, b = j: spatial ", 2 * lanes,
                   ", c = k: reduce 20) { init { y[a, b] = z[a, b] } y[a, b] = y[a, b] + i32(x[a, c]) * "
                   "i32(w[b // ",
                   lanes, ", c // 4, b %% ", lanes, ", c %% 4]) } } } }\n"),
              is_exchanged));
}

tensor::Func scheduled(int lanes, const std::string& instruction) {
  tensor::Schedule s(plain(lanes, instruction.starts_with("dot4_i8u8")));
  auto must = [&](const tensor::Step& step) {
    tensor::Outcome outcome = s.apply(step);
    EXPECT_TRUE(static_cast<bool>(outcome)) << outcome.detail;
  };
  must(tensor::Split{"j", {2, lanes}, {}});
  must(tensor::Split{"k", {5, 4}, {}});
  must(tensor::Reorder{{"j.0", "k.0", "j.1", "k.1"}});
  must(tensor::DecomposeReduction{"y", "k.0"});
  must(tensor::Tensorize{"j.1", instruction});
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
  return all.find("dot4_u8i8(") != std::string::npos || all.find("dot4_i8u8(") != std::string::npos;
}

TEST(DotProducts, AreExactAtTheExtremes) {
  int used = 0;
  for (const tensor::Target& target : dot_targets()) {
    for (const auto& [lanes, name] : {std::pair{16, "dot4_u8i8_i32x16"},
                                      {8, "dot4_u8i8_i32x8"},
                                      {16, "dot4_i8u8_i32x16"},
                                      {8, "dot4_i8u8_i32x8"}}) {
      SCOPED_TRACE(text(target.name, ", ", name));
      tensor::Func f = plain(lanes, std::string_view(name).starts_with("dot4_i8u8")),
                   s = scheduled(lanes, name);
      const bool has = tensor::has_instruction(target, *tensor::find_instruction(name));
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
  for (const auto& [lanes, name, cpu] : {std::tuple{16, "dot4_u8i8_i32x16", "cpu:icelake-server"},
                                         {8, "dot4_u8i8_i32x8", "cpu:alderlake"},
                                         {16, "dot4_i8u8_i32x16", "cpu:icelake-server"},
                                         {8, "dot4_i8u8_i32x8", "cpu:alderlake"}}) {
    tensor::Func f = plain(lanes, std::string_view(name).starts_with("dot4_i8u8")),
                 lowered = tensor::lower(scheduled(lanes, name), *make_target(cpu));
    ASSERT_TRUE(uses_dot(lowered));
    for (int seed = 0; seed < 6; ++seed)
      expect_same_meaning(f, lowered, inputs(f, seed));
  }
}

}  // namespace
}  // namespace mcc::codegen
