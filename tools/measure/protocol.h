// What a measuring process and its user say to each other: one JSON document a line. A request is data: sizes are bounded,
// names and numbers are checked, and nothing of it is opened or run but the code that is generated from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "tools/measure/machine.h"
#include "tuner/trial.h"

namespace mcc::tools {

inline constexpr int kProtocolVersion = 1;
inline constexpr size_t kMaxRequestBytes = size_t{64} << 20;
inline constexpr size_t kMaxCandidates = 4096;

// {"version": 1, "id": 7, "task": "func ...", "target": "cpu", "candidates": ["split(...)\n...", ...], "options": {...}}
// {"version": 1, "id": 1, "target": "cuda", "wants_machine": true}
struct WorkerRequest {
  int64_t id = 0;
  std::string
      task;  // text of the unscheduled function; with symbolic dimensions: with samples (tensor/sizes.h)
  std::string target;                   // as for --target
  std::vector<std::string> candidates;  // texts of traces
  tuner::MeasureOptions options;
  codegen::EmitOptions emit;  // as the kernels of the model will be compiled
  bool is_serial = false;     // no candidate is built while another one runs
  bool wants_machine = false;  // which machine the target is there, and nothing else
};
std::string encode(const WorkerRequest& request);
Result<WorkerRequest> decode_request(const std::string& line);

// {"id": 7, "event": "run", "candidate": 3}
// The first six say what is going on, so that whoever waits knows whom to blame for a crash or a hang.
enum class WorkerEvent {
  reference,  // the result to compare with is being computed
  build,      // of the candidate has begun
  built,      // it has ended
  run,        // a block of runs of the candidate has begun; the one before has ended
  check,      // the candidate's run has ended; its result is fetched and compared
  idle,       // nothing runs
  result,     // of the candidate, with a "measurement"
  machine,    // that the request wanted, with a "machine"
  done,       // with the request
  restart,  // the process ends: its GPU's context is lost, by the fault of a candidate whose result has been sent
  error,  // the request cannot be served, with "errors"
};
struct WorkerMessage {
  int64_t id = 0;
  WorkerEvent event = WorkerEvent::done;
  int64_t candidate = -1;
  tuner::Measurement measurement;
  std::optional<Machine> machine;
  Diagnostics errors;
};
std::string encode(const WorkerMessage& message);  // without a line break
// Nothing for a line that is no message.
std::optional<WorkerMessage> decode_message(const std::string& line);

}  // namespace mcc::tools
