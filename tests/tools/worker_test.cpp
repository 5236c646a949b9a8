// The measuring process as the tuner sees it: the real one, and ones that misbehave on purpose (a shell plays them).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "tensor/build.h"
#include "tensor/text.h"
#include "tools/measure/worker_measurer.h"
#include "tools/worker_process.h"

namespace mcc::tools {
namespace {

using tuner::Measurement;
using tuner::TrialError;

tuner::Task matmul(int64_t n) {
  using namespace tensor;
  FuncBuilder b("matmul");
  Buffer x = b.input("x", ElementType::f32, {n, n}), w = b.input("w", ElementType::f32, {n, n});
  Buffer y = b.reduce("y", ElementType::f32, {n, n}, {n}, Reducer::sum,
                      [&](Axes s, Axes r) { return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
  tuner::Task task;
  task.name = "matmul";
  task.func = b.finish({y});
  task.text = to_text(task.func);
  task.work = tensor::work_of(task.func);
  return task;
}

tuner::Candidate candidate(const std::string& trace) {
  tuner::Candidate c;
  c.trace = *tensor::parse_trace(trace);
  return c;
}

constexpr const char* kFast =
    "split(loop=\"y.i1\", factors=[0, 16], names=[\"jo\", \"jv\"])\n"
    "reorder(loops=[\"jo\", \"y.r0\", \"jv\"])\n"
    "vectorize(loop=\"jv\")\n";

WorkerOptions real_worker() {
  WorkerOptions options;
  options.command = {std::string(MCC_BUILD_DIR) + "/bin/mcc", "measure-worker"};
  return options;
}

TEST(Worker, MeasuresABatchAndTellsWhatIsWrongWithEach) {
  WorkerMeasurer measurer(real_worker());
  const std::vector<tuner::Candidate> candidates{candidate(kFast), candidate("vectorize(loop=\"nothing\")"),
                                                 candidate(""), candidate(kFast)};
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(64), candidates, {});
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  ASSERT_EQ(measured->size(), 4u);
  const Measurement& fast = (*measured)[0];
  EXPECT_TRUE(fast.ok()) << fast.message;
  EXPECT_TRUE(fast.is_checked);
  EXPECT_GT(fast.best_us(), 0);
  EXPECT_GE(fast.median_us(), fast.best_us());
  EXPECT_EQ((*measured)[1].error, TrialError::refused);
  EXPECT_NE((*measured)[1].message.find("nothing"), std::string::npos);
  EXPECT_TRUE((*measured)[2].ok()) << (*measured)[2].message;
  // Equal code is measured once.
  EXPECT_EQ((*measured)[3].times_us, fast.times_us);
  // What was measured before is known, unless it is to be measured again.
  tuner::MeasureOptions options;
  EXPECT_EQ((*measurer.measure(matmul(64), {&candidates[0], 1}, options))[0].times_us, fast.times_us);
  options.is_fresh = true;
  EXPECT_NE((*measurer.measure(matmul(64), {&candidates[0], 1}, options))[0].times_us, fast.times_us);
  EXPECT_EQ(measurer.workers_started(), 1);
}

TEST(Worker, MeasuresColdAndOnSeveralThreads) {
  WorkerMeasurer measurer(real_worker());
  const std::vector<tuner::Candidate> candidates{candidate("parallel(loop=\"y.i0\")"), candidate(kFast)};
  for (bool is_cold : {false, true}) {
    tuner::MeasureOptions options;
    options.threads = 2;
    options.is_cold = is_cold;
    Result<std::vector<Measurement>> measured = measurer.measure(matmul(64), candidates, options);
    ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
    for (const Measurement& m : *measured)
      EXPECT_TRUE(m.ok() && m.is_checked) << m.message;
  }
}

TEST(Worker, ARunThatTakesTooLongCostsOneCandidate) {
  WorkerMeasurer measurer(real_worker());
  const std::vector<tuner::Candidate> candidates{candidate(kFast), candidate(""),
                                                 candidate("unroll(loop=\"nothing\")")};
  tuner::MeasureOptions options;
  options.incumbent_us = 1;
  options.timeout_seconds = 0.3;
  // As scalar code this takes a second and more; as vectors a tenth of it.
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(1024), candidates, options);
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  EXPECT_EQ((*measured)[1].error, TrialError::timeout) << to_text((*measured)[1].error);
  EXPECT_EQ((*measured)[2].error, TrialError::refused);
  EXPECT_GE(measurer.workers_started(), 2);
  const pid_t pid = measurer.worker_pid();
  ASSERT_GT(pid, 0);
  EXPECT_EQ(::kill(pid, 0), 0);
}

TEST(Worker, LeavesNoProcessBehind) {
  pid_t pid = -1;
  {
    WorkerMeasurer measurer(real_worker());
    const std::vector<tuner::Candidate> candidates{candidate(kFast)};
    ASSERT_TRUE(measurer.measure(matmul(16), candidates, {}).ok());
    pid = measurer.worker_pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Worker, TellsWhatIsWrongWithATask) {
  WorkerMeasurer measurer(real_worker());
  tuner::Task task = matmul(16);
  task.text = "func nonsense";
  const std::vector<tuner::Candidate> candidates{candidate("")};
  Result<std::vector<Measurement>> measured = measurer.measure(task, candidates, {});
  ASSERT_FALSE(measured.ok());
  EXPECT_NE(to_text(measured.errors()).find("task:1"), std::string::npos) << to_text(measured.errors());
  // And goes on.
  EXPECT_TRUE(measurer.measure(matmul(16), candidates, {}).ok());
  EXPECT_EQ(measurer.workers_started(), 1);
}

TEST(Worker, AProgramThatIsNotThereIsAnError) {
  WorkerOptions options;
  options.command = {"/does/not/exist"};
  WorkerMeasurer measurer(options);
  const std::vector<tuner::Candidate> candidates{candidate("")};
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), candidates, {});
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.errors()[0].kind, ErrorKind::environment);
}

