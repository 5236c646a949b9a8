// Windows over pictures with their channels last on the grid, on the interpreter: depthwise convolutions and pooling of 16 and 32 bits, in
// vectors and results of all sizes, with padding, strides and several pictures.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Window {
  const char *name, *picture, *weights, *node;
};
void PrintTo(const Window& w, std::ostream* out) { *out << w.name; }

class GridWindows : public ::testing::TestWithParam<Window> {};

TEST_P(GridWindows, AreRightInAnyVectors) {
  const Window& w = GetParam();
  const Func f = fused_kernel(text("graph g(%x: ", w.picture, ") {\n  %w: ", w.weights, " random\n  %p = ", w.node,
                                   "\n  %y = Relu(%p)\n  return %y\n}\n"));
  const auto rule = [](tuner::Draft& draft) {
    tuner::inline_for_grid(draft);
    bool is_taken = false;
    for (const std::string& block : draft.schedule.block_names())
      is_taken |= tuner::schedule_grid_windows(draft, block);
    tuner::schedule_grid_rest(draft);
    return is_taken && draft.refusal;
  };
  expect_right_in_draws(f, small_gpu_target("sm_80"), {.seeds = 6, .different = 3, .asked = 2}, rule, expect_in_registers);
}

INSTANTIATE_TEST_SUITE_P(
    Pictures, GridWindows,
    ::testing::Values(Window{"depthwise", "f16[1, 1, 9, 8, 24]", "f16[1, 3, 3, 24]",
                             "mcc.Depthwise(%x, %w) {pads = [1, 1, 1, 1], mcc.wide_result = 1}"},
                      Window{"depthwise_with_strides", "bf16[2, 1, 13, 11, 16]", "bf16[1, 5, 5, 16]",
                             "mcc.Depthwise(%x, %w) {strides = [2, 2], pads = [2, 1, 2, 2], mcc.wide_result = 1}"},
                      Window{"depthwise_wide", "f16[1, 1, 10, 12, 8]", "f16[1, 7, 7, 8]",
                             "mcc.Depthwise(%x, %w) {pads = [3, 3, 3, 3], mcc.wide_result = 1}"},
                      Window{"depthwise_of_a_volume", "f16[1, 1, 4, 5, 6, 16]", "f16[1, 3, 3, 3, 16]",
                             "mcc.Depthwise(%x, %w) {pads = [1, 1, 1, 1, 1, 1], mcc.wide_result = 1}"},
                      Window{"largest_of_a_volume", "f16[2, 1, 6, 6, 8, 24]", "f16[1]",
                             "mcc.MaxPool(%x) {kernel = [2, 2, 2], strides = [2, 2, 2], extent = [3, 3, 4]}"},
                      Window{"mean_of_a_volume", "f32[1, 1, 4, 6, 8, 12]", "f32[1]",
                             "mcc.AveragePool(%x) {kernel = [3, 3, 3], strides = [1, 2, 1], "
                             "pads = [1, 0, 1, 1, 1, 1], extent = [4, 3, 8]}"},
                      Window{"largest", "f16[1, 1, 12, 14, 16]", "f16[1]",
                             "mcc.MaxPool(%x) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], extent = [6, 7], dilations = [1, 1]}"},
                      Window{"mean", "f32[1, 1, 12, 14, 12]", "f32[1]",
                             "mcc.AveragePool(%x) {kernel = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], extent = [12, 14], dilations = [1, 1]}"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
