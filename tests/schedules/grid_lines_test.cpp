// Reductions over the channels of pictures and what follows them, a line a thread: one launch, on the interpreter, in all sizes of blocks.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Lines {
  const char *name, *shape, *nodes;
};
void PrintTo(const Lines& l, std::ostream* out) { *out << l.name; }

class GridLines : public ::testing::TestWithParam<Lines> {};

TEST_P(GridLines, AreOneLaunchInAnyBlocks) {
  const Func f = fused_kernel(text("graph g(%x: f32", GetParam().shape, ") {\n", GetParam().nodes, "  return %y\n}\n"));
  expect_right_in_draws(f, small_gpu_target("sm_80"), {.seeds = 4}, takes_all_rules, [](const Func& lowered) {
    EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
    EXPECT_EQ(count_calls(lowered, IntrinsicClass::barrier), 0) << to_text(lowered);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Pictures, GridLines,
    ::testing::Values(Lines{"softmax", "[1, 7, 18, 19]", "  %y = Softmax(%x) {axis = 1}\n"},
                      Lines{"softmax_of_several", "[3, 5, 10, 12]", "  %y = Softmax(%x) {axis = 1}\n"},
                      Lines{"log_softmax", "[2, 6, 300]", "  %y = LogSoftmax(%x) {axis = 1}\n"},
                      Lines{"arg_max", "[1, 6, 20, 21]", "  %y = ArgMax(%x) {axis = 1, keepdims = 0}\n"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
