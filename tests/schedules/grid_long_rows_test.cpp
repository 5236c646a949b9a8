// Few rows of many elements: sums, normalisations and quantisation in parts, by many blocks of threads, on the interpreter.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct LongRows {
  const char *name, *inputs, *nodes, *block;
  int64_t launches;
};
void PrintTo(const LongRows& c, std::ostream* out) { *out << c.name; }

class GridLongRows : public ::testing::TestWithParam<LongRows> {};

TEST_P(GridLongRows, AreDivided) {
  const LongRows& c = GetParam();
  const Func f = fused_kernel(text("graph g(", c.inputs, ") {\n", c.nodes, "}\n"));
  const auto rule = [&](tuner::Draft& draft) {
    const bool is_taken = takes_all_rules(draft);
    EXPECT_NE(draft.schedule.find_block(text(c.block, ".parts")), nullptr) << to_text(draft.schedule.func());
    return is_taken;
  };
  expect_right_in_draws(f, gpu_target("sm_90"), {.seeds = 2, .different = 1}, rule,
                        [&](const Func& lowered) { EXPECT_EQ(launches_of(lowered), c.launches) << to_text(lowered); });
}

// What one block has soon done, or many rows, stays one launch.
TEST(GridRows, OthersAreNotDivided) {
  for (const char* shape : {"[1, 60000]", "[64, 65536]"}) {
    SCOPED_TRACE(shape);
    const Func f = fused_kernel(text("graph g(%x: f32", shape, ") {\n  %a: i64[1] = [1]\n  %y = ReduceSum(%x, %a)\n  return %y\n}\n"));
    tuner::PreferredDecider decide;
    const Target target = gpu_target("sm_90");
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::divide_grid_rows(draft);
    EXPECT_EQ(draft.schedule.find_block("reduce.parts"), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, GridLongRows,
    ::testing::Values(LongRows{"sum", "%x: f32[96, 700]", "  %y = ReduceSum(%x) {keepdims = 0}\n  return %y\n", "reduce", 2},
                      LongRows{"maxima_of_pictures", "%x: f32[1, 2, 256, 257]", "  %a: i64[2] = [2, 3]\n  %y = ReduceMax(%x, %a)\n  return %y\n", "reduce", 2},
                      LongRows{"mean_and_squares", "%x: f32[1, 66000], %g: f32[66000]",
                               "  %y = LayerNormalization(%x, %g) {axis = 1}\n  return %y\n", "squares", 5},
                      LongRows{"quantised", "%x: f32[128, 520]",
                               "  %y, %s, %z = DynamicQuantizeLinear(%x)\n  return %y, %s, %z\n", "high", 5}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
