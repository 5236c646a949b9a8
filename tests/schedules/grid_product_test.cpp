// Tiles of the grid's products, on matrices of odd extents in all orders in memory, on the interpreter.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;
using Case = ProductCase;

class GridProducts : public ::testing::TestWithParam<Case> {};

TEST_P(GridProducts, AreRightInAnyTile) {
  // Whole tiles, and rests in every direction; a few batches.
  for (auto [batches, m, n, k] : {std::tuple{1, 64, 64, 32}, {1, 36, 130, 20}, {2, 33, 45, 19}}) {
    expect_right_in_tiles(
        product(batches, m, n, k, GetParam()), gpu_target("sm_80"), 10, std::numeric_limits<int64_t>::max(), 5,
        [](tuner::Draft& draft) { return tuner::schedule_grid_product(draft, "sum"); }, [](const Func&) {});
    if (HasFailure()) return;
  }
}

TEST_P(GridProducts, AreRightInParts) {
  const Target target = gpu_target("sm_80");
  for (int64_t depth : {256, 1024}) {
    Func f = product(1, 20, 24, depth, GetParam());
    PartsDecider decide;
    tuner::Draft draft{Schedule(f), decide, target};
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
    for (const tuner::RefusedRule& refused : draft.refused)
      ADD_FAILURE() << to_text(refused);
    SCOPED_TRACE(to_text(draft.schedule.trace()));
    EXPECT_NE(draft.schedule.find_block("sum.part"), nullptr);
    // As many parts as a warp has threads are added up by several threads.
    EXPECT_EQ(draft.schedule.find_block("sum.parts") != nullptr, depth == 1024);
  }
}

// Of depths that no number of parts divides: what fills the last one up goes through no memory.
void expect_right_in_parts(const Func& f, bool is_on_tensor_cores) {
  PartsDecider decide;
  tuner::Draft draft{Schedule(f), decide, gpu_target("sm_80")};
  Func lowered;
  ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
  for (const tuner::RefusedRule& refused : draft.refused)
    ADD_FAILURE() << to_text(refused);
  SCOPED_TRACE(to_text(draft.schedule.trace()));
  EXPECT_NE(draft.schedule.find_block("sum.part"), nullptr);
  EXPECT_EQ(launches_of(lowered), 2) << to_text(lowered);
  EXPECT_EQ(count_calls(lowered, IntrinsicClass::mma) > 0, is_on_tensor_cores) << to_text(lowered);
}

TEST_P(GridProducts, OfOddDepthAreRightInParts) {
  for (auto [batches, m, n, k] : {std::tuple{1, 20, 24, 257}, {2, 17, 9, 201}, {1, 2, 3, 1025}})
    expect_right_in_parts(product(batches, m, n, k, GetParam()), false);
}

TEST(GridProductsOnTensorCores, OfOddDepthAreRightInParts) {
  for (const Case& c : {Case{"f16_nn", ElementType::f16, ElementType::f16, true, false},
                        Case{"f16_tn", ElementType::f16, ElementType::f16, false, false},
                        Case{"bf16_nt_converted", ElementType::bf16, f32, true, true}})
    expect_right_in_parts(product(1, 20, 24, 257, c), true);
}

INSTANTIATE_TEST_SUITE_P(Orders, GridProducts,
                         ::testing::Values(Case{"nn", f32, f32, true, false}, Case{"nt", f32, f32, true, true},
                                           Case{"tn", f32, f32, false, false}, Case{"tt", f32, f32, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
