// What a person sees of a running search: on a terminal a table that is rewritten in place, elsewhere a line a round.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tuner/tune.h"

namespace mcc::tools {

class TuneDisplay {
 public:
  // budget_seconds and budget_trials: 0 when there is no limit.
  TuneDisplay(const std::vector<tuner::Task>& tasks, double budget_seconds, int64_t budget_trials);
  ~TuneDisplay();

  void show(const tuner::TuneState& state);
  // A line between the updates: the whole model was measured, a worker was lost, ...
  void note(const std::string& line);

 private:
  std::string head(const tuner::TuneState& state) const;
  void erase();

  const std::vector<tuner::Task>& tasks_;
  double budget_seconds_;
  int64_t budget_trials_;
  bool is_terminal_ = false;
  int lines_ = 0;  // of the table on the terminal
  std::vector<double> last_best_;
};

// "0.251 ms", "12.3 us"; "-" when there is no time.
std::string time_text(double microseconds);

// The tasks by their share of the model, one a line: id, runs, trials, default, best, speedup, GFLOP/s, share, gain left.
std::string tune_table(const std::vector<tuner::Task>& tasks, const std::vector<tuner::TaskReport>& reports,
                       const tuner::Scheduler* scheduler, size_t max_rows);
nlohmann::ordered_json tune_json(const std::vector<tuner::Task>& tasks, const tuner::TuneReport& report);

}  // namespace mcc::tools
