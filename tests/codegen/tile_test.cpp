// Products of tiles, after tensorize and lowering, against the interpreter on the unscheduled function.
#include <gmock/gmock.h>

#include "codegen/compiled.h"
#include "tensor/instructions.h"
#include "tensor/passes/lower.h"

namespace mcc::codegen {
namespace {

// Sums of 3 tiles of 7 rows and 2 of columns, over 12 groups of four bytes, in two steps.
tensor::Func plain() {
  return parse(R"(func product(x: u8[21, 48], w: i8[2, 12, 16, 4]) -> (y: i32[21, 32]) {
  for i in 21 { for j in 32 { for k in 12 { for b in 4 {
    block y(i = i: spatial 21, j = j: spatial 32, k = k: reduce 12, b = b: reduce 4) {
      init { y[i, j] = i32(0) }
      y[i, j] = y[i, j] + i32(x[i, k * 4 + b]) * i32(w[j // 16, k, j %% 16, b])
    }
  } } } }
})");
}

constexpr const char* kInstruction = "tile_u8i8_m7n16k24";

// rows: tiles of rows that are made together.
tensor::Func scheduled(int64_t rows, bool is_parallel) {
  tensor::Schedule s(plain());
  auto must = [&](const tensor::Step& step) {
    tensor::Outcome outcome = s.apply(step);
    EXPECT_TRUE(static_cast<bool>(outcome)) << outcome.detail;
  };
  must(tensor::Split{"i", {0, 7}, {"i.s", "i.r"}});
  must(tensor::Split{"i.s", {0, rows}, {"i.o", "i.t"}});
  must(tensor::Split{"j", {0, 16}, {"j.t", "j.c"}});
  must(tensor::Split{"k", {0, 6}, {"k.o", "k.i"}});
  must(tensor::Reorder{{"i.o", "k.o", "i.t", "j.t", "i.r", "j.c", "k.i", "b"}});
  if (is_parallel) must(tensor::Parallel{"i.o"});
  must(tensor::CacheWrite{"y", "y", "global", "copy"});
  must(tensor::ReverseComputeAt{"copy", "i.o"});
  must(tensor::SetScope{s.find_block("y")->writes[0].buffer.name(), "local"});
  must(tensor::DecomposeReduction{"y", "k.o"});
  must(tensor::Tensorize{"i.r", kInstruction});
  must(tensor::Unroll{"i.t"});
  must(tensor::Unroll{"j.t"});
  return s.func();
}

// Extremes everywhere, then anything.
Memory inputs(const tensor::Func& f, int seed) {
  Memory memory = random_memory(f, static_cast<uint64_t>(seed));
  if (seed == 0) {
    std::fill(memory[0].begin(), memory[0].end(), std::byte{255});
    std::fill(memory[1].begin(), memory[1].end(), std::byte{0x80});
  }
  return memory;
}

bool uses_tiles(const tensor::Func& f) {
  return tensor::to_text(f).find("tile_multiply_u8i8(") != std::string::npos;
}

TEST(TileProducts, AreExact) {
  const tensor::Func f = plain();
  std::vector<tensor::Target> targets = {*make_target("cpu:sapphirerapids")};
  if (!runs_here(targets[0])) targets = test_targets();
  for (const tensor::Target& target : targets) {
    for (int64_t rows : {1, 2, 3}) {
      for (bool is_parallel : {false, true}) {
        if (is_parallel && rows == 3) continue;  // one turn
        SCOPED_TRACE(text(target.name, ", ", rows, is_parallel ? " in parallel" : ""));
        tensor::Func s = scheduled(rows, is_parallel);
        EXPECT_EQ(uses_tiles(tensor::lower(s, target)),
                  tensor::has_instruction(target, *tensor::find_instruction(kInstruction)));
        for (int seed = 0; seed < 3; ++seed)
          expect_same(f, s, target, inputs(f, seed));
      }
    }
  }
}

// The lowered function, with tiles in it, means the same to the interpreter, and code for it can be made anywhere.
TEST(TileProducts, MeanTheSameToTheInterpreter) {
  const tensor::Target target = *make_target("cpu:sapphirerapids");
  const tensor::Func f = plain();
  for (int64_t rows : {1, 2, 3}) {
    tensor::Func lowered = tensor::lower(scheduled(rows, rows < 3), target);
    ASSERT_TRUE(uses_tiles(lowered));
    for (int seed = 0; seed < 3; ++seed)
      expect_same_meaning(f, lowered, inputs(f, seed));
    EmitOptions options;
    options.keep_assembly = true;
    const Result<ObjectCode> object = emit_object(lowered, "product", target, options);
    ASSERT_TRUE(object.ok()) << to_text(object.errors());
    for (const char* instruction :
         {"ldtilecfg", "tilezero", "tileloadd", "tdpbusd", "tilestored", "tilerelease"})
      EXPECT_THAT(object->assembly, testing::HasSubstr(instruction));
  }
}

}  // namespace
}  // namespace mcc::codegen
