// Sums of pictures with their channels last on the grid, on the interpreter: by several threads each, of odd extents, in all sizes of blocks.
#include <gtest/gtest.h>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

class GridColumns : public ::testing::TestWithParam<const char*> {};

TEST_P(GridColumns, AreRightInAnyBlocks) {
  graph::Graph g = graph::test::parse_graph(
      text("graph g(%x: f32", GetParam(),
           ") {\n  %axes: i64[2] = [2, 3]\n  %m = ReduceMean(%x, %axes) {keepdims = 1}\n"
           "  %n = mcc.Narrow(%m) {to = \"f16\"}\n  %y = mcc.Narrow(%n) {to = \"f32\"}\n  return %y\n}\n"));
  const std::vector<graph::KernelGroup> groups = graph::fuse(g);
  ASSERT_EQ(groups.size(), 1u);
  const Func f = merge_axes(graph::build_kernel(g, groups[0]));
  const Target target = gpu_target("sm_80");
  std::set<std::string> traces;
  int divided = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    TileDecider decide(seed);
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::apply_grid_rules(draft);
    ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
    const bool is_divided = draft.schedule.find_block("reduce.share") != nullptr;
    ASSERT_NE(draft.schedule.find_block(is_divided ? "reduce.share.part" : "reduce.part"), nullptr) << to_text(draft.schedule.func());
    divided += is_divided;
    EXPECT_GE(decide.asked, 2);
    if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
    SCOPED_TRACE(to_text(f) + to_text(draft.schedule.trace()));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, draft.schedule, target, lowered));
  }
  EXPECT_GE(traces.size(), 3u);
  EXPECT_GT(divided, 0);
}

INSTANTIATE_TEST_SUITE_P(Pictures, GridColumns,
                         ::testing::Values("[1, 1, 8, 8, 72]", "[3, 1, 9, 11, 20]", "[1, 1, 40, 40, 8]"));

}  // namespace
}  // namespace mcc::test
