// What a log gives for a kernel.
#include <gmock/gmock.h>

#include "tuner/log_fixture.h"
#include "tuner/log_lookup.h"
#include "tuner/replay.h"
#include "tuner/sketch.h"

namespace mcc::tuner {
namespace {

using namespace test;
using ::testing::HasSubstr;

class NotPreferred : public Decider {
 public:
  Answer answer(const Choice& choice, const Answer& preferred) override {
    if (choice.name.ends_with(".rows")) return {choice.options.front()};
    return preferred;
  }
};

// A valid trial of another schedule than the default one.
LogEntry tuned_entry(const Task& task, double us, const tensor::Target& target = test_target()) {
  NotPreferred decide;
  Planned planned = plan_point(all_sketches()[0], task.func, target, {}, decide);
  MCC_CHECK(planned.ok(), planned.outcome.detail);
  LogEntry entry = default_entry(task, us, target);
  entry.trial.candidate = planned.candidate;
  return entry;
}

LogIndex index_of(const std::vector<Task>& tasks, std::vector<LogEntry> entries) {
  LogContents contents;
  for (const Task& task : tasks) contents.tasks.push_back(log_task(task));
  for (LogEntry& entry : entries) entry.line = &entry - entries.data() + 10;
  contents.entries = std::move(entries);
  return LogIndex(std::move(contents));
}

LogMatch find(const LogIndex& index, const Task& task, int threads = 2) {
  return index.find(task.func, task.text, test_target(), threads);
}

TEST(LogLookup, AnchorsHaveNoNumbers) {
  EXPECT_EQ(anchor_of("for i.0 in 16 { x1[i*4 + 2] = 0.5:f16 }"), "for i.0 in # { x1[i*# + #] = 0.5:f16 }");
  EXPECT_EQ(anchor_of(matmul_text(8, 32)), anchor_of(matmul_text(100, 7)));
  EXPECT_EQ(distance_of(matmul_text(8, 32), matmul_text(8, 32)), 0);
  EXPECT_NEAR(distance_of(matmul_text(8, 32), matmul_text(16, 32)), std::log(2), 1e-9);
  EXPECT_GT(distance_of(matmul_text(8, 32), matmul_text(64, 32)), distance_of(matmul_text(8, 32), matmul_text(16, 32)));
}

// Which of two schedules is faster is known at the sizes of the last search alone.
TEST(LogLookup, OfOpenDimensionsTheLastSizesCount) {
  constexpr const char* kDoubled = R"(func kernel<n>(x: f32[n]) -> (y: f32[n]) @{sizes="1..~64"} {
  for i in n {
    block y(a = i: spatial n)
        reads x[a]
        writes y[a] {
      y[a] = x[a] * 2.0
    }
  }
})";
  TemporaryFolder folder;
  Task task;
  task.func = *tensor::parse_func(kDoubled);
  task.text = to_text(task.func);
  task.id = "doubled";
  task.name = "y";
  LogEntry picked = default_entry(task, 1), failed = default_entry(task, 1);
  LogEntry before = default_entry(task, 1), last = default_entry(task, 5), next = default_entry(task, 6);
  last.trial.candidate.trace = *tensor::parse_trace("split(loop=\"i\", factors=[0, 4])");
  before.sizes = {64};
  last.sizes = next.sizes = {8};
  // Not to go by: what was not measured, or did not run.
  picked.trial.measurement = {};
  picked.source = "picked";
  failed.trial.measurement = {};
  failed.trial.measurement.error = TrialError::timeout;
  picked.sizes = failed.sizes = {5};
  const std::vector<LogEntry> entries{before, last, next, picked, failed};
  ASSERT_TRUE(write_log(folder.file("log.json"), std::vector{log_task(task)}, entries).ok());
  for (int keep : {0, 1, 16}) {
    LogReadOptions options;
    options.keep = keep;
    LogContents log = *read_log(folder.file("log.json"), options);
    EXPECT_EQ(log.counts.size(), 3U);
    EXPECT_EQ(log.counts.at(key_of(before)).best_us, 1);
    EXPECT_EQ(log.counts.at(key_of(last)).best_us, 5);
    EXPECT_FALSE(log.has_last_sizes(before));
    EXPECT_TRUE(log.has_last_sizes(last));
    const LogMatch match = LogIndex(std::move(log)).find(task.func, task.text, test_target(), 2);
    EXPECT_EQ(match.found, Found::exact);
    EXPECT_EQ(match.best_us, 5);
    EXPECT_EQ(match.sizes, std::vector<int64_t>{8});
    EXPECT_EQ(to_text(match.schedule->trace()), to_text(last.trial.candidate.trace));
  }
}

TEST(LogLookup, AMeasuredOneGoesBeforeAPickedOne) {
  Task task = matmul_task(48, 64);
  LogEntry picked = tuned_entry(task, 1);
  picked.trial.measurement = {};
  picked.source = "picked";
  picked.estimate_us = 0.5;
  LogMatch match = find(index_of({task}, {picked}), task);
  EXPECT_EQ(match.found, Found::exact);
  EXPECT_TRUE(match.is_picked);
  EXPECT_EQ(match.estimate_us, 0.5);
  EXPECT_EQ(match.best_us, 0);
  match = find(index_of({task}, {picked, default_entry(task, 100), picked}), task);
  EXPECT_FALSE(match.is_picked);
  EXPECT_EQ(match.best_us, 100);
  EXPECT_EQ(find(index_of({task}, {picked}), task, 1).found, Found::none) << "for other threads it says nothing";
}

