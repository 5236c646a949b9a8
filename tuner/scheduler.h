// Which task gets the next round of trials. The gradient of the model's latency (Ansor, OSDI'20, section 6), with three
// changes: the hoped-for gain is bounded by the task's roofline and halves with every round that brings nothing; gain is
// counted per second, not per trial, since tasks differ in what a trial costs; a task stops at its plateau or near its
// roofline, and everything stops when little is left to gain.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mcc::tuner {

struct SchedulerOptions {
  double alpha = 0.2;       // share of the past gain in the estimate; the rest is the hoped-for one
  double beta = 2;          // a task is taken to reach 1/beta of the speed of its most similar peers at least
  int window = 3;           // rounds that past gain is taken over
  int plateau_trials = 96;  // a task without a gain for so many trials is done
  int failed_trials = 32;   // and one of which so many trials have all failed, or of all tasks together
  double gain_threshold = 0.01;  // what counts as a gain, relative
  double near_roofline = 0.92;   // a task at this share of its bound is done
  double small_share = 0.01;     // a task below this share of the model gets small_trials only
  int small_trials = 32;
  double stop_gain =
      0.003;  // all is done when the expected gain of the next rounds is below this share of the model
};

// What the scheduler knows of a task.
struct TaskState {
  // Given.
  std::string name;
  double weight = 1;          // runs in the model
  double flops = 0;           // of one run
  double lower_bound_us = 0;  // by compulsory traffic and peak arithmetic; 0: unknown
  // Seen so far.
  double first_us = std::numeric_limits<double>::infinity();  // of the default schedule
  double best_us = std::numeric_limits<double>::infinity();
  std::vector<double> history;  // best after each round
  int trials = 0;
  int stale_trials = 0;  // since the last gain
  int stale_rounds = 0;
  double seconds = 0;         // spent on it
  bool is_exhausted = false;  // the space is used up

  bool is_started() const { return !history.empty(); }
};

enum class Done : uint8_t { no, exhausted, plateau, roofline, small };

class Scheduler {
 public:
  explicit Scheduler(std::vector<TaskState> tasks, SchedulerOptions options = {});

  // The task for the next round; none when every task is done or little is left to gain. Tasks not measured yet come
  // first, those with the most arithmetic before the others; then those of which all trials have failed.
  // Not one that is busy: a round of it has been begun and not been reported. There is none, either, where it is better to wait
  // for a busy one: when the others are expected to gain less than half as much a second, which is about what a round without
  // success leaves of a task's hope.
  std::optional<size_t> next(std::span<const size_t> busy = {}) const;
  // A round of the task: so many trials in so many seconds; best_us is the best of all its trials so far.
  void report(size_t task, int trials, double seconds, double best_us, bool is_exhausted);
  // What the task's best schedule takes when measured again.
  void settle(size_t task, double best_us) { tasks_[task].best_us = best_us; }

  const std::vector<TaskState>& tasks() const { return tasks_; }
  Done is_done(size_t task) const;
  // Sum of the best times, weighted: what the model should take by now. Tasks not measured count as 0.
  double latency_us() const;
  // Microseconds of the model that one more round of the task is expected to save.
  double expected_gain_us(size_t task) const;
  // Of all tasks that are not done.
  double expected_gain_us() const;

 private:
  double share(const TaskState& task) const;
  // Of the tasks of which all trials have failed so far.
  std::optional<size_t> next_failed(std::span<const size_t> busy) const;
  double gain_per_second(size_t task) const;

  std::vector<TaskState> tasks_;
  SchedulerOptions options_;
};

}  // namespace mcc::tuner
