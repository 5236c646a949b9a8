// The tuner's loop: pick a task, ask its search for candidates, have them measured, tell everyone, write the log; until
// the time, the trials or the hope of a gain are used up. Knows neither models nor code generation: tasks come in, a
// Measurer measures, a recorder keeps what was found.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "tuner/scheduler.h"
#include "tuner/search.h"

namespace mcc::tuner {

struct TuneOptions {
  double seconds = 0;  // of wall-clock time; 0: no limit
  int64_t trials = 0;  // over all tasks; 0: no limit
  std::string search = "auto", cost_model = "auto";
  uint64_t seed = 0;
  int batch = 16;       // candidates a round
  int first_batch = 4;  // in a task's first round: a whole model is there soon
  // Rounds of other tasks are begun while one is measured, until they have so many candidates: for measurers that can build
  // meanwhile. What they try is decided without the results of those under way, however soon these are there.
  int ahead = 0;
  // At the end the fastest few of each task, and its default, are measured once more side by side: one of them may only
  // have been lucky, or the machine slower at another time. 0: no such races. All races together take a tenth of the time
  // that there is (or was used, without a limit), at least what ordinary measurements of the same kernels take.
  int finalists = 8;
  double peak_gflops = 0;  // of one core, f32, as measured: clocks differ from the target's; 0: the target's
  MeasureOptions measure;
  SchedulerOptions scheduler;
};

struct TuneState;

// What the caller brings along.
struct TuneHooks {
  // Makes trials durable, before anything is built on them.
  std::function<Status(const Task& task, std::span<const Trial> trials)> record;
  // The same of a race at the end, the winner last: the others' earlier times no longer count.
  std::function<Status(const Task& task, std::span<const Trial> trials)> record_race;
  // After each round.
  std::function<void(const TuneState& state)> progress;
  // Asked after each round: true makes the search finish what it has begun, and call pause(), during which nothing is measured.
  std::function<bool(const TuneState& state)> wants_pause;
  std::function<void(const TuneState& state)> pause;
  // Asked between rounds; true ends the search with what there is.
  std::function<bool()> is_interrupted;
  // Seconds since the search began.
  std::function<double()> clock;
};

struct TaskReport {
  int trials = 0;                      // of this search
  double default_us = 0, best_us = 0;  // infinity: nothing could be measured
  std::map<TrialError, int> errors;
  Done done = Done::no;
  double space = 0;         // points, see Search::space_size; at the end
  double gain_left_us = 0;  // of the model, expected from one more round
};

struct TuneState {
  const Scheduler* scheduler = nullptr;
  const std::vector<TaskReport>* reports = nullptr;
  std::optional<size_t> task;  // of the last round
  int64_t trials = 0;
  double seconds = 0;
};

enum class TuneEnd : uint8_t { time, trials, nothing_left, interrupted };

struct TuneReport {
  std::vector<TaskReport> tasks;
  int64_t trials = 0;
  double seconds = 0;
  double default_us = 0, best_us = 0;  // of the model, as the sum of its kernels
  double gain_left_us = 0;
  TuneEnd end = TuneEnd::nothing_left;
};

// `known` are trials of earlier runs on this target, task by task: they count as measured. Those without times and without
// an error are seeds, which are measured after the default. Names of search and model in
// the options must be ones that make_search and make_cost_model know.
Result<TuneReport> tune(const std::vector<Task>& tasks, const tensor::Target& target, Measurer& measurer,
                        const std::vector<std::vector<Trial>>& known, const TuneOptions& options,
                        const TuneHooks& hooks);

}  // namespace mcc::tuner
