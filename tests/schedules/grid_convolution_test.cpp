// Convolutions with their channels last as products whose operand is read from the image, on the interpreter: windows, strides,
// padding on some sides, several images, volumes, channels that fill no vector of 16 bytes.
#include <gtest/gtest.h>

#include <numeric>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

using Ints = std::vector<int64_t>;

struct Problem {
  const char* name;
  int64_t images;
  Ints extents;  // height and width, behind a depth where there is one
  int64_t in, out;
  Ints kernel;
  int64_t stride, dilation;
  Ints pads;
  int64_t groups = 1;
};
void PrintTo(const Problem& p, std::ostream* out) { *out << p.name; }

// relu(convolution + bias), each channel's weights side by side
Func convolution(const Problem& p) {
  const size_t axes = p.extents.size();
  const int64_t taps = std::accumulate(p.kernel.begin(), p.kernel.end(), int64_t{1}, std::multiplies<>()), in = p.in / p.groups;
  return fused_kernel(text("graph g(%x: f16[", p.images, ", 1, ", join(p.extents, ", "), ", ", p.in, "], %w: f16[", p.out, ", ",
                           taps * in, "]) {\n  %b: f32[1, ", p.out, "] random\n  %c = mcc.Conv(%x, %w, %b) {columns = ", p.out,
                           ", in_block = ", in, ", group = ", p.groups, ", kernel = ", list_text(p.kernel),
                           ", strides = ", list_text(Ints(axes, p.stride)), ", dilations = ", list_text(Ints(axes, p.dilation)),
                           ", pads = ", list_text(p.pads), ", mcc.wide_result = 1}\n  %y = Relu(%c)\n  return %y\n}\n"));
}

// The rule's schedules with the padding inlined, as all rules of the grid have it. Every part of an operand comes asynchronously.
template <class Rule, class Check>
void expect_right(const Problem& p, const Target& target, uint64_t seeds, const Rule& rule,
                  const Check& check) {
  expect_right_in_tiles(
      convolution(p), target, seeds, 3, 2,
      [&](tuner::Draft& draft) {
        tuner::inline_for_grid(draft);
        return rule(draft, "conv");
      },
      [&](const Func& lowered) {
        const std::string code = to_text(lowered);
        EXPECT_EQ(code.find(".next"), std::string::npos) << "by way of registers: " << code;
        EXPECT_EQ(code.find("} else {"), std::string::npos) << "padding by branches: " << code;
        check(lowered);
      });
}

class GridConvolutions : public ::testing::TestWithParam<Problem> {};

TEST_P(GridConvolutions, AreRightInAnyTile) {
  expect_right(GetParam(), gpu_target("sm_80"), 4, tuner::schedule_grid_matrices, [](const Func& lowered) {
    EXPECT_GT(count_calls(lowered, IntrinsicClass::mma), 0) << to_text(lowered);
  });
}

TEST_P(GridConvolutions, AreRightInParts) {
  PartsDecider decide;
  const Target target = gpu_target("sm_80");
  const Func f = convolution(GetParam());
  tuner::Draft draft{Schedule(f), decide, target};
  Func lowered;
  ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
  EXPECT_NE(draft.schedule.find_block("conv.part"), nullptr) << to_text(draft.schedule.func());
}

// By warpgroups where the operands are fetched in vectors, and at least as large as a tile.
TEST(GridConvolutionsByWarpgroups, AreRightInAnyTile) {
  Target target = gpu_target("sm_90");
  target.gpu.arch = "sm_90a";
  target.gpu.multiprocessors = 1;
  target.gpu.matrix_fmas = 16;
  for (const Problem& p : {Problem{"window", 1, {9, 8}, 16, 72, {3, 3}, 1, 1, {1, 1, 1, 1}},
                           Problem{"points_with_strides", 2, {13, 12}, 72, 64, {1, 1}, 2, 1, {0, 0, 0, 0}},
                           Problem{"volume", 1, {4, 4, 5}, 16, 72, {2, 2, 2}, 1, 1, {1, 0, 1, 0, 1, 0}}}) {
    expect_right(p, target, 3, tuner::schedule_grid_warpgroups, [](const Func& lowered) {
      EXPECT_GT(count_calls(lowered, is_wgmma), 0) << to_text(lowered);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, GridConvolutions,
    ::testing::Values(Problem{"window", 1, {7, 9}, 16, 40, {3, 3}, 1, 1, {1, 1, 1, 1}},
                      Problem{"two_images_with_strides", 2, {9, 8}, 24, 20, {3, 3}, 2, 1, {1, 1, 1, 1}},
                      Problem{"padding_on_some_sides", 1, {6, 9}, 32, 24, {2, 5}, 1, 1, {0, 3, 1, 0}},
                      Problem{"dilated", 1, {8, 8}, 40, 16, {3, 3}, 1, 2, {2, 2, 2, 2}},
                      Problem{"points_with_strides", 1, {13, 11}, 64, 24, {1, 1}, 2, 1, {0, 0, 0, 0}},
                      Problem{"vectors_of_four", 1, {7, 7}, 20, 36, {3, 3}, 1, 1, {1, 1, 1, 1}},
                      Problem{"two_channels", 1, {7, 9}, 16, 2, {3, 3}, 1, 1, {1, 1, 1, 1}},
                      Problem{"image", 1, {17, 16}, 4, 24, {8, 7}, 2, 1, {3, 3, 4, 3}},
                      Problem{"volume", 1, {3, 4, 5}, 16, 24, {3, 3, 3}, 1, 1, {1, 1, 1, 1, 1, 1}},
                      Problem{"volume_of_all_kinds_of_extents", 2, {5, 3, 8}, 16, 40, {2, 3, 1}, 2, 1, {0, 1, 0, 1, 1, 0}},
                      Problem{"groups", 1, {7, 6}, 96, 96, {3, 3}, 1, 1, {1, 1, 1, 1}, 3},
                      Problem{"groups_of_other_widths", 2, {8, 5}, 48, 32, {3, 3}, 2, 1, {1, 1, 1, 1}, 2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
