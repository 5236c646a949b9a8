// Weights that come from far away: few rows read them once, fetched ahead, and what is read several times stays in the second-level cache.
#include <gtest/gtest.h>

#include <regex>

#include "schedules/default_trace.h"
#include "tensor/sizes.h"

namespace mcc::test {
namespace {

using tensor::Func;
using tensor::Schedule;
using tensor::Target;

// A core with small caches, for small weights.
Target small_target() {
  Target t;
  t.l1 = {4 << 10, 8, 64, 400};
  t.l2.bytes = 32 << 10;
  t.l3.bytes = 1 << 20;
  return t;
}

std::string trace_of(const std::string& graph, const std::string& block,
                     const Target& target = small_target()) {
  return default_trace(graph, block, target);
}

bool has(const std::string& trace, const std::string& what) { return trace.find(what) != std::string::npos; }

std::string product(int rows, int depth, int columns) {
  return text("graph g(%x: f32[", rows, ", ", depth, "]) {\n  %w: f32[", depth, ", ", columns,
              "] random\n  %y = MatMul(%x, %w)\n  return %y\n}\n");
}

std::string convolution(int channels, int side) {
  return text("graph g(%x: f32[1, ", channels, ", ", side, ", ", side, "]) {\n  %w: f32[", channels, ", ",
              channels, ", 3, 3] random\n  %y = Conv(%x, %w) {pads = [1, 1, 1, 1]}\n  return %y\n}\n");
}

TEST(Streams, AreReadOnceByATileOfAllRows) {
  const std::string trace = trace_of(product(12, 64, 256), "matmul");
  EXPECT_TRUE(has(trace, R"(factors=[0, 12], names=["matmul.rows")")) << trace;
  EXPECT_TRUE(has(trace, R"(factors=[0, 2, 16], names=["matmul.panel")")) << trace;
  EXPECT_TRUE(has(trace, R"(key="prefetch_ahead")")) << trace;
  EXPECT_FALSE(has(trace, R"(key="prefetch_next")")) << trace;
}

TEST(Streams, OfManyRowsFetchTheNextPanelWhereTwoFit) {
  const std::string trace = trace_of(product(96, 48, 256), "matmul");
  EXPECT_TRUE(has(trace, R"(key="prefetch_next")")) << trace;
  EXPECT_FALSE(has(trace, R"(key="prefetch_ahead")")) << trace;
}

// The kernel with its number of rows, which is typically as it was, left open.
Func with_open_rows(const Func& kernel, int rows) {
  const std::string source = std::regex_replace(to_text(kernel), std::regex(text("\\b", rows, "\\b")), "n");
  Result<Func> open =
      tensor::parse_func(std::regex_replace(source, std::regex(R"(^func (\w+)\()"), "func $1<n>("));
  EXPECT_TRUE(open.ok()) << to_text(open.errors());
  tensor::mark_sizes(*open, {{1, tensor::kLargestSize, rows}});
  return *open;
}

// As of many rows where a run has them; how many tiles pass over a panel of the last ones only the run knows.
TEST(Streams, OfAnOpenNumberOfRowsAreFetchedInBothWays) {
  const std::vector<Func> kernels = kernels_of(product(95, 48, 256), small_target());
  ASSERT_EQ(kernels.size(), 1U);
  const Func open = with_open_rows(kernels[0], 95);
  const std::string trace = to_text(tuner::default_schedule(open, small_target()).trace());
  EXPECT_TRUE(has(trace, R"(key="prefetch_next")")) << trace;
  EXPECT_TRUE(has(trace, R"(key="prefetch_ahead")")) << trace;
}

TEST(Streams, OfLargePanelsFetchTheNextOneWhereTheLastCacheIsFast) {
  Target slow = small_target();
  slow.l3.gb_per_s = slow.l2.gb_per_s / 5;
  const std::string graph = product(24, 150, 256);
  EXPECT_TRUE(has(trace_of(graph, "matmul"), R"(key="prefetch_next")"));
  EXPECT_FALSE(has(trace_of(graph, "matmul", slow), R"(key="prefetch_next")"));
}

TEST(Streams, AreAskedForAsFarAheadAsTheLastCacheIsFast) {
  Target slow = small_target();
  slow.l3.gb_per_s = slow.l2.gb_per_s / 5;
  const std::string graph = product(12, 64, 256);
  EXPECT_TRUE(has(trace_of(graph, "matmul"), R"(key="prefetch_ahead", value="x1 24")"));
  EXPECT_TRUE(has(trace_of(graph, "matmul", slow), R"(key="prefetch_ahead", value="x1 8")"));
}

TEST(Streams, AShorterLastTileFetchesItsShareOfTheNextPanel) {
  const std::string trace = trace_of(product(23, 64, 256), "matmul");
  EXPECT_TRUE(has(trace, R"(factors=[0, 12], names=["matmul.rows")")) << trace;
  EXPECT_TRUE(has(trace, R"(key="prefetch_next", value="x1 matmul.panel 2")")) << trace;
  EXPECT_TRUE(
      has(trace_of(product(24, 64, 256), "matmul"), R"(key="prefetch_next", value="x1 matmul.panel")"));
}

// Rows that are a multiple of a way of the first-level cache apart share its sets: no more of them in a tile than these have lines.
TEST(Streams, RowsThatShareSetsAreFew) {
  Target target = small_target();
  target.l1.ways = 12;
  target.l1.bytes = 12 * 256;
  EXPECT_TRUE(
      has(trace_of(product(28, 80, 160), "matmul", target), R"(factors=[0, 14], names=["matmul.rows")"));
  EXPECT_TRUE(
      has(trace_of(product(28, 64, 160), "matmul", target), R"(factors=[0, 10], names=["matmul.rows")"));
}

TEST(Streams, OfManyRowsAndDeepSumsHaveNarrowPanels) {
  EXPECT_TRUE(has(trace_of(product(96, 48, 256), "matmul"), R"(factors=[0, 4, 16], names=["matmul.panel")"));
  EXPECT_TRUE(has(trace_of(product(96, 96, 256), "matmul"), R"(factors=[0, 2, 16], names=["matmul.panel")"));
}

TEST(Streams, LinesOfFewRowsAreOneTile) {
  const std::string trace = trace_of(convolution(64, 3), "conv");
  EXPECT_TRUE(has(trace, R"(factors=[0, 3], names=["conv.lines", "conv.line"])")) << trace;
  EXPECT_TRUE(has(trace, R"(unroll(loop="conv.line"))")) << trace;
  EXPECT_TRUE(has(trace, R"(key="prefetch_ahead")")) << trace;
}

}  // namespace
}  // namespace mcc::test
