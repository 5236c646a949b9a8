// Products by warpgroups of sm_90a in many tiles, of odd extents, of all types and orders in memory, on the interpreter.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;
using Case = ProductCase;

// Few multiprocessors, slow at a warp's instructions: small products are worth a warpgroup's, too.
Target target_of(const char* arch) {
  Target target = gpu_target("sm_90");
  target.gpu.arch = arch;
  target.gpu.multiprocessors = 1;
  target.gpu.matrix_fmas = 16;
  return target;
}

class GridWarpgroups : public ::testing::TestWithParam<Case> {};

TEST_P(GridWarpgroups, AreRightInAnyTile) {
  for (auto [batches, m, n, k] : {std::tuple{1, 64, 64, 128}, {1, 72, 72, 64}, {1, 72, 136, 72}, {2, 72, 64, 72}}) {
    // Matrices as they are come by the copy engine, but for batches of parts of tiles, which would run into each other, and rows that
    // do not begin at units of 16 bytes.
    const bool is_bulk = batches == 1 && GetParam().stored == GetParam().factor && k * byte_size(GetParam().factor) % 16 == 0;
    expect_right_in_tiles(
        product(batches, m, n, k, GetParam()), target_of("sm_90a"), 3, 2, 2,
        [](tuner::Draft& draft) { return tuner::schedule_grid_warpgroups(draft, "sum"); },
        [&](const Func& lowered) {
          EXPECT_GT(count_calls(lowered, is_wgmma), 0) << to_text(lowered);
          EXPECT_EQ(count_calls(lowered, IntrinsicClass::bulk) > 0, is_bulk) << to_text(lowered);
        });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GridWarpgroups,
                         ::testing::Values(Case{"f16_nn", ElementType::f16, ElementType::f16, true, false},
                                           Case{"f16_nt", ElementType::f16, ElementType::f16, true, true},
                                           Case{"bf16_tn", ElementType::bf16, ElementType::bf16, false,
                                                false},
                                           Case{"bf16_tt_converted", ElementType::bf16, f32, false, true},
                                           Case{"i8_nt", ElementType::i8, ElementType::i8, true, true},
                                           Case{"u8i8_nt", ElementType::u8, ElementType::u8, true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// The code of sm_90 runs on later GPUs, too; tf32, bytes across the sum and small products are left to a warp's instructions.
TEST(GridWarpgroupsOrNot, AreLeftToOtherRules) {
  const Case f16{"f16", ElementType::f16, ElementType::f16, true, false};
  auto takes = [](const char* arch, const Func& f) {
    tuner::PreferredDecider decide;
    const Target target = target_of(arch);
    tuner::Draft draft{Schedule(f), decide, target};
    return tuner::schedule_grid_warpgroups(draft, "sum");
  };
  EXPECT_TRUE(takes("sm_90a", product(1, 128, 128, 128, f16)));
  EXPECT_FALSE(takes("sm_90", product(1, 128, 128, 128, f16)));
  EXPECT_FALSE(takes("sm_90a", product(1, 32, 128, 128, f16)));
  EXPECT_FALSE(
      takes("sm_90a", product(1, 128, 128, 128, {"tf32", ElementType::tf32, f32, true, false})));
  for (ElementType byte : {ElementType::i8, ElementType::u8}) {
    EXPECT_TRUE(takes("sm_90a", product(1, 128, 128, 128, {"bytes", byte, byte, true, true})));
    EXPECT_FALSE(takes("sm_90", product(1, 128, 128, 128, {"bytes", byte, byte, true, true})));
    EXPECT_FALSE(takes("sm_90a", product(1, 32, 128, 128, {"bytes", byte, byte, true, true})));
    EXPECT_FALSE(takes("sm_90a", product(1, 128, 128, 128, {"bytes", byte, byte, true, false})));
    EXPECT_FALSE(takes("sm_90a", product(1, 128, 128, 128, {"bytes", byte, byte, false, true})));
  }
}

}  // namespace
}  // namespace mcc::test
