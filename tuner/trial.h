// What the parts of the tuner exchange: tasks, candidates for them, and what measuring a candidate gave.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tensor/schedule/schedule.h"
#include "tensor/target.h"
#include "tuner/decider.h"
#include "tensor/workload.h"

namespace mcc::tuner {

// One distinct kernel of a model.
struct Task {
  std::string
      id;  // hash of `text`, in hex: short, for people and file names; texts decide whether tasks are equal
  std::string name;  // from its blocks: "conv_bias_relu"
  std::string text;  // canonical text of the unscheduled function: the key
  // Of one with symbolic dimensions also the sizes that it is planned and measured at, as its samples (tensor/sizes.h), which are not in `text`.
  tensor::Func func;
  tensor::Work work;               // at the first of them
  int64_t weight = 1;              // how often the model runs it
  std::vector<std::string> nodes;  // ONNX nodes
};

// The sizes of symbolic dimensions that a task's times are of; empty without such.
std::vector<int64_t> measured_sizes(const Task& task);

// A schedule to try. The trace says all; sketch and point say where in the space it lies, for searches that go on from it.
struct Candidate {
  std::string sketch;  // empty for a trace from elsewhere
  Point point;
  tensor::Trace trace;
};

// Why a candidate has no time. The names are those of the log.
enum class TrialError : uint8_t {
  none,
  refused,   // the trace does not apply to the task
  rejected,  // legal, but beyond a limit of the target or hopeless by analysis; not built
  build,     // lowering or code generation failed
  crash,     // the worker died while running it
  timeout,
  wrong,  // its result differs from the reference
};
inline constexpr size_t kTrialErrorCount = 7;
std::string_view to_text(TrialError error);
std::optional<TrialError> parse_trial_error(std::string_view text);

struct Measurement {
  TrialError error = TrialError::none;
  std::string message;  // of an error, for people
  std::vector<double>
      times_us;              // microseconds of one run: a mean for each block of runs, in the order measured
  bool is_censored = false;  // stopped early as clearly slower than the best: the true time is at least this
  double max_error = 0;      // largest difference from the reference over its tolerance; 0 if not checked
  bool is_checked = false;   // against the reference
  double noise = 0;          // spread of the calibration kernel around this measurement, relative
  double build_seconds = 0;  // processor time of replay, lowering, code generation, loading
  double run_seconds = 0;    // everything that ran it: warm-up, check, timing

  bool ok() const { return error == TrialError::none; }
  // The minimum of times_us; infinity without one.
  double best_us() const;
  double median_us() const;
};

struct Trial {
  Candidate candidate;
  Measurement measurement;
  bool is_champion = false;  // won the race at the end of an earlier search
};

struct MeasureOptions {
  int threads = 1;             // that the kernel may use
  double incumbent_us = 0;     // best so far; 0: none. Candidates clearly slower stop early.
  bool is_cold = false;        // caches are emptied of the kernel's data before each run
  double timeout_seconds = 1;  // of one run, beyond 20 times the incumbent
  double precision = 0.01;     // relative, that times of the best should be known to
  uint64_t seed = 1;           // of the random inputs
  bool is_fresh = false;       // measured even if the same code has been measured before
  double patience = 1;         // a batch's race takes so many times as long as usual
};

// Builds, checks and times candidates, each as if alone. Batches are raced: a clearly slower one stops after its first
// runs.
class Measurer {
 public:
  virtual ~Measurer() = default;
  // One measurement a candidate, in their order. An error of the measuring itself (no worker starts) is a Result's. Nothing has
  // been begun.
  virtual Result<std::vector<Measurement>> measure(const Task& task, std::span<const Candidate> candidates,
                                                   const MeasureOptions& options) = 0;

  // The same in two calls, so that a measurer can build one batch while another runs: finish() gives the results of the batch
  // that was begun first. What is passed outlives that. Here begin() only notes what finish() is to measure.
  virtual void begin(const Task& task, std::span<const Candidate> candidates, const MeasureOptions& options);
  virtual Result<std::vector<Measurement>> finish();
  // What has been begun is not wanted any more.
  virtual void abandon() { begun_.clear(); }

 private:
  struct Begun {
    const Task* task;
    std::span<const Candidate> candidates;
    MeasureOptions options;
  };
  std::deque<Begun> begun_;
};

}  // namespace mcc::tuner