// ---- Workers that misbehave ----

// For each request `script` runs with $line (the request), $id, and the functions say EVENT INDEX and result INDEX.
WorkerOptions played_by(const std::string& script) {
  WorkerOptions options;
  options.command = {
      "/bin/sh", "-c",
      "say() { echo \"{\\\"id\\\": $id, \\\"event\\\": \\\"$1\\\", \\\"candidate\\\": $2}\"; }\n"
      "result() { echo \"{\\\"id\\\": $id, \\\"event\\\": \\\"result\\\", \\\"candidate\\\": $1, "
      "\\\"measurement\\\": "
      "{\\\"error\\\": \\\"none\\\", \\\"message\\\": \\\"\\\", \\\"times_us\\\": [5]}}\"; }\n"
      "while read -r line; do\n"
      "id=$(printf '%s' \"$line\" | sed 's/.*\"id\":\\([0-9]*\\),.*/\\1/')\n" +
          script + "\nsay done 0\ndone"};
  return options;
}

std::vector<tuner::Candidate> numbered(int count) {
  std::vector<tuner::Candidate> candidates;
  for (int i = 0; i < count; ++i)
    candidates.push_back(candidate(text("unroll(loop=\"m", i, "\")")));
  return candidates;
}

TEST(Worker, ACrashIsBlamedOnTheOneThatRan) {
  WorkerMeasurer measurer(played_by(R"(
    case "$line" in
      *m0*m1*m2*) say build 0; say built 0; result 0; say run 1; echo "LLVM ERROR: no" >&2; sleep 0.1; kill -SEGV $$;;
      *m2*) result 0;;
    esac)"));
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), numbered(3), {});
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  EXPECT_TRUE((*measured)[0].ok());
  EXPECT_EQ((*measured)[1].error, TrialError::crash);
  EXPECT_NE((*measured)[1].message.find("SIGSEGV"), std::string::npos) << (*measured)[1].message;
  EXPECT_NE((*measured)[1].message.find("LLVM ERROR: no"), std::string::npos) << (*measured)[1].message;
  EXPECT_TRUE((*measured)[2].ok());
  EXPECT_EQ(measurer.workers_started(), 2);
}

TEST(Worker, WithTwoUnderWayEachIsTriedAlone) {
  WorkerMeasurer measurer(played_by(R"(
    case "$line" in
      *m0*m1*m2*) say run 1; say build 2; kill -ABRT $$;;
      *m1*) result 0;;
      *m2*) say build 0; kill -ABRT $$;;
      *m0*) result 0;;
    esac)"));
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), numbered(3), {});
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  EXPECT_TRUE((*measured)[0].ok());
  EXPECT_TRUE((*measured)[1].ok());
  EXPECT_EQ((*measured)[2].error, TrialError::build);
  EXPECT_NE((*measured)[2].message.find("SIGABRT"), std::string::npos) << (*measured)[2].message;
}

TEST(Worker, HangingBuildsEnd) {
  WorkerOptions options = played_by(R"(
    case "$line" in
      *m0*m1*) say build 1; say run 0; say idle 0; sleep 100;;
      *m0*) result 0;;
    esac)");
  options.build_seconds = 0.3;
  WorkerMeasurer measurer(options);
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), numbered(2), {});
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  EXPECT_TRUE((*measured)[0].ok());
  EXPECT_EQ((*measured)[1].error, TrialError::timeout);
}

