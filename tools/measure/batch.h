// Measures the candidates of one request: builds them beside, races them, checks what they compute.
#pragma once

#include <functional>
#include <map>

#include "tools/measure/measured_task.h"
#include "tools/measure/protocol.h"

namespace mcc::tools {

// What was measured of a task so far, by BuiltKernel::key.
using MeasuredByKey = std::map<std::string, tuner::Measurement>;

// Sends events and one result a candidate; an error is one of the whole request. `send` is called from several threads.
Status measure_batch(const WorkerRequest& request, const BuildContext& context, MeasuredTask& task,
                     MeasuredByKey& known, const std::function<void(const WorkerMessage&)>& send);

}  // namespace mcc::tools
