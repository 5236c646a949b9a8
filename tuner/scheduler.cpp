#include "tuner/scheduler.h"

#include <algorithm>
#include <cmath>

namespace mcc::tuner {

namespace {

// Kernels of alike names and sizes should reach alike speeds: sizes within a factor of 1.618.
bool is_similar(const TaskState& a, const TaskState& b) {
  auto bucket = [](double flops) { return std::floor(std::log(flops + 1) / std::log(1.618)); };
  return a.name == b.name && bucket(a.flops) == bucket(b.flops);
}

bool contains(std::span<const size_t> tasks, size_t task) {
  return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

}  // namespace

Scheduler::Scheduler(std::vector<TaskState> tasks, SchedulerOptions options)
    : tasks_(std::move(tasks)), options_(options) {}

double Scheduler::latency_us() const {
  double sum = 0;
  for (const TaskState& t : tasks_) {
    if (std::isfinite(t.best_us)) sum += t.weight * t.best_us;
  }
  return sum;
}

double Scheduler::share(const TaskState& task) const {
  double all = latency_us();
  return all > 0 && std::isfinite(task.best_us) ? task.weight * task.best_us / all : 0;
}

Done Scheduler::is_done(size_t index) const {
  const TaskState& t = tasks_[index];
  if (t.is_exhausted) return Done::exhausted;
  if (!t.is_started()) return Done::no;
  if (t.lower_bound_us > 0 && t.best_us * options_.near_roofline <= t.lower_bound_us) return Done::roofline;
  if (t.stale_trials >= (std::isfinite(t.best_us) ? options_.plateau_trials : options_.failed_trials))
    return Done::plateau;
  // Shares are known once every task has run.
  bool all_started = std::all_of(tasks_.begin(), tasks_.end(),
                                 [](const TaskState& o) { return o.is_started() || o.is_exhausted; });
  const bool is_small = std::isfinite(t.best_us) && share(t) < options_.small_share;
  if (all_started && is_small && t.trials >= options_.small_trials) return Done::small;
  return Done::no;
}

double Scheduler::expected_gain_us(size_t index) const {
  const TaskState& t = tasks_[index];
  if (is_done(index) != Done::no || !std::isfinite(t.best_us)) return 0;
  auto rounds = static_cast<double>(t.history.size());
  double past = 0;
  if (t.history.size() > static_cast<size_t>(options_.window)) {
    double before = t.history[t.history.size() - 1 - static_cast<size_t>(options_.window)];
    if (std::isfinite(before)) past = (before - t.best_us) / options_.window;
  }
  // By Ansor's estimate the next round gains 1/t of the time; a peer of the same kind that is much faster says more.
  double hope = t.best_us / rounds;
  double fastest = 0;
  for (const TaskState& other : tasks_) {
    if (is_similar(t, other) && std::isfinite(other.best_us))
      fastest = std::max(fastest, other.flops / other.best_us);
  }
  if (fastest > 0) hope = std::max(hope, t.best_us - options_.beta * t.flops / fastest);
  hope = std::min(hope, t.best_us - t.lower_bound_us) * std::pow(0.5, t.stale_rounds);
  return t.weight * (options_.alpha * past + (1 - options_.alpha) * std::max(0.0, hope));
}

double Scheduler::expected_gain_us() const {
  double sum = 0;
  for (size_t i = 0; i < tasks_.size(); ++i)
    sum += expected_gain_us(i);
  return sum;
}

// Without one schedule of it that works the model does not run, whatever the others gain: the task with the least trials goes on.
// Where none of any task works, it is hardly the schedules' fault.
std::optional<size_t> Scheduler::next_failed(std::span<const size_t> busy) const {
  std::optional<size_t> least;
  int64_t trials = 0;
  bool works = false;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskState& t = tasks_[i];
    trials += t.trials;
    works |= std::isfinite(t.best_us);
    if (std::isfinite(t.best_us) || is_done(i) != Done::no || contains(busy, i)) continue;
    if (!least || t.trials < tasks_[*least].trials) least = i;
  }
  return works || trials < options_.failed_trials ? least : std::nullopt;
}

double Scheduler::gain_per_second(size_t index) const {
  const TaskState& t = tasks_[index];
  const double per_round = t.seconds / static_cast<double>(std::max<size_t>(1, t.history.size()));
  return expected_gain_us(index) / std::max(per_round, 1e-6);
}

std::optional<size_t> Scheduler::next(std::span<const size_t> busy) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskState& t = tasks_[i];
    if (t.is_started() || t.is_exhausted || contains(busy, i)) continue;
    if (!best || t.weight * t.flops > tasks_[*best].weight * tasks_[*best].flops) best = i;
  }
  if (best) return best;
  if (std::optional<size_t> failed = next_failed(busy)) return failed;
  if (expected_gain_us() < options_.stop_gain * latency_us()) return std::nullopt;
  double rate = 0, busy_rate = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const double gain = gain_per_second(i);
    if (contains(busy, i)) {
      busy_rate = std::max(busy_rate, gain);
    } else if (gain > rate) {
      rate = gain;
      best = i;
    }
  }
  return rate < 0.5 * busy_rate ? std::nullopt : best;
}

void Scheduler::report(size_t index, int trials, double seconds, double best_us, bool is_exhausted) {
  TaskState& t = tasks_[index];
  bool is_gain = best_us < t.best_us * (1 - options_.gain_threshold);
  t.stale_trials = is_gain ? 0 : t.stale_trials + trials;
  t.stale_rounds = is_gain ? 0 : t.stale_rounds + 1;
  if (t.history.empty()) t.first_us = best_us;
  t.best_us = std::min(t.best_us, best_us);
  t.history.push_back(t.best_us);
  t.trials += trials;
  t.seconds += seconds;
  t.is_exhausted |= is_exhausted;
}

}  // namespace mcc::tuner
