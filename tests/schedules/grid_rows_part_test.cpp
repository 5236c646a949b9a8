// Kernels that read and write parts of the rows of wider images (KernelGroup::rows), in any tiles and blocks, on the interpreter: what
// else the rows hold stays as it is.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

// A convolution of a part, with the part itself added, beside what it came from; a pooling, and a product with all of them.
constexpr const char* kGraph = R"(graph g(%x: f16[2, 1, 5, 6, 32], %w: f16[16, 144], %v: f16[16, 64]) {
  %halves: i64[2] = [16, 16]
  %a = Softmax(%x) {axis = 4}
  %l, %r = Split(%a, %halves) {axis = 4}
  %c = mcc.Conv(%r, %w) {columns = 16, in_block = 16, group = 1, kernel = [3, 3], strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], mcc.wide_result = 1}
  %s = Relu(%c)
  %p = mcc.Narrow(%r) {to = "f32"}
  %t = Add(%s, %p)
  %n = mcc.Narrow(%t) {to = "f16"}
  %m = mcc.MaxPool(%n) {kernel = [3, 3], strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], extent = [5, 6]}
  %j = Concat(%l, %r, %n, %m) {axis = 4}
  %d = mcc.Conv(%j, %v) {columns = 16, in_block = 64, group = 1, kernel = [1, 1], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], mcc.wide_result = 1}
  %y = Tanh(%d)
  return %y
}
)";

class GridRowsPart : public ::testing::TestWithParam<const char*> {};

TEST_P(GridRowsPart, IsRightInAnyTile) {
  graph::Graph g = graph::test::parse_graph(kGraph);
  Target target = gpu_target("sm_90");
  target.gpu.arch = GetParam();
  size_t kernels = 0, with_parts = 0, with_matrices = 0;
  for (const graph::KernelGroup& group : graph::fuse(g, true)) {
    const std::string_view op = g.node(group.nodes[0]).op->name;
    EXPECT_NE(group.kind == graph::KernelGroup::Kind::kernel, op == "Concat" || op == "Split");
    if (group.kind != graph::KernelGroup::Kind::kernel) continue;
    ++kernels;
    with_parts += group.rows.empty() ? 0 : 1;
    const Func f = merge_axes(graph::build_kernel(g, group));
    expect_right_in_draws(f, target, {.seeds = 4, .different = 1, .first = 3}, takes_all_rules, [&](const Func& lowered) {
      // A convolution is one launch with what follows it.
      const bool multiplies = count_calls(lowered, IntrinsicClass::mma) > 0;
      if (multiplies) {
        EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
      }
      with_matrices += multiplies ? 1 : 0;
    });
    if (HasFailure()) return;
  }
  EXPECT_EQ(kernels, 4u);
  EXPECT_EQ(with_parts, 3u);
  EXPECT_GE(with_matrices, 4u);
}

INSTANTIATE_TEST_SUITE_P(Architectures, GridRowsPart, ::testing::Values("sm_80", "sm_90a"),
                         [](const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param); });

}  // namespace
}  // namespace mcc::test
