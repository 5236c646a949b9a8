// The tuner's loop with a measurer that makes times up: what is asked of it, recorded, and said.
#include "tuner/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "support/hash.h"
#include "tensor/text.h"
#include "tuner/tasks.h"

namespace mcc::tuner {
namespace {

using test::small_target;

tensor::Target test_target() { return small_target(); }

Task task_from(const std::string& name, int64_t weight, const std::string& source) {
  Result<tensor::Func> f = tensor::parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors());
  Task task = test::task_of(name, *f);
  task.id = name;
  task.weight = weight;
  task.work = tensor::work_of(*f);
  return task;
}

std::vector<Task> test_tasks() {
  return {task_from("matmul", 3, R"(func f(a: f32[24, 32], b: f32[32, 40]) -> (c: f32[24, 40]) {
  for i in 24 { for j in 40 { for k in 32 {
    block matmul(x = i: spatial 24, y = j: spatial 40, z = k: reduce 32)
      reads a[x, z], b[z, y]
      writes c[x, y] {
      init { c[x, y] = 0.0 }
      c[x, y] = c[x, y] + a[x, z] * b[z, y]
    }
  } } }
})"),
          task_from("add", 1, R"(func f(a: f32[24, 64], b: f32[24, 64]) -> (c: f32[24, 64]) {
  for i in 24 { for j in 64 {
    block add(x = i: spatial 24, y = j: spatial 64)
      reads a[x, y], b[x, y]
      writes c[x, y] {
      c[x, y] = a[x, y] + b[x, y]
    }
  } }
})")};
}

// A time that depends on the schedule only; some schedules fail.
double made_up_us(const Candidate& candidate) {
  uint64_t h = hash_bytes(to_text(candidate.trace));
  return 50 + static_cast<double>(h % 1000) / 10;
}

class FakeMeasurer : public Measurer {
 public:
  Result<std::vector<Measurement>> measure(const Task&, std::span<const Candidate> candidates, const MeasureOptions& options) override {
    incumbents.push_back(options.incumbent_us);
    is_fresh_ = options.is_fresh;
    std::vector<Measurement> out;
    for (const Candidate& c : candidates) {
      seen.push_back(to_text(c.trace));
      Measurement m;
      if (fails && hash_bytes(to_text(c.trace)) % 5 == 0) {
        m.error = TrialError::crash;
        m.message = "ended by SIGSEGV";
      } else {
        m.times_us = {made_up_us(c)};
        if (luck_us > 0 && !is_fresh_) m.times_us[0] -= static_cast<double>(hash_bytes(to_text(c.trace), 7) % 1000) * luck_us / 1000;
        m.is_checked = true;
      }
      out.push_back(std::move(m));
    }
    return out;
  }

  void begin(const Task& task, std::span<const Candidate> candidates,
             const MeasureOptions& options) override {
    EXPECT_TRUE(std::none_of(under_way.begin(), under_way.end(), [&](const auto& round) {
      return round.first == task.id;
    })) << "two rounds of a task at once";
    under_way.emplace_back(task.id, candidates.size());
    most_under_way = std::max(most_under_way, under_way.size());
    Measurer::begin(task, candidates, options);
  }
  Result<std::vector<Measurement>> finish() override {
    under_way.pop_front();
    return Measurer::finish();
  }
  void abandon() override {
    under_way.clear();
    Measurer::abandon();
  }

  std::deque<std::pair<std::string, size_t>> under_way;  // rounds begun and not finished: task, candidates
  size_t most_under_way = 0;
  bool fails = false;
  double luck_us = 0;  // that a first measurement is too low by, at most
  std::vector<std::string> seen;
  std::vector<double> incumbents;

 private:
  bool is_fresh_ = false;
};

struct FakeRun {
  FakeMeasurer measurer;
  std::vector<std::vector<Trial>> recorded, races;
  std::function<bool(const TuneState&)> wants_pause;
  std::function<void(const TuneState&)> pause;
  double now = 0;

  Result<TuneReport> operator()(const std::vector<Task>& tasks, TuneOptions options,
                                const std::vector<std::vector<Trial>>& known = {}, int interrupt_after = 0) {
    recorded.resize(tasks.size());
    races.resize(tasks.size());
    int rounds = 0;
    TuneHooks hooks;
    hooks.clock = [this] { return now += 0.01; };
    hooks.record = [&](const Task& task, std::span<const Trial> trials) -> Status {
      for (size_t i = 0; i < tasks.size(); ++i) {
        if (tasks[i].id == task.id) recorded[i].insert(recorded[i].end(), trials.begin(), trials.end());
      }
      return done();
    };
    hooks.record_race = [&](const Task& task, std::span<const Trial> trials) -> Status {
      for (size_t i = 0; i < tasks.size(); ++i) {
        if (tasks[i].id == task.id) races[i].assign(trials.begin(), trials.end());
      }
      return done();
    };
    hooks.progress = [&](const TuneState&) { ++rounds; };
    hooks.wants_pause = wants_pause;
    hooks.pause = pause;
    hooks.is_interrupted = [&, interrupt_after] { return interrupt_after > 0 && rounds >= interrupt_after; };
    options.scheduler.stop_gain = 0;
    return tune(tasks, test_target(), measurer, known, options, hooks);
  }
};

