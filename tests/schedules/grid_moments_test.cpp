// Normalisation of groups of channels that are last (graph/ops/mcc_norm.cpp): moments of columns by lines, moments of groups by rows,
// each in one launch, on the interpreter, in all sizes of blocks.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Moments {
  const char *name, *shape, *node;
  bool has_barriers;  // threads of several warps put a row together
};
void PrintTo(const Moments& m, std::ostream* out) { *out << m.name; }

class GridMoments : public ::testing::TestWithParam<Moments> {};

TEST_P(GridMoments, AreOneLaunchInAnyBlocks) {
  const Func f = fused_kernel(text("graph g(%x: ", GetParam().shape, ") {\n  %y = mcc.", GetParam().node, "\n  return %y\n}\n"));
  expect_right_in_draws(f, small_gpu_target("sm_80"), {.seeds = 6}, takes_all_rules, [](const Func& lowered) {
    EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
    EXPECT_TRUE(GetParam().has_barriers || count_calls(lowered, IntrinsicClass::barrier) == 0) << to_text(lowered);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Pictures, GridMoments,
    ::testing::Values(Moments{"of_columns", "f32[1, 8, 8, 40]", "Moments(%x)", false},
                      Moments{"of_columns_in_16_bits", "f16[3, 5, 9, 24]", "Moments(%x)", false},
                      Moments{"of_groups", "f32[1, 9, 2, 4, 10]", "MergeMoments(%x) {count = 8}", true},
                      Moments{"of_two_groups", "f32[1, 12, 2, 2, 8]", "MergeMoments(%x) {count = 8}", true},
                      Moments{"of_groups_of_several", "f32[2, 20, 2, 3, 4]", "MergeMoments(%x) {count = 16, epsilon = 0.1}", true}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
