// The task scheduler on made-up tasks whose time after n trials is known.
#include "tuner/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace mcc::tuner {
namespace {

struct Made {
  TaskState state;
  std::function<double(int trials)> best_us;
  double seconds_per_trial = 0.02;
  int space = 1 << 20;
};

Made made(const char* name, double weight, double start_us, double end_us, double half_life = 16) {
  Made m;
  m.state.name = name;
  m.state.weight = weight;
  m.state.flops = 1e6 * start_us;
  m.best_us = [=](int trials) {
    return end_us + (start_us - end_us) * std::pow(0.5, (trials - 1) / half_life);
  };
  return m;
}

// Runs rounds until the scheduler has enough or `rounds` are over; gives the number of rounds of each task.
std::vector<int> run(Scheduler& scheduler, const std::vector<Made>& tasks, int rounds, int per_round = 8) {
  std::vector<int> counts(tasks.size());
  while (rounds-- > 0) {
    std::optional<size_t> task = scheduler.next();
    if (!task) break;
    const Made& m = tasks[*task];
    int done = scheduler.tasks()[*task].trials;
    int trials = std::min(per_round, m.space - done);
    scheduler.report(*task, trials, trials * m.seconds_per_trial, m.best_us(done + trials),
                     done + trials >= m.space);
    ++counts[*task];
  }
  return counts;
}

Scheduler scheduler_of(const std::vector<Made>& tasks, SchedulerOptions options = {}) {
  std::vector<TaskState> states;
  for (const Made& m : tasks)
    states.push_back(m.state);
  return Scheduler(std::move(states), options);
}

TEST(Scheduler, StartsEveryTaskOnceBeforeAnyTwice) {
  std::vector<Made> tasks{made("a", 1, 1000, 100), made("b", 1, 10, 9), made("c", 1, 500, 400)};
  Scheduler s = scheduler_of(tasks);
  EXPECT_EQ(run(s, tasks, 3), (std::vector<int>{1, 1, 1}));
}

TEST(Scheduler, SpendsOnWhatTheModelGainsFrom) {
  // Equal kernels, one of which runs ten times as often.
  std::vector<Made> tasks{made("a", 10, 100, 20), made("b", 1, 100, 20)};
  Scheduler s = scheduler_of(tasks);
  std::vector<int> counts = run(s, tasks, 12);
  EXPECT_GT(counts[0], counts[1]);
}

TEST(Scheduler, CountsGainBySecond) {
  std::vector<Made> tasks{made("a", 1, 100, 20), made("b", 1, 100, 20)};
  tasks[1].seconds_per_trial = 0.2;
  Scheduler s = scheduler_of(tasks);
  std::vector<int> counts = run(s, tasks, 10);
  EXPECT_GT(counts[0], counts[1]);
}

// A task with a round under way gets no other one; there is none for anybody while the busy one promises much more.
TEST(Scheduler, LeavesBusyTasksAlone) {
  Scheduler s = scheduler_of({made("a", 8, 100, 20), made("b", 8, 100, 20), made("c", 1, 100, 20)});
  const size_t one[] = {0}, two[] = {0, 1};
  EXPECT_EQ(s.next(), 0u);
  EXPECT_EQ(s.next(one), 1u);
  EXPECT_EQ(s.next(two), 2u);
  for (size_t task : {0, 1, 2})
    s.report(task, 8, 1, 100, false);
  EXPECT_EQ(s.next(), 0u);
  EXPECT_EQ(s.next(one), 1u);
  EXPECT_EQ(s.next(two), std::nullopt);
}

TEST(Scheduler, LeavesATaskAtItsPlateau) {
  std::vector<Made> tasks{made("flat", 1, 100, 100), made("falling", 1, 100, 1, 200)};
  Scheduler s = scheduler_of(tasks);
  std::vector<int> counts = run(s, tasks, 60);
  EXPECT_LE(counts[0], 1 + SchedulerOptions().plateau_trials / 8);
  EXPECT_GT(counts[1], 2 * counts[0]);
}

TEST(Scheduler, LeavesATaskNearItsRoofline) {
  std::vector<Made> tasks{made("a", 1, 100, 95, 1)};
  tasks[0].state.lower_bound_us = 93;
  Scheduler s = scheduler_of(tasks);
  EXPECT_EQ(s.is_done(0), Done::no);
  run(s, tasks, 50);
  EXPECT_EQ(s.is_done(0), Done::roofline);
  EXPECT_EQ(s.next(), std::nullopt);
}

TEST(Scheduler, StopsASmallTaskEarly) {
  std::vector<Made> tasks{made("small", 1, 1, 0.1, 100), made("large", 1, 1000, 500, 100)};
  SchedulerOptions options;
  options.stop_gain = 0;
  Scheduler s = scheduler_of(tasks, options);
  run(s, tasks, 40);
  EXPECT_LE(s.tasks()[0].trials, options.small_trials);
}

TEST(Scheduler, StopsWhenSpacesAreUsedUp) {
  std::vector<Made> tasks{made("a", 1, 100, 1, 1000), made("b", 1, 100, 1, 1000)};
  for (Made& m : tasks)
    m.space = 20;
  Scheduler s = scheduler_of(tasks);
  EXPECT_EQ(run(s, tasks, 100), (std::vector<int>{3, 3}));
  EXPECT_EQ(s.is_done(0), Done::exhausted);
}

TEST(Scheduler, StopsByItself) {
  std::vector<Made> tasks{made("a", 3, 100, 60), made("b", 1, 300, 200), made("c", 2, 50, 49)};
  Scheduler s = scheduler_of(tasks);
  run(s, tasks, 10'000);
  EXPECT_EQ(s.next(), std::nullopt);
  EXPECT_NEAR(s.latency_us(), 3 * 60 + 200 + 2 * 49, 15);
}

TEST(Scheduler, SurvivesATaskWithoutAnyTime) {
  std::vector<Made> tasks{made("broken", 1, 100, 50), made("b", 1, 100, 50)};
  tasks[0].best_us = [](int) { return std::numeric_limits<double>::infinity(); };
  Scheduler s = scheduler_of(tasks);
  run(s, tasks, 200);
  EXPECT_EQ(s.next(), std::nullopt);
  EXPECT_TRUE(std::isfinite(s.latency_us()));
}

// The default schedule and its neighbours fail on the device: another one may not.
TEST(Scheduler, SearchesATaskWhoseFirstTrialsFail) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<Made> tasks{made("late", 1, 100, 50), made("b", 1, 100, 50), made("broken", 1, 100, 50)};
  tasks[0].best_us = [](int trials) { return trials < 20 ? kNever : 80; };
  tasks[2].best_us = [](int) { return kNever; };
  Scheduler s = scheduler_of(tasks);
  run(s, tasks, 200);
  EXPECT_EQ(s.tasks()[0].best_us, 80);
  EXPECT_GT(s.tasks()[0].trials, 24) << "and goes on from there";
  EXPECT_EQ(s.tasks()[2].trials, SchedulerOptions().failed_trials);
  EXPECT_EQ(s.is_done(2), Done::plateau);
}

// A GPU on which nothing runs is not tried for hours.
TEST(Scheduler, StopsWhereNothingWorks) {
  std::vector<Made> tasks;
  for (int i = 0; i < 20; ++i) {
    tasks.push_back(made("broken", 1, 100, 50));
    tasks.back().best_us = [](int) { return std::numeric_limits<double>::infinity(); };
  }
  Scheduler s = scheduler_of(tasks);
  EXPECT_EQ(run(s, tasks, 1000, 4), std::vector<int>(20, 1));
}

}  // namespace
}  // namespace mcc::tuner