TuneOptions trials(int64_t count, std::string search = "random") {
  TuneOptions options;
  options.trials = count;
  options.search = std::move(search);
  options.cost_model = "none";
  options.finalists = 0;
  return options;
}

TEST(Tune, MeasuresAsManyTrialsAsItMay) {
  FakeRun run;
  Result<TuneReport> report = run(test_tasks(), trials(40));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->trials, 40);
  EXPECT_EQ(run.measurer.seen.size(), 40u);
  EXPECT_EQ(report->end, TuneEnd::trials);
}

TEST(Tune, RecordsEveryTrialAndReportsTheBest) {
  FakeRun run;
  std::vector<Task> tasks = test_tasks();
  Result<TuneReport> report = run(tasks, trials(60));
  ASSERT_TRUE(report.ok());
  size_t count = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    double best = std::numeric_limits<double>::infinity();
    for (const Trial& t : run.recorded[i]) best = std::min(best, t.measurement.best_us());
    EXPECT_EQ(report->tasks[i].best_us, best);
    count += run.recorded[i].size();
  }
  EXPECT_EQ(count, run.measurer.seen.size());
}

TEST(Tune, BeginsWithTheDefaultOfEveryTask) {
  FakeRun run;
  std::vector<Task> tasks = test_tasks();
  ASSERT_TRUE(run(tasks, trials(60)).ok());
  for (size_t i = 0; i < tasks.size(); ++i) {
    PreferredDecider preferred;
    Planned planned = plan_point(all_sketches()[0], tasks[i].func, test_target(), {}, preferred);
    ASSERT_FALSE(run.recorded[i].empty());
    EXPECT_EQ(to_text(run.recorded[i][0].candidate.trace), to_text(planned.candidate.trace));
  }
}

TEST(Tune, GoesOnWhereAnEarlierRunEnded) {
  std::vector<Task> tasks = test_tasks();
  FakeRun first, second;
  ASSERT_TRUE(first(tasks, trials(30)).ok());
  Result<TuneReport> report = second(tasks, trials(30), first.recorded);
  ASSERT_TRUE(report.ok());
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::set<std::string> known;
    for (const Trial& t : first.recorded[i]) known.insert(to_text(t.candidate.trace));
    double best = std::numeric_limits<double>::infinity();
    for (const Trial& t : first.recorded[i]) best = std::min(best, t.measurement.best_us());
    for (const Trial& t : second.recorded[i]) EXPECT_EQ(known.count(to_text(t.candidate.trace)), 0u) << "measured again";
    EXPECT_LE(report->tasks[i].best_us, best);
  }
}

// What mcc log import leaves in a log: candidates without a time.
TEST(Tune, MeasuresSeedsAfterTheDefaultAndOnce) {
  std::vector<Task> tasks{test_tasks()[0]};
  FakeRun first, second, third;
  ASSERT_TRUE(first(tasks, trials(12)).ok());
  std::vector<Trial> seeds(first.recorded[0].end() - 3, first.recorded[0].end());
  for (Trial& t : seeds) t.measurement = {};
  ASSERT_TRUE(second(tasks, trials(12), {seeds}).ok());
  PreferredDecider preferred;
  Planned planned = plan_point(all_sketches()[0], tasks[0].func, test_target(), {}, preferred);
  EXPECT_EQ(second.measurer.seen[0], to_text(planned.candidate.trace));
  std::vector<std::string> after(second.measurer.seen.begin() + 1, second.measurer.seen.begin() + 4);
  for (size_t i = 0; i < seeds.size(); ++i) EXPECT_EQ(after[i], to_text(seeds[i].candidate.trace));

  std::vector<Trial> both = second.recorded[0];
  both.insert(both.begin(), seeds.begin(), seeds.end());
  ASSERT_TRUE(third(tasks, trials(12), {both}).ok());
  for (const Trial& seed : seeds) {
    const std::string trace = to_text(seed.candidate.trace);
    EXPECT_EQ(std::count(third.measurer.seen.begin(), third.measurer.seen.end(), trace), 0);
  }
}

