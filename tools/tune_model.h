// `mcc tune` without its command line: a model's tasks, the log, the worker, and the whole model measured in between.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/driver.h"
#include "tuner/log.h"
#include "tuner/tune.h"

namespace mcc::tools {

struct TuneModelOptions {
  CompileOptions compile;  // the model, the target; its tune_log is written to
  tuner::TuneOptions tune;
  std::string tasks;  // regular expression over ids, names and ONNX nodes; empty: all tasks
  // Starts mcc where kernels are to be measured, for the shell ("ssh gpu1 mcc"); empty: on this machine. The whole model is not
  // measured there.
  std::string worker;
  bool check_model = true;  // measure the whole model before, now and then, and after
  std::function<bool()> is_interrupted;  // asked between rounds
};

// The whole model, run as `mcc bench` does.
struct ModelLatency {
  double seconds = 0;  // since the search began
  // Sum of the best times of its kernels; nothing before these are measured.
  std::optional<double> estimate_us;
  double measured_us = 0;
};

struct TuneModelReport {
  std::string target;
  std::string machine;             // that measured, for people; empty: this one
  std::string compile_target;      // of `mcc compile` with what was found
  std::vector<tuner::Task> tasks;  // those that were tuned
  size_t all_tasks = 0;            // of the model
  std::map<std::string, int64_t> sizes;  // of open dimensions, that all times are of
  int64_t of_data = 0;                   // kernels that cannot be tuned, as data decides sizes of theirs
  int threads = 1;
  tuner::TuneReport tune;
  std::vector<ModelLatency> latencies;
  std::vector<tuner::LogChoice> choices;  // algorithms that were compared in this run
  int64_t known_trials = 0;  // from earlier runs, on this target
  std::string assembler_problem;  // of a GPU: why there is none that suits it; empty if there is
};

// Those that the regular expression matches; an error of kind usage if there are none, or it is none.
Result<std::vector<tuner::Task>> select_tasks(std::vector<tuner::Task> tasks, const std::string& pattern);

Result<TuneModelReport> tune_model(const TuneModelOptions& options);

}  // namespace mcc::tools
