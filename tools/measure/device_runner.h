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

// What is passed outlives it.
std::unique_ptr<KernelRunner> make_device_runner(const tuner::MeasureOptions& options,
                                                 const DeviceBuildContext& context, DeviceContext& device,
                                                 DeviceTask& task);

}  // namespace mcc::tools
