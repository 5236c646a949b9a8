// Measures the candidates of one request: builds them beside, races them, checks what they compute.
#pragma once

#include <functional>
#include <map>

#include "tools/measure/measured_task.h"
#include "tools/measure/protocol.h"
#include "tools/measure/runner.h"

namespace mcc::tools {

// What was measured of a task so far, by BuiltKernel::key.
using MeasuredByKey = std::map<std::string, tuner::Measurement>;

// Where results are compared beside the task itself: one of its others().
struct OtherSizes {
  MeasuredTask& task;
  std::unique_ptr<KernelRunner> runner;
};

// Sends events and one result a candidate; an error is one of the whole request. `reference` builds what results are
// compared with. `send` is called from several threads. When the runner is lost, what has no result by then gets none.
Status measure_batch(const WorkerRequest& request, const BuildContext& reference, MeasuredTask& task,
                     KernelRunner& runner, std::span<OtherSizes> others, MeasuredByKey& known,
                     const std::function<void(const WorkerMessage&)>& send);

}  // namespace mcc::tools
