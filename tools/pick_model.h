// `mcc tune --no-measure`: a model's schedules picked by analysis and put into a log, nothing is run.
#pragma once

#include "nlohmann/json_fwd.hpp"
#include "tools/tune_model.h"
#include "tuner/pick.h"

namespace mcc::tools {

struct PickedTask {
  enum class State {
    picked,
    measured,
    failed,
    left_out
  };  // measured: the log has a time; left out: no time was left
  State state = State::left_out;
  std::string target;  // its processor or architecture
  tuner::Pick pick;
};

struct PickModelReport {
  std::string target, assembler;  // no assembler: analysis alone
  std::vector<tuner::Task> tasks;  // for each target of a list again
  std::vector<PickedTask> picks;   // one a task
  std::map<std::string, int64_t> sizes;  // of open dimensions, that estimates are for
  int64_t of_data = 0;                   // kernels that are no tasks, as data decides sizes of theirs
  double seconds = 0;
};

// Of the options: the model, the target, the log, tasks, the seed and the seconds. Needs no machine of the target.
Result<PickModelReport> pick_model(const TuneModelOptions& options);

// For people, and as JSON.
std::string pick_table(const PickModelReport& report);
nlohmann::ordered_json pick_json(const PickModelReport& report);

}  // namespace mcc::tools
