#include "tuner/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tasks.h"
#include "tensor/build.h"
#include "tuner/space.h"
#include "workloads.h"

namespace mcc::tuner::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;

// A matmul on packed weights whose space has some hundred points.
Task matmul_task() {
  FuncBuilder b("matmul");
  Buffer x = b.input("x", f32, {96, 64}), w = b.input("w", f32, {8, 64, 16});
  Buffer y = b.reduce("y", f32, {96, 8, 16}, {64}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {s[1], r[0], s[2]});
  });
  return task_of("matmul", b.finish({y}));
}

// A made-up machine: the time of a point is smooth in its answers, and least far from what analysis prefers.
double made_up_us(const Point& point) {
  double us = 10;
  for (const auto& [name, answer] : point) {
    double at = std::log2(static_cast<double>(answer.back()) + 1);
    double best = 1.1 + static_cast<double>(name.size() % 3);
    us += (at - best) * (at - best);
  }
  return us;
}

// Knows the made-up machine up to an error.
class MadeUpModel : public CostModel {
 public:
  std::vector<double> predict(const Task&, std::span<const Planned> schedules) override {
    std::vector<double> scores;
    for (const Planned& p : schedules) {
      double us = made_up_us(p.candidate.point);
      double error = Random(static_cast<uint64_t>(us * 1e6)).uniform();
      scores.push_back(1 / (us * (0.8 + 0.4 * error)));
      EXPECT_TRUE(p.func.body) << "models need the function";
    }
    return scores;
  }
  void learn(const Task&, std::span<const Trial> trials) override { known = trials.size(); }
  size_t known = 0;
};

struct SearchRun {
  std::vector<std::string> traces;
  double best_us = std::numeric_limits<double>::infinity();
};

Trial trial_of(const Candidate& candidate) {
  Trial trial{candidate, {}};
  trial.measurement.times_us = {made_up_us(candidate.point)};
  return trial;
}

SearchRun run_search(std::string_view name, const Task& task, uint64_t seed, size_t trials,
                     bool has_model = true, std::span<const Trial> earlier = {}) {
  Target target = small_target();
  MadeUpModel model, drafter;
  SearchContext context;
  context.task = &task;
  context.target = &target;
  context.sketches = all_sketches().first(1);
  if (has_model) context.model = &model, context.drafter = &drafter;
  context.seed = seed;
  std::unique_ptr<Search> search = make_search(name, context);
  if (!earlier.empty()) search->tell(earlier);
  SearchRun run;
  while (run.traces.size() < trials) {
    std::vector<Candidate> batch =
        search->next(static_cast<int>(std::min<size_t>(16, trials - run.traces.size())));
    if (batch.empty()) break;
    std::vector<Trial> results;
    for (const Candidate& c : batch) {
      run.traces.push_back(to_text(c.trace));
      results.push_back(trial_of(c));
      run.best_us = std::min(run.best_us, results.back().measurement.best_us());
    }
    search->tell(results);
  }
  return run;
}

class Searches : public testing::TestWithParam<std::string_view> {};

TEST_P(Searches, BeginWithWhatAnalysisPrefers) {
  Task task = matmul_task();
  Target target = small_target();
  PreferredDecider preferred;
  Planned planned = plan_point(all_sketches()[0], task.func, target, {}, preferred);
  EXPECT_EQ(run_search(GetParam(), task, 1, 1).traces, std::vector{to_text(planned.candidate.trace)});
}

TEST_P(Searches, NeverProposeTwice) {
  SearchRun run = run_search(GetParam(), matmul_task(), 1, 96);
  EXPECT_EQ(run.traces.size(), 96u);
  EXPECT_EQ(std::set(run.traces.begin(), run.traces.end()).size(), 96u);
}

TEST_P(Searches, SameSeedSameCandidates) {
  Task task = matmul_task();
  EXPECT_EQ(run_search(GetParam(), task, 5, 64).traces, run_search(GetParam(), task, 5, 64).traces);
  if (GetParam() != "grid") {
    EXPECT_NE(run_search(GetParam(), task, 5, 64).traces, run_search(GetParam(), task, 6, 64).traces);
  }
}

TEST_P(Searches, WorkWithoutAModel) {
  EXPECT_EQ(run_search(GetParam(), matmul_task(), 2, 48, false).traces.size(), 48u);
}

TEST_P(Searches, GoOnFromEarlierTrials) {
  Task task = matmul_task();
  Target target = small_target();
  Space space(task.func, target, all_sketches().first(1));
  std::vector<Trial> earlier;
  std::set<std::string> known;
  for (uint64_t i = 0; i < 30; ++i) {
    Planned planned = space.sample(*space.sketches()[0], Random(77, 0, i));
    if (planned.ok() && known.insert(to_text(planned.candidate.trace)).second)
      earlier.push_back(trial_of(planned.candidate));
  }
  // One from elsewhere, and one that failed.
  earlier.push_back({{"", {}, {}}, {}});
  earlier.back().measurement.error = TrialError::crash;
  for (const std::string& trace : run_search(GetParam(), task, 3, 48, true, earlier).traces) {
    EXPECT_EQ(known.count(trace), 0u);
  }
}

TEST_P(Searches, EndWithTheSpace) {
  // Few points: all of them, and then none.
  FuncBuilder b("small");
  Buffer x = b.input("x", f32, {6, 8}), w = b.input("w", f32, {8, 8});
  Buffer y = b.reduce("y", f32, {6, 8}, {8}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]});
  });
  Task task = task_of("small", b.finish({y}));
  Target target = small_target();
  Space space(task.func, target, all_sketches().first(1));
  space.go_through([](Planned&&) { return true; });
  ASSERT_TRUE(space.size().is_exact);
  EXPECT_EQ(static_cast<double>(run_search(GetParam(), task, 1, 5000).traces.size()), space.size().points);
}

INSTANTIATE_TEST_SUITE_P(All, Searches, testing::ValuesIn(search_names()),
                         [](const auto& info) { return std::string(info.param); });

TEST(SearchQuality, ModelsAndMemoryBeatChanceAtEqualTrials) {
  Task task = matmul_task();
  constexpr size_t kTrials = 40;
  constexpr int kSeeds = 5;
  auto mean_best = [&](std::string_view name) {
    double sum = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed)
      sum += run_search(name, task, seed, kTrials).best_us;
    return sum / kSeeds;
  };
  double random = mean_best("random");
  EXPECT_LT(mean_best("genetic"), random);
  EXPECT_LT(mean_best("evolutionary"), random);
  EXPECT_LT(mean_best("draft"), random);
  EXPECT_LT(mean_best("auto"), random);
}

TEST(SearchNames, UnknownIsNull) { EXPECT_EQ(make_search("annealing", {}), nullptr); }

}  // namespace
}  // namespace mcc::tuner::test
