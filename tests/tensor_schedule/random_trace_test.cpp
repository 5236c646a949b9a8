// Every legal trace leaves a function's results as they are. MCC_RANDOM_TRACES=N runs N traces a workload, MCC_RANDOM_SEED=S
// begins with seed S.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "check_results.h"
#include "random_trace.h"
#include "tensor/text.h"
#include "tensor/verify.h"
#include "workloads.h"

namespace mcc::tensor::test {
namespace {

// What is wrong with the function after the trace; empty if nothing is.
std::string check(const Workload& w, const Trace& trace, const std::vector<Bytes>& expected, bool lowers) {
  Schedule schedule(w.func);
  Outcome outcome = schedule.replay(trace);
  if (!outcome) return "replay: " + outcome.detail;
  return check_results(w, schedule.func(), expected, lowers, weight_orders(w.func, trace));
}

// The shortest prefix of the trace after which something is wrong, for the message.
std::string explain(const Workload& w, const Trace& trace, const std::vector<Bytes>& expected, bool lowers) {
  Trace prefix;
  Schedule schedule(w.func);
  std::string before;
  for (const Step& step : trace) {
    prefix.push_back(step);
    before = to_text(schedule.func());
    Outcome outcome = schedule.apply(step);
    std::string error = outcome ? check(w, prefix, expected, lowers) : outcome.detail;
    if (!error.empty()) {
      return text("after\n", to_text(prefix), "\n", error, "\n\nbefore the last step\n", before,
                  "\nafter it\n", to_text(schedule.func()));
    }
  }
  return "not reproduced";
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

class RandomTraces : public testing::TestWithParam<Workload> {};

TEST_P(RandomTraces, KeepTheResults) {
  const Workload& w = GetParam();
  ASSERT_THAT(verify(w.func, Stage::blocks), testing::ElementsAre());
  std::vector<Bytes> expected;
  ASSERT_EQ(run(w, w.func, &expected), "");
  int64_t count = from_environment("MCC_RANDOM_TRACES", 24), seed = from_environment("MCC_RANDOM_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) {
    Random random(static_cast<uint64_t>(i));
    Trace trace = random_trace(w.func, random, 4 + static_cast<int>(i % 16));
    bool lowers = i % 2 == 0;
    std::string error = check(w, trace, expected, lowers);
    ASSERT_EQ(error, "") << w.name << ", seed " << i << "\n" << explain(w, trace, expected, lowers);
  }
}

TEST_P(RandomTraces, ReplayFromTextToTheSameText) {
  const Workload& w = GetParam();
  for (uint64_t seed = 1000; seed < 1010; ++seed) {
    Random random(seed);
    Trace trace = random_trace(w.func, random, 16);
    Result<Trace> read = parse_trace(to_text(trace));
    ASSERT_TRUE(read.ok()) << to_text(read.errors());
    Schedule first(w.func), second(w.func);
    ASSERT_TRUE(first.replay(trace));
    ASSERT_TRUE(second.replay(*read));
    EXPECT_EQ(to_text(first.func()), to_text(second.func()));
    EXPECT_EQ(to_text(second.trace()), to_text(trace));
  }
}

TEST_P(RandomTraces, RefusalsChangeNothing) {
  const Workload& w = GetParam();
  Schedule schedule(w.func);
  Random random(99);
  for (int i = 0; i < 300; ++i) {
    Stmt before = schedule.func().body;
    size_t steps = schedule.trace().size();
    Outcome outcome = schedule.apply(random_step(schedule, random));
    if (outcome) {
      EXPECT_EQ(schedule.trace().size(), steps + 1);
      if (steps > 12) schedule = Schedule(w.func);
    } else {
      EXPECT_TRUE(schedule.func().body.same_as(before));
      EXPECT_EQ(schedule.trace().size(), steps);
      EXPECT_THAT(outcome.detail, testing::HasSubstr("expected"));
    }
  }
}

// Random steps do not come upon a tile that an instruction matches.
TEST(Tensorize, KeepsTheResults) {
  std::vector<Workload> all = all_workloads();
  auto w = std::find_if(all.begin(), all.end(), [](const Workload& x) { return x.name == "dot_u8i8"; });
  ASSERT_NE(w, all.end());
  Result<Trace> trace = parse_trace(R"(
    split(loop="y.i1", factors=[2, 16])
    split(loop="y.r0", factors=[4, 4])
    reorder(loops=["y.i1.0", "y.i0", "y.r0.0", "y.i1.1", "y.r0.1"])
    decompose_reduction(block="y", loop="y.r0.0")
    tensorize(loop="y.i1.1", instruction="dot4_u8i8_i32x16")
    split(loop="y.i0", factors=[3, 2])
    parallel(loop="y.i1.0"))");
  ASSERT_TRUE(trace.ok()) << to_text(trace.errors());
  std::vector<Bytes> expected;
  ASSERT_EQ(run(*w, w->func, &expected), "");
  EXPECT_EQ(check(*w, *trace, expected, true), "");
}

INSTANTIATE_TEST_SUITE_P(Workloads, RandomTraces, testing::ValuesIn(all_workloads()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mcc::tensor::test
