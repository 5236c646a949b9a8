// The code for GPUs of a model's library, from its kernels.
#pragma once

#include "codegen/device_writer.h"
#include "tools/kernels.h"

namespace mcc::tools {

// Kernel i of the set is device kernel i.
codegen::DeviceDesc device_code(const KernelSet& kernels);

}  // namespace mcc::tools
