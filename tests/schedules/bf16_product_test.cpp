// Products of bf16 on CPUs under the rules: results, and the instruction where the target has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/optimized_kernels.h"
#include "schedules/word_products.h"
#include "tuner/default_schedule.h"
#include "tuner/sketches.h"
#include "tuner/space.h"

namespace mcc::test {
namespace {

using tensor::Func;
using tensor::Target;

constexpr const char* kProducts[] = {
    R"(graph g(%a: f32[32, 64]) {
  %b: f32[64, 96] random
  %y = MatMul(%a, %b)
  return %y
})",
    // Rows that no tile divides, columns that are no whole vectors, two results of which one is read in bf16.
    R"(graph g(%a: f32[2, 37, 48]) {
  %b: f32[48, 50] random
  %c: f32[50] random
  %d: f32[50, 64] random
  %m = MatMul(%a, %b)
  %s = Add(%m, %c)
  %r = Relu(%s)
  %y = MatMul(%r, %d)
  return %y, %r
})",
    R"(graph g(%a: f32[1, 64]) {
  %b: f32[128, 64] random
  %c: f32[128] random
  %y = Gemm(%a, %b, %c) {transB = 1}
  return %y
})",
    // Windows with padding and a stride; a residual; columns that are no whole vectors.
    R"(graph g(%x: f32[1, 32, 9, 14]) {
  %w: f32[48, 32, 3, 3] random
  %b: f32[48] random
  %v: f32[32, 48, 1, 1] random
  %c = Conv(%x, %w, %b) {pads = [1, 1, 1, 1]}
  %r = Relu(%c)
  %d = Conv(%r, %v)
  %s = Add(%d, %x)
  %y = Relu(%s)
  return %y
})",
    R"(graph g(%x: f32[2, 16, 15, 28]) {
  %w: f32[24, 16, 3, 3] random
  %v: f32[40, 24, 1, 1] random
  %c = Conv(%x, %w) {pads = [1, 1, 1, 1], strides = [2, 2]}
  %y = Conv(%c, %v)
  return %y
})",
    // An image's three channels, which are filled up; few channels, whose words are one axis with a row's taps.
    R"(graph g(%x: f32[1, 3, 12, 32]) {
  %w: f32[32, 3, 5, 5] random
  %v: f32[16, 32, 1, 1] random
  %u: f32[24, 16, 3, 3] random
  %c = Conv(%x, %w) {pads = [2, 2, 2, 2], strides = [2, 2]}
  %d = Conv(%c, %v)
  %y = Conv(%d, %u)
  return %y
})",
    // Lines that no tile divides.
    R"(graph g(%x: f32[1, 32, 9, 19]) {
  %w: f32[32, 32, 3, 3] random
  %b: f32[32] random
  %c = Conv(%x, %w, %b) {pads = [1, 1, 1, 1]}
  %y = Relu(%c)
  return %y
})",
    R"(graph g(%x: f32[2, 16, 22]) {
  %w: f32[32, 16, 3] random
  %y = Conv(%x, %w) {dilations = [2]}
  return %y
})",
};

constexpr Machine kMachines[] = {{"avx512bf16", "+avx2,+avx512bf16,+avx512f", 512, 32, true},
                                 {"amx", "+amx-bf16,+amx-tile,+avx2,+avx512bf16,+avx512f", 512, 32, true}};

class Bf16Product : public ::testing::TestWithParam<std::tuple<const char*, Machine>> {};

// Sums are the same but for their order; what is rounded to bf16 behind them may be its neighbour.
constexpr double kTolerance = 0x1p-7;

TEST_P(Bf16Product, IsRightAtAnyPointOfTheSpace) {
  const auto& [source, machine] = GetParam();
  const Target target = target_of(machine);
  bool used = false;
  for (const Func& f : kernels_of(source, target, ElementType::bf16)) {
    tensor::Schedule schedule = tuner::default_schedule(f, target);
    SCOPED_TRACE(text(to_text(f), to_text(schedule.trace())));
    const std::vector<graph::Constant> want = run(f, f);
    const Func lowered = tensor::lower(schedule.func(), target);
    EXPECT_TRUE(verify(lowered, tensor::Stage::lowered).empty());
    graph::test::expect_close(run(lowered, f), want, kTolerance);
    used |= has_dot(lowered);
    expect_right_at_points(f, target, 4, kTolerance);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(used);
}

INSTANTIATE_TEST_SUITE_P(All, Bf16Product,
                         ::testing::Combine(::testing::ValuesIn(kProducts), ::testing::ValuesIn(kMachines)),
                         [](const auto& info) {
                           return text("p", info.index / std::size(kMachines), "_",
                                       std::get<1>(info.param).name);
                         });

TEST(Bf16Products, AreTiles) {
  const Target target = target_of(kMachines[1]);
  std::string all;
  for (const Func& f : kernels_of(kProducts[0], target, ElementType::bf16))
    all += to_text(tensor::lower(tuner::default_schedule(f, target).func(), target));
  EXPECT_THAT(all, testing::HasSubstr("tile_multiply_bf16("));
  EXPECT_THAT(all, testing::Not(testing::HasSubstr("tile_product_bf16(")));
}

// Models of bf16 need not ask for it.
TEST(Bf16Products, AreThoseOfModelsOfBf16) {
  const Target target = target_of(kMachines[0]);
  std::string all;
  for (const Func& f : kernels_of(R"(graph g(%a: bf16[32, 64]) {
  %b: bf16[64, 96] random
  %y = MatMul(%a, %b)
  return %y
})",
                                  target))
    all += to_text(tensor::lower(tuner::default_schedule(f, target).func(), target));
  EXPECT_THAT(all, testing::HasSubstr("dot2_bf16("));
}

// Lines of 3, which are too short for tiles, stay in f32 where there are tiles: dot products are slower there.
TEST(Bf16Products, AreLeftOutWhereNoTilesFit) {
  for (const Machine& machine : kMachines) {
    for (const int width : {3, 17}) {
      bool is_narrow = false;
      for (const Func& f : kernels_of(text("graph g(%x: f32[1, 32, 17, ", width, R"(]) {
  %w: f32[48, 32, 3, 3] random
  %y = Conv(%x, %w) {pads = [1, 1, 1, 1]}
  return %y
})"),
                                      target_of(machine), ElementType::bf16))
        is_narrow |= to_text(f).find("bf16") != std::string::npos;
      EXPECT_EQ(is_narrow, width == 17 || std::string(machine.name) != "amx")
          << machine.name << ", " << width;
    }
  }
}

// A target without instructions for it computes in f32.
TEST(Bf16Products, AreLeftOutWithoutInstructions) {
  const Target target = target_of({"avx512", "+avx2,+avx512f", 512, 32, false});
  for (const Func& f : kernels_of(kProducts[0], target, ElementType::bf16))
    EXPECT_THAT(to_text(f), testing::Not(testing::HasSubstr("bf16")));
}

}  // namespace
}  // namespace mcc::test
