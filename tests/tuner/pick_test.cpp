// What analysis picks, and what the figures of a builder change about it.
#include "tuner/pick.h"

#include <gtest/gtest.h>

#include <functional>

#include "tuner/log_fixture.h"
#include "tuner/replay.h"

namespace mcc::tuner {
namespace {

using namespace test;

tensor::Target gpu_target() {
  tensor::Target target;
  target.kind = tensor::TargetKind::cuda;
  target.cpu = "sm_80";
  target.vector_bits = 128;
  target.gpu = *tensor::find_gpu("sm_80");
  return target;
}

// Says of each point what the test wants.
class Builder : public TrialBuilder {
 public:
  explicit Builder(std::function<BuildFigures(const Planned&, size_t)> says) : says_(std::move(says)) {}
  BuildFigures build(const Task&, const Planned& planned) override { return says_(planned, count++); }
  size_t count = 0;

 private:
  std::function<BuildFigures(const Planned&, size_t)> says_;
};

BuildFigures good() {
  BuildFigures figures;
  figures.launches = {{64, 4096, 0}};
  return figures;
}

BuildFigures failed(TrialError error) {
  BuildFigures figures;
  figures.error = error;
  return figures;
}

TEST(Pick, IsLegalAndNotWorseThanTheDefault) {
  for (const tensor::Target& target : {test_target(), gpu_target()}) {
    for (auto [n, k, m] : {std::tuple{256, 256, 256}, {1, 300, 64}, {33, 7, 5}}) {
      Task task = matmul_task(n, k, m);
      Pick picked = pick(task, target, nullptr, {.drafts = 32, .rounds = 2});
      EXPECT_TRUE(replay(task.func, picked.candidate.trace).ok());
      EXPECT_LE(picked.estimate_us, picked.default_estimate_us);
      EXPECT_GE(picked.ranked, 1);
      EXPECT_EQ(picked.built, 0);
      Pick again = pick(task, target, nullptr, {.drafts = 32, .rounds = 2});
      EXPECT_EQ(to_text(again.candidate.trace), to_text(picked.candidate.trace));
      EXPECT_EQ(again.estimate_us, picked.estimate_us);
    }
  }
}

TEST(Pick, BuildsTheBestAndTheDefault) {
  Task task = matmul_task(512, 512, 512);
  Builder builder([](const Planned&, size_t) { return good(); });
  Pick picked = pick(task, gpu_target(), &builder, {.drafts = 32, .rounds = 1, .built = 5});
  EXPECT_EQ(builder.count, 6U);
  EXPECT_EQ(picked.built, 6);
  EXPECT_TRUE(picked.is_built);
  EXPECT_EQ(picked.figures.size(), 1U);
}

TEST(Pick, TakesTheOneWithoutSpills) {
  Task task = matmul_task(512, 512, 512);
  std::string third;
  Builder builder([&](const Planned& planned, size_t n) {
    BuildFigures figures = good();
    if (n == 3) {
      third = to_text(planned.candidate.trace);
    } else {
      figures.launches[0].spilled_bytes = 8;
    }
    return figures;
  });
  Pick picked = pick(task, gpu_target(), &builder, {.drafts = 32, .rounds = 1});
  EXPECT_EQ(to_text(picked.candidate.trace), third);
  EXPECT_FALSE(picked.is_default);
}

TEST(Pick, LeavesOutWhatCannotBeBuilt) {
  Task task = matmul_task(512, 512, 512);
  Builder only_default([](const Planned&, size_t n) {
    return n == 0 ? good() : failed(n % 2 ? TrialError::rejected : TrialError::build);
  });
  Pick picked = pick(task, gpu_target(), &only_default, {.drafts = 32, .rounds = 1, .built = 4});
  EXPECT_TRUE(picked.is_default);
  EXPECT_EQ(picked.errors.at(TrialError::rejected), 2);
  EXPECT_EQ(picked.errors.at(TrialError::build), 2);
  Builder none([](const Planned&, size_t) { return failed(TrialError::build); });
  EXPECT_FALSE(pick(task, gpu_target(), &none, {.drafts = 32, .rounds = 1}).is_built);
}

// ---- In a log ----

LogEntry picked_entry(const Task& task, double estimate_us) {
  LogEntry entry = default_entry(task, 1);
  entry.trial.measurement = {};
  entry.source = "picked";
  entry.estimate_us = estimate_us;
  return entry;
}

TEST(PickedTrial, HasNoTimeAndIsNotValid) {
  TemporaryFolder folder;
  Task task = matmul_task(8, 32);
  const std::string path = folder.file("log.json");
  {
    Result<LogWriter> log = LogWriter::open(path);
    ASSERT_TRUE(log.ok());
    for (double us : {5.0, 7.0}) {
      LogEntry entry = picked_entry(task, us);
      ASSERT_TRUE(log->append(log_task(task), std::span(&entry, 1)).ok());
    }
  }
  LogReadOptions options;
  options.keep = 4;
  Result<LogContents> contents = read_log(path, options);
  ASSERT_TRUE(contents.ok());
  ASSERT_EQ(contents->entries.size(), 1U) << "the latest";
  const LogEntry& entry = contents->entries[0];
  EXPECT_EQ(entry.estimate_us, 7);
  EXPECT_TRUE(is_picked(entry));
  EXPECT_FALSE(is_valid(entry));
  const LogCounts& counts = contents->counts.at(key_of(entry));
  EXPECT_EQ(counts.picked, 2);
  EXPECT_EQ(counts.trials, 0);
  EXPECT_EQ(counts.best_us, 0);
}

TEST(PickedTrial, WithATimeIsLeftOut) {
  TemporaryFolder folder;
  Task task = matmul_task(8, 32);
  LogEntry entry = picked_entry(task, 5);
  entry.trial.measurement.times_us = {3};
  const std::string path = folder.file("log.json");
  write_bytes(path, task_line(log_task(task)) + "\n" + entry_line(entry) + "\n");
  Result<LogContents> contents = read_log(path);
  ASSERT_TRUE(contents.ok());
  EXPECT_EQ(contents->skipped, 1);
  EXPECT_NE(contents->complaints[0].find("expected none of a picked trial"), std::string::npos);
}

}  // namespace
}  // namespace mcc::tuner