// A log that has been cut down to its best trials: the default is measured again, and reported.
TEST(Tune, MeasuresTheDefaultWhenALogLacksIt) {
  std::vector<Task> tasks{test_tasks()[0]};
  FakeRun first, second;
  ASSERT_TRUE(first(tasks, trials(12)).ok());
  Result<TuneReport> report = second(tasks, trials(12), {{first.recorded[0][5]}});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tasks[0].default_us, first.recorded[0][0].measurement.best_us());
}

TEST(Tune, SameSeedSameCandidates) {
  FakeRun a, b, c;
  TuneOptions options = trials(50, "evolutionary");
  ASSERT_TRUE(a(test_tasks(), options).ok());
  ASSERT_TRUE(b(test_tasks(), options).ok());
  options.seed = 1;
  ASSERT_TRUE(c(test_tasks(), options).ok());
  EXPECT_EQ(a.measurer.seen, b.measurer.seen);
  EXPECT_NE(a.measurer.seen, c.measurer.seen);
}

// Tasks of equal hope, so that it is worth having rounds of several of them under way.
std::vector<Task> like_tasks(int count) {
  std::vector<Task> tasks;
  for (int i = 0; i < count; ++i) {
    tasks.push_back(test_tasks()[0]);
    tasks.back().id = tasks.back().name = "matmul" + std::to_string(i);
  }
  return tasks;
}

TEST(Tune, BeginsRoundsOfOtherTasksWhileOneIsMeasured) {
  for (const int64_t count : {10, 150}) {
    FakeRun run, again, one_by_one;
    TuneOptions options = trials(count);
    options.finalists = 4;
    ASSERT_TRUE(one_by_one(like_tasks(6), options).ok());
    EXPECT_EQ(one_by_one.measurer.most_under_way, 1u);
    options.ahead = 10;
    Result<TuneReport> report = run(like_tasks(6), options);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->trials, count);
    EXPECT_GT(run.measurer.most_under_way, 2u);
    EXPECT_TRUE(run.measurer.under_way.empty());
    size_t recorded = 0;
    for (const std::vector<Trial>& trials : run.recorded)
      recorded += trials.size();
    EXPECT_EQ(recorded, static_cast<size_t>(count));
    ASSERT_TRUE(again(like_tasks(6), options).ok());
    EXPECT_EQ(run.measurer.seen, again.measurer.seen);
  }
}

TEST(Tune, WhatWasBegunWhenItIsInterruptedIsAbandoned) {
  FakeRun run;
  TuneOptions options = trials(1000);
  options.ahead = 8;
  Result<TuneReport> report = run(like_tasks(6), options, {}, 2);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->end, TuneEnd::interrupted);
  EXPECT_EQ(static_cast<size_t>(report->trials), run.measurer.seen.size());
  EXPECT_GT(run.measurer.most_under_way, 1u);
  EXPECT_TRUE(run.measurer.under_way.empty());
}

TEST(Tune, NothingIsMeasuredDuringAPause) {
  FakeRun run;
  TuneOptions options = trials(100);
  options.ahead = 8;
  std::vector<size_t> under_way;
  run.wants_pause = [&](const TuneState& state) { return state.trials >= 40 && under_way.empty(); };
  run.pause = [&](const TuneState&) { under_way.push_back(run.measurer.under_way.size()); };
  Result<TuneReport> report = run(like_tasks(6), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(under_way, std::vector<size_t>{0});
  EXPECT_EQ(report->trials, 100) << "it goes on";
}

TEST(Tune, EndsWhenInterruptedWithWhatThereIs) {
  FakeRun run;
  Result<TuneReport> report = run(test_tasks(), trials(1000), {}, 2);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->end, TuneEnd::interrupted);
  EXPECT_EQ(static_cast<size_t>(report->trials), run.measurer.seen.size());
  EXPECT_LT(report->trials, 100);
}

TEST(Tune, EndsWhenTheTimeIsUp) {
  FakeRun run;
  TuneOptions options = trials(0);
  options.seconds = 0.5;
  Result<TuneReport> report = run(test_tasks(), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->end, TuneEnd::time);
}

TEST(Tune, CountsFailuresAndNeverTakesThemForTheBest) {
  FakeRun run;
  run.measurer.fails = true;
  Result<TuneReport> report = run(test_tasks(), trials(120));
  ASSERT_TRUE(report.ok());
  int crashes = 0;
  for (const TaskReport& task : report->tasks) {
    for (const auto& [error, count] : task.errors) {
      EXPECT_EQ(error, TrialError::crash);
      crashes += count;
    }
  }
  size_t expected = 0;
  for (const std::vector<Trial>& trials : run.recorded) {
    for (const Trial& t : trials) expected += t.measurement.ok() ? 0 : 1;
  }
  EXPECT_EQ(static_cast<size_t>(crashes), expected);
  EXPECT_GT(crashes, 0);
}

