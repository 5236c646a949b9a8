// Sums of pictures with their channels last, and vectors times matrices, on the grid, on the interpreter: by several threads each, of odd
// extents, in all sizes of blocks.
#include <gtest/gtest.h>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
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
  graph::Graph g = graph::test::parse_graph(text("graph g(", c.inputs, ") {\n", c.nodes, "  return %y\n}\n"));
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
    const bool is_divided = draft.schedule.find_block(c.block + ".share") != nullptr;
    ASSERT_NE(draft.schedule.find_block(c.block + (is_divided ? ".share.part" : ".part")), nullptr)
        << to_text(draft.schedule.func());
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
                                           mean("of_eight_channels", "[1, 1, 40, 40, 8]")),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Products, GridColumns,
                         ::testing::Values(product("vector_times_matrix", "%x: f32[1, 96], %w: f32[96, 72], %b: f32[72]"),
                                           product("of_odd_extents", "%x: f32[1, 90], %w: f32[90, 41], %b: f32[1]")),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
