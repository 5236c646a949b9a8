// The golden set: schedules of a dozen and more kernels with their measured times, so that cost models are judged and
// searches replayed without a measurement. It is a tuning log, compressed (README.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tuner/learned_model.h"
#include "tuner/search.h"

namespace mcc::golden {

// A schedule whose time is known.
struct Known {
  tuner::Candidate candidate;
  double us = 0;  // infinite for one that failed; of a censored one what its first runs took
  tuner::Described described;
};

struct Subject {
  std::string name;  // of the model that the kernel was taken from
  tuner::Task task;
  std::vector<Known> known;  // the first is the default schedule's
  double best_us = 0;

  std::vector<double> times() const;
  std::vector<tuner::Example> examples() const;
};

struct GoldenSet {
  tensor::Target target;
  std::vector<Subject> subjects;
};

// Kernels of at least `least` schedules, in the file's order, a log or one compressed by gzip; `wants`, when given, picks
// by the task's id.
Result<GoldenSet> read_golden_set(const std::string& path, size_t least = 1,
                                  const std::function<bool(const std::string&)>& wants = nullptr);

// How a search does on a kernel when its candidates are those of the set.
struct ReplayOptions {
  std::string search = "auto";
  tuner::LearnedModel* model = nullptr;  // null: none
  bool has_drafter = true;               // the analyser drafts
  bool ranks_by_drafter = false;         // it is the model, too
  int trials = 64, batch = 16, first_batch = 4;
  uint64_t seed = 0;
};
// After each trial: best time of the subject over the best time found so far; 0 while there is none.
std::vector<double> replay(const Subject& subject, const tensor::Target& target,
                           const ReplayOptions& options);

}  // namespace mcc::golden