// A large result takes longer to fetch and compare than a run may, which is no fault of the candidate.
TEST(Worker, ChecksHaveATimeOfTheirOwn) {
  WorkerOptions options = played_by(R"(
    case "$line" in
      *m0*m1*) say run 0; say check 0; sleep 1; result 0; say run 1; say check 1; sleep 100;;
    esac)");
  options.check_seconds = 3;
  tuner::MeasureOptions measure;
  measure.timeout_seconds = 0.3;
  WorkerMeasurer measurer(options);
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), numbered(2), measure);
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  EXPECT_TRUE((*measured)[0].ok()) << (*measured)[0].message;
  EXPECT_EQ((*measured)[1].error, TrialError::timeout);
  EXPECT_EQ((*measured)[1].message, "fetching and comparing its result took more than 3 s");
}

// `line` of the script is the request that was sent ahead of its time.
constexpr const char* kNextLine =
    "read -r line; id=$(printf '%s' \"$line\" | sed 's/.*\"id\":\\([0-9]*\\),.*/\\1/')\n";

TEST(Worker, HasWhatWasBegunWhileItMeasures) {
  WorkerMeasurer measurer(played_by(text("first=$id\n", kNextLine, R"(
    second=$id; say build 1; say reference 0
    id=$first; result 0; result 1; result 2; say done 0
    id=$second; say idle 0; say built 1; result 0; result 1)")));
  const std::vector<tuner::Candidate> first = numbered(3), second = numbered(2);
  const tuner::Task task = matmul(16), other = matmul(32);
  measurer.begin(task, first, {});
  measurer.begin(other, second, {});
  for (size_t count : {3, 2}) {
    Result<std::vector<Measurement>> measured = measurer.finish();
    ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
    ASSERT_EQ(measured->size(), count);
    for (const Measurement& m : *measured)
      EXPECT_TRUE(m.ok());
  }
  EXPECT_EQ(measurer.workers_started(), 1);
}

// Whether it was the one that ran or the later one that was built: each is tried by itself, in its turn.
TEST(Worker, ACrashMayBeTheFaultOfWhatWasBegunLater) {
  WorkerMeasurer measurer(played_by(text(R"(
    case "$line" in
      *m0*m1*m2*)
        say run 1; )",
                                         kNextLine, R"( say build 0; kill -ABRT $$;;
      *m0*m2*) result 0; result 1;;
      *m0*) say build 0; kill -ABRT $$;;
      *) result 0;;
    esac)")));
  const std::vector<tuner::Candidate> first = numbered(3), second = numbered(2);
  const tuner::Task task = matmul(16), other = matmul(32);
  measurer.begin(task, first, {});
  measurer.begin(other, second, {});
  Result<std::vector<Measurement>> measured = measurer.finish();
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  for (const Measurement& m : *measured)
    EXPECT_TRUE(m.ok()) << m.message;
  measured = measurer.finish();
  ASSERT_TRUE(measured.ok()) << to_text(measured.errors());
  EXPECT_EQ((*measured)[0].error, TrialError::build);
  EXPECT_TRUE((*measured)[1].ok());
}

TEST(Worker, WhatIsAbandonedIsNotWaitedFor) {
  WorkerMeasurer measurer(played_by("case \"$line\" in *m1*) sleep 100;; *) result 0;; esac"));
  const std::vector<tuner::Candidate> first = numbered(2), second = numbered(1);
  const tuner::Task task = matmul(16);
  measurer.begin(task, first, {});
  measurer.begin(task, second, {});
  measurer.abandon();
  EXPECT_EQ(measurer.worker_pid(), -1);
  ASSERT_TRUE(measurer.measure(task, second, {}).ok());
}

// What it holds of a GPU is given up.
TEST(Worker, RestsUntilItIsNeeded) {
  WorkerMeasurer measurer(played_by("result 0"));
  ASSERT_TRUE(measurer.measure(matmul(16), numbered(1), {}).ok());
  EXPECT_GT(measurer.worker_pid(), 0);
  measurer.rest();
  EXPECT_EQ(measurer.worker_pid(), -1);
  ASSERT_TRUE(measurer.measure(matmul(16), numbered(1), {}).ok());
  EXPECT_EQ(measurer.workers_started(), 2);
}

TEST(Worker, OneThatKeepsDyingIsAnError) {
  WorkerMeasurer measurer(played_by("echo 'cannot go on' >&2; exit 3"));
  Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), numbered(2), {});
  ASSERT_FALSE(measured.ok());
  EXPECT_NE(to_text(measured.errors()).find("exit code 3: cannot go on"), std::string::npos)
      << to_text(measured.errors());
  EXPECT_EQ(measurer.workers_started(), 3);
}

TEST(Worker, GarbageAndMissingResultsAreErrors) {
  for (const char* script : {"echo hello", "say result 0", "result 7", "result 0"}) {
    WorkerMeasurer measurer(played_by(script));
    Result<std::vector<Measurement>> measured = measurer.measure(matmul(16), numbered(2), {});
    EXPECT_FALSE(measured.ok()) << script;
  }
}

}  // namespace
}  // namespace mcc::tools
