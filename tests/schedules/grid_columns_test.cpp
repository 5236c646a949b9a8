// Sums of pictures with their channels last, and vectors times matrices, on the grid, on the interpreter: by several threads each, of odd
// extents, in all sizes of blocks.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Columns {
  const char* name;
  std::string inputs, nodes, block;
};
void PrintTo(const Columns& c, std::ostream* out) { *out << c.name; }

class GridColumns : public ::testing::TestWithParam<Columns> {};

TEST_P(GridColumns, AreRightInAnyBlocks) {
  const Columns& c = GetParam();
  const Func f = fused_kernel(text("graph g(", c.inputs, ") {\n", c.nodes, "  return %y\n}\n"));
  int divided = 0;
  const auto rule = [&](tuner::Draft& draft) {
    const bool is_taken = takes_all_rules(draft);
    const bool is_divided = draft.schedule.find_block(c.block + ".share") != nullptr;
    EXPECT_NE(draft.schedule.find_block(c.block + (is_divided ? ".share.part" : ".part")), nullptr)
        << to_text(draft.schedule.func());
    divided += is_divided;
    return is_taken;
  };
  expect_right_in_draws(f, gpu_target("sm_80"), {.seeds = 6, .different = 3, .asked = 2}, rule, [](const Func&) {});
  EXPECT_GT(divided, 0);
}

Columns mean(const char* name, const std::string& shape) {
  return {name, "%x: f32" + shape,
          "  %axes: i64[2] = [2, 3]\n  %m = ReduceMean(%x, %axes) {keepdims = 1}\n"
          "  %n = mcc.Narrow(%m) {to = \"f16\"}\n  %y = mcc.Narrow(%n) {to = \"f32\"}\n",
          "reduce"};
}

Columns product(const char* name, const std::string& inputs) {
  return {name, inputs, "  %m = MatMul(%x, %w)\n  %n = Add(%m, %b)\n  %y = Relu(%n)\n", "matmul"};
}

INSTANTIATE_TEST_SUITE_P(Pictures, GridColumns,
                         ::testing::Values(mean("blocked", "[1, 1, 8, 8, 72]"), mean("of_odd_extents", "[3, 1, 9, 11, 20]"),
                                           mean("of_eight_channels", "[1, 1, 40, 40, 8]"), mean("of_seven_channels", "[1, 1, 40, 40, 7]"),
                                           mean("of_two_channels", "[3, 1, 16, 31, 2]")),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Products, GridColumns,
                         ::testing::Values(product("vector_times_matrix", "%x: f32[1, 96], %w: f32[96, 72], %b: f32[72]"),
                                           product("of_odd_extents", "%x: f32[1, 90], %w: f32[90, 41], %b: f32[1]")),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
