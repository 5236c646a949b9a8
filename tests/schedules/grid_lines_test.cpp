// Reductions over the channels of pictures and what follows them, a line a thread: one launch, on the interpreter, in all sizes of blocks.
#include <gtest/gtest.h>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
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
  graph::Graph g =
      graph::test::parse_graph(text("graph g(%x: f32", GetParam().shape, ") {\n", GetParam().nodes, "  return %y\n}\n"));
  const std::vector<graph::KernelGroup> groups = graph::fuse(g);
  ASSERT_EQ(groups.size(), 1u);
  const Func f = merge_axes(graph::build_kernel(g, groups[0]));
  Target target = gpu_target("sm_80");
  target.gpu.multiprocessors = 1;  // a few hundred lines are enough for it
  std::set<std::string> traces;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    TileDecider decide(seed);
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::apply_grid_rules(draft);
    ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
    if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
    SCOPED_TRACE(to_text(f) + to_text(draft.schedule.trace()));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, draft.schedule, target, lowered));
    EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
    EXPECT_EQ(count_calls(lowered, IntrinsicClass::barrier), 0) << to_text(lowered);
  }
  EXPECT_GE(traces.size(), 2u);
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
