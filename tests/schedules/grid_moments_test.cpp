// Normalisation of groups of channels that are last (graph/ops/mcc_norm.cpp): moments of columns by lines, moments of groups by rows,
// each in one launch, on the interpreter, in all sizes of blocks.
#include <gtest/gtest.h>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
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
  graph::Graph g = graph::test::parse_graph(
      text("graph g(%x: ", GetParam().shape, ") {\n  %y = mcc.", GetParam().node, "\n  return %y\n}\n"));
  const std::vector<graph::KernelGroup> groups = graph::fuse(g);
  ASSERT_EQ(groups.size(), 1u);
  const Func f = merge_axes(graph::build_kernel(g, groups[0]));
  Target target = gpu_target("sm_80");
  target.gpu.multiprocessors = 1;  // a few hundred lines are enough for it
  std::set<std::string> traces;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    TileDecider decide(seed);
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::apply_grid_rules(draft);
    ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
    if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
    SCOPED_TRACE(to_text(f) + to_text(draft.schedule.trace()));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, draft.schedule, target, lowered));
    EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
    EXPECT_TRUE(GetParam().has_barriers || count_calls(lowered, IntrinsicClass::barrier) == 0) << to_text(lowered);
  }
  EXPECT_GE(traces.size(), 2u);
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