// The least of many measurements that are too low by chance is not the fastest schedule.
TEST(Tune, RacesTheFastestAndTheDefaultAtTheEnd) {
  std::vector<Task> tasks = test_tasks();
  int mended = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    FakeRun run;
    run.measurer.luck_us = 30;
    TuneOptions options = trials(60);
    options.finalists = 4;
    options.seed = seed;
    Result<TuneReport> report = run(tasks, options);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->trials, 60) << "what is measured again is no new trial";
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::vector<Trial>& race = run.races[i];
      if (i > 0 && race.empty()) continue;  // nothing comes near the default
      ASSERT_GE(race.size(), 2u);
      ASSERT_LE(race.size(), 5u);
      auto time = [](const Trial& t) { return t.measurement.best_us(); };
      auto trace = [](const Trial& t) { return to_text(t.candidate.trace); };
      auto least = [&](const std::vector<Trial>& among) {
        return *std::min_element(among.begin(), among.end(), [&](const Trial& a, const Trial& b) { return time(a) < time(b); });
      };
      auto is_there = [&](const Trial& wanted) {
        return std::any_of(race.begin(), race.end(), [&](const Trial& t) { return trace(t) == trace(wanted); });
      };
      const Trial lucky = least(run.recorded[i]), winner = race.back();
      EXPECT_EQ(time(winner), time(least(race))) << "the winner comes last";
      EXPECT_TRUE(is_there(lucky));
      EXPECT_TRUE(is_there(run.recorded[i][0])) << "the default";
      mended += trace(lucky) != trace(winner) ? 1 : 0;
      EXPECT_EQ(report->tasks[i].best_us, time(winner));
      EXPECT_GE(report->tasks[i].default_us, time(winner));
    }
  }
  EXPECT_GT(mended, 0) << "there was nothing to mend";
}

// A race of a few milliseconds each does not put out what won an earlier one by a hair's breadth.
TEST(Tune, KeepsTheChampionUnlessItIsClearlyBeaten) {
  const std::vector<Task> tasks{test_tasks()[0]};
  FakeRun before;
  ASSERT_TRUE(before(tasks, trials(60)).ok());
  std::vector<Trial> known = before.recorded[0];
  auto time = [](const Trial& t) { return t.measurement.best_us(); };
  std::stable_sort(known.begin(), known.end(), [&](const Trial& a, const Trial& b) { return time(a) < time(b); });
  auto races_with = [&](size_t champion) {
    FakeRun run;
    std::vector<Trial> trials_before = known;
    trials_before[champion].is_champion = true;
    TuneOptions options = trials(4);
    options.finalists = 4;
    EXPECT_TRUE(run(tasks, options, {trials_before}).ok());
    return run.races[0];
  };
  int kept = 0, lost = 0;
  for (size_t champion = 1; champion < known.size() && time(known[champion]) < 1.3 * time(known[0]); ++champion) {
    const std::vector<Trial> race = races_with(champion);
    ASSERT_GE(race.size(), 2u);
    double least = time(race[0]);
    for (const Trial& t : race) least = std::min(least, time(t));
    if (time(known[champion]) * 0.96 <= least) {
      EXPECT_EQ(to_text(race.back().candidate.trace), to_text(known[champion].candidate.trace));
      ++kept;
    } else {
      EXPECT_EQ(time(race.back()), least);
      ++lost;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(lost, 0);
}

TEST(Tune, RacesWithinTheTimeAndNotAfterAnInterruption) {
  FakeRun timed, interrupted, again;
  TuneOptions options = trials(0);
  options.finalists = 4;
  options.seconds = 0.5;
  Result<TuneReport> report = timed(test_tasks(), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->end, TuneEnd::time);
  EXPECT_FALSE(timed.races[0].empty() && timed.races[1].empty());
  EXPECT_LT(report->seconds, options.seconds + 0.1);

  options.seconds = 0;
  ASSERT_TRUE(interrupted(test_tasks(), options, {}, 3).ok());
  for (const std::vector<Trial>& race : interrupted.races) EXPECT_TRUE(race.empty());
  // Where nothing new was measured, there is nothing to decide.
  ASSERT_TRUE(again(test_tasks(), options, timed.recorded, 1).ok());
  for (const std::vector<Trial>& race : again.races) EXPECT_TRUE(race.empty());
}

TEST(Tune, PassesTheBestOnAsIncumbent) {
  FakeRun run;
  std::vector<Task> tasks{test_tasks()[0]};
  ASSERT_TRUE(run(tasks, trials(40)).ok());
  EXPECT_EQ(run.measurer.incumbents[0], 0);
  for (size_t i = 1; i < run.measurer.incumbents.size(); ++i) EXPECT_GT(run.measurer.incumbents[i], 0);
}

}  // namespace
}  // namespace mcc::tuner
