#include "tools/tune_display.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <numeric>

#include "nlohmann/json.hpp"
#include "tools/console.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRowsOnTerminal = 16;

double model_share(const tuner::Task& task, const tuner::TaskReport& report, double model_us) {
  if (!std::isfinite(report.best_us) || model_us <= 0) return 0;
  return static_cast<double>(task.weight) * report.best_us / model_us;
}

double model_us(const std::vector<tuner::Task>& tasks, const std::vector<tuner::TaskReport>& reports) {
  double sum = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (std::isfinite(reports[i].best_us)) sum += static_cast<double>(tasks[i].weight) * reports[i].best_us;
  }
  return sum;
}

std::string_view done_text(tuner::Done done) {
  switch (done) {
    case tuner::Done::no:
      return "";
    case tuner::Done::exhausted:
      return "all tried";
    case tuner::Done::plateau:
      return "plateau";
    case tuner::Done::roofline:
      return "near roofline";
    case tuner::Done::small:
      return "small";
  }
  return "";
}

std::string padded(std::string s, size_t width) {
  if (s.size() < width) s.insert(0, width - s.size(), ' ');
  return s;
}

std::string left(std::string s, size_t width) {
  if (s.size() > width) s = s.substr(0, width - 3) + "...";
  s.resize(width, ' ');
  return s;
}

std::string ratio_text(double before, double after) {
  return std::isfinite(before) && std::isfinite(after) && after > 0 ? fixed(before / after, 2) + "x" : "-";
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string time_text(double microseconds) {
  if (!std::isfinite(microseconds)) return "-";
  if (microseconds >= 1e6) return fixed(microseconds / 1e6, 2) + " s";
  if (microseconds >= 1e3) return fixed(microseconds / 1e3, 3) + " ms";
  return fixed(microseconds, 2) + " us";
}

std::string tune_table(const std::vector<tuner::Task>& tasks, const std::vector<tuner::TaskReport>& reports,
                       const tuner::Scheduler* scheduler, size_t max_rows) {
  const double all = model_us(tasks, reports);
  std::vector<size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return model_share(tasks[a], reports[a], all) > model_share(tasks[b], reports[b], all);
  });
  std::string out = text(left("task", 16), " ", left("kernel", 24), padded("runs", 5), padded("trials", 8),
                         padded("default", 12), padded("best", 12), padded("gain", 8), padded("GFLOP/s", 9),
                         padded("share", 7), padded("left", 11), "\n");
  for (size_t row = 0; row < order.size() && row < max_rows; ++row) {
    const size_t i = order[row];
    const tuner::TaskReport& r = reports[i];
    const double gflops = static_cast<double>(tasks[i].work.flops) / (r.best_us * 1e3);
    const tuner::Done done = scheduler ? scheduler->is_done(i) : r.done;
    const double gain = scheduler ? scheduler->expected_gain_us(i) : r.gain_left_us;
    out += text(
        left(tasks[i].id, 16), " ", left(printable(tasks[i].name), 24), padded(text(tasks[i].weight), 5),
        padded(text(r.trials), 8), padded(time_text(r.default_us), 12), padded(time_text(r.best_us), 12),
        padded(ratio_text(r.default_us, r.best_us), 8),
        padded(std::isfinite(r.best_us) && gflops >= 0.05 ? fixed(gflops, 1) : "-", 9),
        padded(fixed(100 * model_share(tasks[i], r, all), 1) + "%", 7),
        done == tuner::Done::no ? padded(time_text(gain), 11) : "  " + std::string(done_text(done)), "\n");
  }
  if (order.size() > max_rows) out += text("... and ", order.size() - max_rows, " more\n");
  return out;
}

Json tune_json(const std::vector<tuner::Task>& tasks, const tuner::TuneReport& report) {
  Json list = Json::array();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const tuner::TaskReport& r = report.tasks[i];
    Json errors = Json::object();
    for (const auto& [error, count] : r.errors)
      errors[std::string(tuner::to_text(error))] = count;
    list.push_back({{"id", tasks[i].id},
                    {"name", tasks[i].name},
                    {"onnx_nodes", tasks[i].nodes},
                    {"count", tasks[i].weight},
                    {"flops", tasks[i].work.flops},
                    {"space", r.space},
                    {"trials", r.trials},
                    {"default_us", number(r.default_us)},
                    {"best_us", number(r.best_us)},
                    {"errors", errors},
                    {"stopped", done_text(r.done)},
                    {"gain_left_us", r.gain_left_us}});
  }
  return {
      {"trials", report.trials},   {"seconds", report.seconds},           {"default_us", report.default_us},
      {"best_us", report.best_us}, {"gain_left_us", report.gain_left_us}, {"tasks", list}};
}

TuneDisplay::TuneDisplay(const std::vector<tuner::Task>& tasks, double budget_seconds, int64_t budget_trials)
    : tasks_(tasks),
      budget_seconds_(budget_seconds),
      budget_trials_(budget_trials),
      is_terminal_(::isatty(STDERR_FILENO) != 0),
      last_best_(tasks.size(), std::numeric_limits<double>::infinity()) {}

TuneDisplay::~TuneDisplay() { erase(); }

void TuneDisplay::erase() {
  if (lines_ > 0) std::cerr << "\033[" << lines_ << "A\033[J" << std::flush;
  lines_ = 0;
}

std::string TuneDisplay::head(const tuner::TuneState& state) const {
  std::string line =
      text("tune ", fixed(state.seconds, 1), budget_seconds_ > 0 ? text("/", fixed(budget_seconds_, 0)) : "",
           " s, ", state.trials, budget_trials_ > 0 ? text("/", budget_trials_) : "", " trials");
  const double us = state.scheduler->latency_us();
  return text(line, "; model ", time_text(us), ", next round may save ",
              time_text(state.scheduler->expected_gain_us()));
}

void TuneDisplay::show(const tuner::TuneState& state) {
  if (is_terminal_) {
    erase();
    const std::string table =
        head(state) + "\n" + tune_table(tasks_, *state.reports, state.scheduler, kRowsOnTerminal);
    std::cerr << table << std::flush;
    lines_ = static_cast<int>(std::count(table.begin(), table.end(), '\n'));
    return;
  }
  if (!state.task) return;
  const size_t i = *state.task;
  const tuner::TaskReport& r = (*state.reports)[i];
  std::string change = time_text(r.best_us);
  if (std::isfinite(last_best_[i]) && r.best_us < last_best_[i])
    change = time_text(last_best_[i]) + " -> " + change;
  last_best_[i] = r.best_us;
  say(text(head(state), "; ", tasks_[i].id, " ", printable(tasks_[i].name), ": ", r.trials, " trials, ",
           change, " (", ratio_text(r.default_us, r.best_us), " of the default)"));
}

void TuneDisplay::note(const std::string& line) {
  erase();
  say(line);
}

}  // namespace mcc::tools
