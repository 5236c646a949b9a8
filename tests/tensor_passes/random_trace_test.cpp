// Functions under random legal traces mean the same after every lowering pass. MCC_RANDOM_TRACES=N runs N traces a workload,
// MCC_RANDOM_SEED=S begins with seed S.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tensor/grid.h"
#include "tensor/passes/lower.h"
#include "tensor/schedule/tree.h"
#include "tensor/text.h"
#include "tensor/verify.h"
#include "tensor_passes/equivalence.h"
#include "tensor_schedule/random_trace.h"
#include "tensor_schedule/workloads.h"

namespace mcc::tensor::test {
namespace {

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

class LowerRandomTraces : public testing::TestWithParam<Workload> {};

TEST_P(LowerRandomTraces, KeepsTheResults) {
  const Workload& w = GetParam();
  int64_t count = from_environment("MCC_RANDOM_TRACES", 24), seed = from_environment("MCC_RANDOM_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) {
    Random random(static_cast<uint64_t>(i));
    Trace trace = random_trace(w.func, random, 4 + static_cast<int>(i % 16));
    Schedule schedule(w.func);
    ASSERT_TRUE(schedule.replay(trace));
    SCOPED_TRACE(text(w.name, ", seed ", i, "\n", to_text(trace), "\n", to_text(schedule.func())));
    Func lowered = expect_lowers(schedule.func(), w.dims, {1e-4, 1e-4});
    EXPECT_THAT(verify(lowered, Stage::lowered), testing::ElementsAre()) << to_text(lowered);
    if (HasFailure()) return;
  }
}

// Everything at the top that is not on the grid yet becomes a block of its own. False if some step of that is refused: a
// buffer that only one thread has is used in several launches.
bool complete_grid(Schedule& schedule) {
  std::vector<std::string> outermost;
  for (const BlockSite& site : block_sites(schedule.func().body)) {
    if (!site.loops.empty()) outermost.push_back(site.loops[0]->var.name());
  }
  for (const std::string& outer : outermost) {
    const For* loop = schedule.find_loop(outer);
    if (loop == nullptr || has_bound_loop(Stmt(loop))) continue;
    if (!schedule.apply(Split{outer, {1, 0}, {outer + ".grid", outer}})) return false;
    if (!schedule.apply(Bind{outer + ".grid", "block.x"})) return false;
  }
  return true;
}

TEST_P(LowerRandomTraces, KeepsTheResultsOnAGrid) {
  const Workload& w = GetParam();
  int64_t count = from_environment("MCC_RANDOM_TRACES", 24), seed = from_environment("MCC_RANDOM_SEED", 1);
  Target target;
  target.kind = TargetKind::cuda;
  for (int64_t i = seed; i < seed + count; ++i) {
    Random random(static_cast<uint64_t>(i));
    Trace trace = random_trace(w.func, random, 4 + static_cast<int>(i % 16));
    Schedule schedule(w.func);
    ASSERT_TRUE(schedule.replay(trace));
    if (!complete_grid(schedule)) continue;
    SCOPED_TRACE(text(w.name, ", seed ", i, "\n", to_text(schedule.trace()), "\n", to_text(schedule.func())));
    Func lowered = expect_lowers(schedule.func(), w.dims, {1e-4, 1e-4}, target);
    EXPECT_THAT(verify(lowered, Stage::lowered), testing::ElementsAre()) << to_text(lowered);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, LowerRandomTraces, testing::ValuesIn(all_workloads()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mcc::tensor::test
