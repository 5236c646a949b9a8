// Measures the candidates of one request: races them, checks what they compute, while they are being built.
#pragma once

#include "tools/measure/measured_task.h"
#include "tools/measure/preparation.h"
#include "tools/measure/runner.h"

namespace mcc::tools {

// Where results are compared beside the task itself: one of its others().
struct OtherSizes {
  MeasuredTask& task;
  std::unique_ptr<KernelRunner> runner;
};

// Sends events and one result a candidate; an error is one of the whole request. When the runner is lost, what has no result
// by then gets none.
Status measure_batch(const WorkerRequest& request, Preparation& preparation, MeasuredTask& task,
                     KernelRunner& runner, std::span<OtherSizes> others, KnownKernels& known,
                     const SendMessage& send);

}  // namespace mcc::tools
