// Products of an open number of queries on CPUs, of which a single one has a schedule of its own.
#include <gmock/gmock.h>

#include "schedules/grid_cases.h"
#include "schedules/joined_rows.h"
#include "tensor/schedule/weight_order.h"

namespace mcc::test {
namespace {

using namespace tensor;

Target machine() {
  Target t;
  t.vector_bits = 512;
  t.vector_registers = 32;
  return t;
}

Func product(const std::string& source, const std::string& sizes) {
  Func f = fused_kernel(source);
  f.annotations["sizes"] = sizes;
  return f;
}

constexpr const char* kScores =
    "graph g(%q: f32[6, S, 32], %k: f32[6, 32, T]) {\n  %y = MatMul(%q, %k)\n  return %y\n}\n";
constexpr const char* kValues =
    "graph g(%p: f32[6, S, T], %v: f32[6, T, 32]) {\n  %y = MatMul(%p, %v)\n  return %y\n}\n";

TEST(OtherRows, OfOneQuery) {
  for (const char* source : {kScores, kValues}) {
    SCOPED_TRACE(source);
    const Func f = product(source, "1..~128 1..~128");
    const Joined made = joined(f, machine());
    ASSERT_EQ(made.conditions.size(), 1U);
    EXPECT_THAT(made.conditions[0], testing::AnyOf("S == 1", "S < 2"));
    expect_right_at(f, made.func, {{1, 1}, {1, 33}, {1, 300}, {2, 40}, {7, 1}, {9, 65}});
  }
}

TEST(OtherRows, AreNoneWhereOneQueryIsTypicalOrNoneIs) {
  EXPECT_THAT(joined(product(kScores, "2..~128 1..~128"), machine()).conditions, testing::IsEmpty());
  EXPECT_THAT(joined(product(kScores, "1..1 1..~128"), machine()).conditions, testing::IsEmpty());
}

constexpr const char* kLayer =
    "graph g(%x: f32[N, 96]) {\n  %w: f32[96, 128] random\n  %y = MatMul(%x, %w)\n  %z = Relu(%y)\n  return "
    "%z\n}\n";

// With weights, in their one order, tiles of many rows are for large batches.
TEST(OtherRows, OfALargeBatch) {
  Func f = product(kLayer, "1..~4");
  mark_weights(f, {"x1"});
  const Joined made = joined(f, machine());
  EXPECT_THAT(made.conditions, testing::ElementsAre("N >= 9"));
  expect_right_at(f, made.func, {{1}, {4}, {8}, {9}, {13}, {64}});
}

TEST(OtherRows, AreNoneOfALargeBatchOfBytes) {
  const char* layer =
      "graph g(%x: u8[N, 96]) {\n  %w: i8[96, 128] random\n  %y = MatMulInteger(%x, %w)\n  return %y\n}\n";
  EXPECT_THAT(joined(product(layer, "1..~4"), machine()).conditions, testing::IsEmpty());
}

TEST(OtherRows, AreNoneWhereABatchIsLargeOrCannotBe) {
  for (const char* sizes : {"1..~128", "1..8", "9..~12"})
    EXPECT_THAT(joined(product(kLayer, sizes), machine()).conditions, testing::IsEmpty()) << sizes;
}

// A schedule that was found with many rows is for these; the default one never is.
TEST(OtherRows, AreNoneOfWhatWasFoundForALargeBatch) {
  const Func f = product(kLayer, "1..~4");
  const Schedule usual = tuner::default_schedule(f, machine());
  const Schedule found = tuner::explained_default_schedule(f, machine(), {{"matmul.unroll", {1}}}).schedule;
  ASSERT_NE(to_text(found.trace()), to_text(usual.trace()));
  EXPECT_THAT(tuner::schedule_other_rows(f, machine(), usual, {64}), testing::SizeIs(1));
  EXPECT_THAT(tuner::schedule_other_rows(f, machine(), found, {4}), testing::SizeIs(1));
  EXPECT_THAT(tuner::schedule_other_rows(f, machine(), found, {64}), testing::IsEmpty());
}

}  // namespace
}  // namespace mcc::test
