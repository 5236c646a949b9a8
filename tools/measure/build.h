// From a trace to code in this process: the same steps, options and bytes as when a model is compiled.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "codegen/codegen.h"
#include "tensor/schedule/weight_order.h"
#include "tuner/trial.h"

namespace mcc::tools {

struct DeviceKernel;

struct BuiltKernel {
  tuner::TrialError error = tuner::TrialError::none;
  std::string message;
  std::string key;  // hash of the lowered function: equal for equal code
  codegen::KernelMemory memory;
  std::vector<tensor::WeightOrder> orders;  // in which it expects weights
  std::shared_ptr<codegen::Jit::Kernel> kernel;
  std::shared_ptr<DeviceKernel> on_device;  // of a GPU, instead
  // Where the time went, in seconds of this thread's processor time.
  double replay = 0, lower = 0, hash = 0, emit = 0, load = 0;

  double seconds() const { return replay + lower + hash + emit + load; }
  void release() {
    kernel.reset();
    on_device.reset();
  }
};

// What is needed to build candidates of a task; the members outlive the calls. Safe from several threads.
struct BuildContext {
  const tensor::Func& unscheduled;
  const tensor::Target& target;
  const codegen::EmitOptions& emit;
  codegen::Jit& jit;
  // Told the key before code is generated; true: the code is not needed, and the kernel stays empty.
  std::function<bool(const std::string& key)> is_known = nullptr;
};

BuiltKernel build_candidate(const BuildContext& context, const std::string& trace);
// A function that is scheduled already, or not at all.
BuiltKernel build_function(const BuildContext& context, const tensor::Func& scheduled);

}  // namespace mcc::tools
