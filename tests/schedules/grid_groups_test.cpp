// Convolutions in groups on a GPU, on the interpreter: products whose batches are the groups, with rows and places that fill no tile,
// several images, strides, one to three dimensions; and what is too little for a tile.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Problem {
  const char* name;
  const char *input, *weights;
  int64_t group;
  const char* window;  // more attributes
  const char* after = "Relu(%c)";
  bool has_bias = true;
};
void PrintTo(const Problem& p, std::ostream* out) { *out << p.name; }

Func convolution(const Problem& p) {
  const std::string channels = std::string(p.weights).substr(0, std::string(p.weights).find(','));
  const std::string bias = p.has_bias ? text("  %b: f32[", channels, "] random\n") : "";
  const std::string after = *p.after ? text("  %y = ", p.after, "\n  return %y\n}\n") : "  return %c\n}\n";
  return fused_kernel(
      text("graph g(%x: f32[", p.input, "], %w: f32[", p.weights, "]) {\n", bias, "  %c = Conv(%x, %w",
           p.has_bias ? ", %b" : "", ") {group = ", p.group, p.window, "}\n", after));
}

const For* loop_of_groups(const Schedule& s) {
  const For* found = nullptr;
  for_each_stmt(s.func().body, [&](const Stmt& stmt) {
    const auto* loop = stmt.as<For>();
    if (loop && grid_axis(*loop) == GridAxis::block_z) found = loop;
  });
  return found;
}

class GridGroups : public ::testing::TestWithParam<Problem> {};

TEST_P(GridGroups, AreRightInAnyTile) {
  const Problem& p = GetParam();
  for (const char* arch : {"sm_70", "sm_80"}) {
    expect_right_in_tiles(
        convolution(p), small_gpu_target(arch), 4, 3, 2,
        [&](tuner::Draft& draft) {
          tuner::inline_for_grid(draft);
          return tuner::schedule_grid_product(draft, "conv");
        },
        [&](const Func& lowered) {
          EXPECT_EQ(launches_of(lowered), 1) << "the result takes a launch: " << to_text(lowered);
        });
    if (HasFailure()) return;
  }
}

TEST_P(GridGroups, AreRightByAllRules) {
  const Target target = small_gpu_target("sm_80");
  const Func f = convolution(GetParam());
  PartsDecider decide;
  tuner::Draft draft{Schedule(f), decide, target};
  Func lowered;
  ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
  for (const tuner::RefusedRule& refused : draft.refused)
    ADD_FAILURE() << to_text(refused);
  const For* groups = loop_of_groups(draft.schedule);
  ASSERT_NE(groups, nullptr) << to_text(draft.schedule.func());
  const int64_t parts = draft.schedule.find_block("conv.part") != nullptr ? 2 : 1;
  int64_t extent = 0;
  EXPECT_TRUE(as_int(groups->extent, &extent) && extent >= GetParam().group * parts)
      << to_text(draft.schedule.func());
  EXPECT_EQ(launches_of(lowered), parts);
}

constexpr const char* kAround = ", pads = [1, 1, 1, 1]";

INSTANTIATE_TEST_SUITE_P(
    Problems, GridGroups,
    ::testing::Values(
        Problem{"of_four", "1, 16, 9, 11", "16, 4, 3, 3", 4, kAround},
        Problem{"of_eight", "1, 24, 8, 9", "24, 8, 3, 3", 3, kAround},
        Problem{"of_two", "1, 16, 12, 12", "16, 2, 3, 3", 8, kAround},
        Problem{"wider_than_a_tile", "1, 48, 7, 5", "72, 24, 3, 3", 2, kAround},
        Problem{"images_and_strides", "3, 20, 9, 8", "30, 10, 3, 3", 2,
                ", pads = [1, 1, 1, 1], strides = [2, 2]"},
        Problem{"points", "2, 64, 6, 7", "40, 16, 1, 1", 4, ""},
        Problem{"wide_window", "1, 12, 9, 10", "16, 6, 5, 5", 2, ", pads = [2, 2, 2, 2]"},
        Problem{"dilated", "1, 16, 9, 9", "16, 8, 3, 3", 2, ", pads = [2, 2, 2, 2], dilations = [2, 2]"},
        Problem{"nothing_after", "2, 16, 9, 8", "16, 4, 3, 3", 4, kAround, "", false},
        Problem{"read_twice", "1, 16, 9, 11", "16, 4, 3, 3", 4, kAround, "Mul(%c, %c)"},
        Problem{"line", "2, 24, 40", "24, 8, 3", 3, ", pads = [1, 1]"},
        Problem{"volume", "1, 16, 4, 5, 6", "16, 4, 3, 3, 3", 4, ", pads = [1, 1, 1, 1, 1, 1]"}),
    [](const auto& info) { return std::string(info.param.name); });

// A channel's results, and what is done by the time a tile has begun, are no products.
TEST(GridGroupsWithoutTiles, StayPlain) {
  const Problem depthwise{"depthwise", "1, 32, 24, 24", "32, 1, 3, 3", 32, kAround};
  const Problem two_each{"two_each", "1, 32, 24, 24", "64, 1, 3, 3", 32, kAround};
  const Problem little{"little", "1, 16, 9, 11", "16, 4, 3, 3", 4, kAround};
  for (const auto& [p, target] : {std::pair{depthwise, small_gpu_target("sm_80")},
                                  {two_each, small_gpu_target("sm_80")},
                                  {little, gpu_target("sm_80")}}) {
    SCOPED_TRACE(p.name);
    const Func f = convolution(p);
    tuner::PreferredDecider decide;
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::inline_for_grid(draft);
    const std::string before = to_text(draft.schedule.trace());
    EXPECT_FALSE(tuner::schedule_grid_product(draft, "conv"));
    EXPECT_EQ(to_text(draft.schedule.trace()), before);
    EXPECT_TRUE(draft.refused.empty());
  }
}

}  // namespace
}  // namespace mcc::test
