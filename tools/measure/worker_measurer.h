// Measuring in a process of its own: a candidate that crashes or hangs costs that candidate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "tools/measure/machine.h"
#include "tuner/trial.h"

namespace mcc::tools {

struct WorkerOptions {
  // Starts a process that speaks the protocol of `mcc measure-worker`; empty: this program does.
  std::vector<std::string> command;
  std::string target = "cpu";
  codegen::EmitOptions emit;       // as the model will be compiled
  double build_seconds = 20;       // for one candidate
  double reference_seconds = 120;  // for the result to compare with
  double check_seconds = 60;       // for fetching and comparing one result
};

// Starts a worker by a command for the shell that starts mcc somewhere ("ssh gpu1 mcc").
std::vector<std::string> worker_command(const std::string& mcc);
// What the target is where this command starts a worker; an error (kind environment) where it cannot be measured there.
Result<Machine> ask_machine(const std::vector<std::string>& command, const std::string& target);

class WorkerMeasurer : public tuner::Measurer {
 public:
  explicit WorkerMeasurer(WorkerOptions options);
  ~WorkerMeasurer() override;

  Result<std::vector<tuner::Measurement>> measure(const tuner::Task& task,
                                                  std::span<const tuner::Candidate> candidates,
                                                  const tuner::MeasureOptions& options) override;
  // The process has what was begun, one behind the other. What becomes of the process becomes of all of it: what was begun later
  // is sent again, when its turn comes.
  void begin(const tuner::Task& task, std::span<const tuner::Candidate> candidates,
             const tuner::MeasureOptions& options) override;
  Result<std::vector<tuner::Measurement>> finish() override;
  void abandon() override;

  // Ends the process until something is to be measured again: what it has on a GPU others can have meanwhile.
  void rest();

  // Of the process that is running, -1 if none is.
  int worker_pid() const;
  // How many had to be started so far.
  int workers_started() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mcc::tools
