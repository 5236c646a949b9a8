// What a schedule remembers of its checks: an answer is found again for the same blocks, loops and numbers, and for no others.
#include "tensor/schedule/proven.h"

#include <gtest/gtest.h>

#include "tensor/schedule/schedule.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

constexpr const char* kTwoBlocks = R"(func two(x: f32[64]) -> (t: f32[64], y: f32[64]) {
  for i in 64 {
    block t(a = i: spatial 64) reads x[a] writes t[a] { t[a] = x[a] + 1.0 }
  }
  for j in 64 {
    block y(a = j: spatial 64) reads x[a] writes y[a] { y[a] = x[a] * 2.0 }
  }
})";

Proven::Question about(const Schedule& schedule, size_t block, int64_t number = 0) {
  Proven::Question question(Proven::Kind::separated);
  question.add(block_sites(schedule.func().body)[block]);
  question.add(number);
  return question;
}

void must(Schedule& schedule, const char* trace) {
  const Outcome outcome = schedule.replay(*parse_trace(trace));
  ASSERT_TRUE(outcome) << outcome.detail;
}

TEST(Proven, HoldsForTheSameQuestionOnly) {
  const Schedule schedule(*parse_func(kTwoBlocks));
  Proven proven;
  EXPECT_FALSE(proven.holds(about(schedule, 0)));
  proven.add(about(schedule, 0));
  EXPECT_TRUE(proven.holds(about(schedule, 0)));
  EXPECT_FALSE(proven.holds(about(schedule, 1)));
  EXPECT_FALSE(proven.holds(about(schedule, 0, 1)));
  EXPECT_FALSE(proven.holds(Proven::Question(Proven::Kind::owned)));
}

TEST(Proven, HoldsWhileTheBlockAndItsLoopsAreAsTheyWere) {
  Schedule schedule(*parse_func(kTwoBlocks));
  Proven proven;
  proven.add(about(schedule, 0));
  must(schedule, "split(loop=\"j\", factors=[0, 32], names=[\"jb\", \"jt\"])");
  EXPECT_TRUE(proven.holds(about(schedule, 0))) << "the other block's loops are other ones now";
  must(schedule, "bind(loop=\"i\", thread=\"thread.x\")");
  EXPECT_FALSE(proven.holds(about(schedule, 0))) << "of another kind";
  proven.add(about(schedule, 0));
  must(schedule, "split(loop=\"jt\", factors=[0, 4], names=[\"ja\", \"jc\"])");
  EXPECT_TRUE(proven.holds(about(schedule, 0)));
}

TEST(Proven, CopiesGoOnByThemselves) {
  const Schedule schedule(*parse_func(kTwoBlocks));
  Proven proven;
  proven.add(about(schedule, 0));
  Proven copy = proven;
  copy.add(about(schedule, 1));
  EXPECT_TRUE(copy.holds(about(schedule, 0)) && copy.holds(about(schedule, 1)));
  EXPECT_FALSE(proven.holds(about(schedule, 1)));
}

TEST(Proven, ForgetsWhatIsTooMuch) {
  const Schedule schedule(*parse_func(kTwoBlocks));
  Proven proven;
  for (int64_t number = 0; number < 5000; ++number) {
    proven.add(about(schedule, 0, number));
    EXPECT_TRUE(proven.holds(about(schedule, 0, number)));
  }
  EXPECT_FALSE(proven.holds(about(schedule, 0, 0)));
}

}  // namespace
}  // namespace mcc::tensor
