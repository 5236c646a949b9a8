// Kernels that run on the GPU of a measuring process.
#pragma once

#include "codegen/device.h"
#include "tools/measure/device_context.h"
#include "tools/measure/runner.h"

namespace mcc::tools {

// What is needed to build candidates for GPUs; from several threads.
struct DeviceBuildContext {
  const tensor::Func& unscheduled;
  const tensor::Target& target;
  const codegen::EmitOptions& emit;
  const codegen::Assembler* assembler;  // null: the driver makes code of PTX
};

// See BuildContext::is_known.
BuiltKernel build_device_candidate(const DeviceBuildContext& context, const std::string& trace,
                                   const std::function<bool(const std::string& key)>& is_known);

// What is passed outlives it.
std::unique_ptr<KernelRunner> make_device_runner(const tuner::MeasureOptions& options, DeviceContext& device,
                                                 DeviceTask& task);

}  // namespace mcc::tools