TEST(LogLookup, TheFastestOfTheSameTask) {
  Task task = matmul_task(48, 64), other = matmul_task(24, 64);
  LogIndex index = index_of({task, other}, {default_entry(task, 9), tuned_entry(task, 5), tuned_entry(other, 1)});
  LogMatch match = find(index, task);
  EXPECT_EQ(match.found, Found::exact);
  EXPECT_EQ(match.confidence, 1);
  EXPECT_EQ(match.line, 11);
  EXPECT_EQ(match.best_us, 5);
  EXPECT_EQ(match.runner_up_us, 9);
  EXPECT_EQ(to_text(match.schedule->trace()), to_text(tuned_entry(task, 5).trial.candidate.trace));
}

TEST(LogLookup, WhatDoesNotApplyIsSaidAndTheNextIsTaken) {
  Task task = matmul_task(48, 64);
  LogEntry bad = default_entry(task, 1), endless = default_entry(task, 2), large = default_entry(task, 3);
  bad.trial.candidate.trace = *tensor::parse_trace("vectorize(loop=\"nowhere\")");
  endless.trial.candidate.trace = *tensor::parse_trace("split(loop=\"matmul.i\", factors=[0, 2147483648])");
  large.trial.candidate.trace = *tensor::parse_trace(
      "unroll(loop=\"matmul.i\")\nunroll(loop=\"matmul.j\")\nunroll(loop=\"matmul.k\")");
  LogIndex index = index_of({task}, {bad, endless, large, tuned_entry(task, 5)});
  LogMatch match = find(index, task);
  EXPECT_EQ(match.found, Found::exact);
  EXPECT_EQ(match.line, 13);
  ASSERT_EQ(match.notes.size(), 3u);
  EXPECT_THAT(match.notes[0], HasSubstr("line 10: the schedule does not apply: step 1, vectorize(loop=\"nowhere\")"));
  EXPECT_THAT(match.notes[1], HasSubstr("line 11: "));
  EXPECT_THAT(match.notes[2], HasSubstr("line 12: expected at most 16384 unrolled copies"));
}

TEST(LogLookup, InvalidEntriesAreNotUsed) {
  Task task = matmul_task(48, 64);
  std::vector<LogEntry> entries(4, default_entry(task, 1));
  entries[0].trial.measurement.is_checked = false;
  entries[1].trial.measurement.is_censored = true;
  entries[2].trial.measurement.error = TrialError::wrong;
  entries[3].source = "import";
  EXPECT_EQ(find(index_of({task}, entries), task).found, Found::none);
  EXPECT_EQ(find(LogIndex(), task).found, Found::none);
}

TEST(LogLookup, OtherExtentsAndThreadsGiveTheirDecisions) {
  Task task = matmul_task(48, 64), near = matmul_task(48, 128), far = matmul_task(48, 4096);
  LogIndex index = index_of({near, far}, {tuned_entry(far, 1), tuned_entry(near, 5)});
  LogMatch match = find(index, task);
  EXPECT_EQ(match.found, Found::nearest);
  EXPECT_EQ(match.line, 11);
  EXPECT_THAT(match.reason, HasSubstr(near.id));
  EXPECT_LT(match.confidence, 1);
  EXPECT_GT(match.confidence, LogIndex::kLeastConfidence);
  EXPECT_EQ(to_text(match.schedule->trace()), to_text(tuned_entry(task, 1).trial.candidate.trace));
  // Nothing else is near.
  EXPECT_EQ(find(index_of({far}, {tuned_entry(far, 1)}), task).found, Found::none);

  LogMatch threads = find(index_of({task}, {tuned_entry(task, 5)}), task, 1);
  EXPECT_EQ(threads.found, Found::nearest);
  EXPECT_THAT(threads.reason, HasSubstr("2 threads"));

  tensor::Target machine = test_target();
  machine.cpu = "another";
  LogMatch target = find(index_of({task}, {tuned_entry(task, 5, machine)}), task);
  EXPECT_EQ(target.found, Found::nearest);
  EXPECT_THAT(target.reason, HasSubstr("target x86_64-unknown-linux-gnu another"));
}

TEST(LogLookup, HostilePointsAreOnlyData) {
  Task task = matmul_task(48, 64), near = matmul_task(48, 128);
  LogEntry entry = tuned_entry(near, 5);
  for (auto& [name, answer] : entry.trial.candidate.point) answer = {-1, INT64_MAX, 0};
  LogMatch match = find(index_of({near}, {entry}), task);
  EXPECT_EQ(match.found, Found::none);
  entry.trial.candidate.sketch = "../../bin/sh";
  match = find(index_of({near}, {entry}), task);
  EXPECT_EQ(match.found, Found::none);
  ASSERT_EQ(match.notes.size(), 1u);
  EXPECT_THAT(match.notes[0], HasSubstr("there is no sketch"));
}

TEST(Replay, DefaultSchedulesAreInProportion) {
  for (auto [n, k, m] : {std::array<int64_t, 3>{1, 1, 1}, {7, 13, 5}, {1024, 1024, 1024}, {1, 4096, 1000}}) {
    Task task = matmul_task(n, k, m);
    EXPECT_EQ(excess_of(task.func, default_schedule(task.func, test_target()).func()), "");
  }
}

}  // namespace
}  // namespace mcc::tuner
