// The code for GPUs of a model's library, from its kernels.
#pragma once

#include "codegen/device_writer.h"
#include "codegen/plan_writer.h"
#include "tools/kernels.h"

namespace mcc::tools {

// Kernel i of the set is device kernel i. plan: with all its nodes.
codegen::DeviceDesc device_code(const KernelSet& kernels, const codegen::PlanDesc& plan);

// Numbers of blocks in the kernel's grids that only a run knows, over the dimensions of its function. The kernel's nodes have them behind
// these.
std::vector<tensor::Expr> open_grid_sizes(const Kernel& kernel);

// Of a launch that is a call.
mcc_device_product product_of(const codegen::DeviceLaunch& launch);

// The argument is the number of the map's buffer.
mcc_device_map map_of(const codegen::TensorMap& map);

}  // namespace mcc::tools
