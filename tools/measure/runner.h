// Where the candidates of a request run: this machine's processors, or its GPU.
#pragma once

#include <memory>

#include "tools/measure/build.h"
#include "tools/measure/calibrate.h"
#include "tools/measure/measured_task.h"
#include "tools/measure/race.h"

namespace mcc::tools {

struct RunOutcome {
  double us = 0;  // of the run
  tuner::TrialError error = tuner::TrialError::none;
  std::string message;  // of an error
};

// For one thread.
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  // Before anything else is called.
  virtual Status start() = 0;
  // Whether runs leave all processors but one to the builders.
  virtual bool needs_one_processor() const = 0;
  // Whether runs follow each other without waiting for a builder: it needs what builds, or would cool down.
  virtual bool needs_all_built() const = 0;
  // What comes between building and running, and may take as long as building: machine code that a driver makes, inputs that go
  // to a GPU. Not needed (is_loaded) on processors.
  virtual bool is_loaded(const BuiltKernel&) const { return true; }
  virtual RunOutcome load(BuiltKernel&) { return {}; }
  // One run; what it does not write of the outputs is poison.
  virtual RunOutcome run(BuiltKernel& built) = 0;
  // Puts the outputs of the last run where the task's check finds them.
  virtual RunOutcome fetch_outputs() = 0;
  // A block of runs. is_next: of the kernel that ran last, whose data are still in the caches.
  virtual RunOutcome time(BuiltKernel& built, int64_t runs, bool is_next, RunBlock& block) = 0;
  virtual Calibration calibrate() = 0;
  // Whether it has had nothing to do for so long that it is slow for a while; and work until it is no longer so.
  virtual bool has_cooled() const { return false; }
  virtual void warm_up() {}
  // After an error that this process does not get over.
  virtual bool is_lost() const { return false; }
};

// Kernels for CPUs. What is passed outlives it.
std::unique_ptr<KernelRunner> make_cpu_runner(const tuner::MeasureOptions& options, MeasuredTask& task);

}  // namespace mcc::tools
