// Schedules by analysis alone: nothing runs. The static analyser ranks points of a task's space; where a builder is given (of
// GPUs), the best of them are built, and what the assembler says of registers, shared memory and spills decides between them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tuner/analyzer_gpu.h"
#include "tuner/search.h"

namespace mcc::tuner {

// What is known of a schedule that was built and not run.
struct BuildFigures {
  TrialError error = TrialError::none;  // rejected: a GPU cannot launch it; build: there is no code
  std::string message;                  // of an error
  std::vector<LaunchFigures> launches;  // empty: there is no assembler
  double build_seconds = 0;
};

class TrialBuilder {
 public:
  virtual ~TrialBuilder() = default;
  virtual BuildFigures build(const Task& task, const Planned& planned) = 0;
};

struct PickOptions {
  uint64_t seed = 0;
  size_t drafts =
      192;           // points of a sketch that are ranked at random, or all of them where there are no more
  int rounds = 4;    // of going to the neighbours of the best
  size_t built = 8;  // with a builder; the default schedule beside them
  // What the default must be worse by: an analyser's small differences say nothing.
  double gain = 0.05;
};

struct Pick {
  Candidate candidate;
  double estimate_us = 0, default_estimate_us = 0;
  bool is_default = false, is_built = true;  // not built: nothing could be
  std::vector<LaunchFigures> figures;        // of the candidate
  int64_t ranked = 0, built = 0;             // points
  std::map<TrialError, int> errors;          // of those that were built
  std::string problem;                       // what the first of them says
  double build_seconds = 0;
};

// Deterministic. Without spills goes before with spills, whatever the estimates.
Pick pick(const Task& task, const tensor::Target& target, TrialBuilder* builder, const PickOptions& options);

}  // namespace mcc::tuner
