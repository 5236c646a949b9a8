// The GPUs of this machine, asked of the CUDA driver.
#pragma once

#include <string>
#include <vector>

#include "tensor/gpu.h"

namespace mcc::codegen {

struct HostGpu {
  tensor::Gpu gpu;  // arch "sm_120" where LLVM knows it or not
  int64_t memory_bytes = 0;
  bool is_exclusive = false;   // its compute mode lets one process at a time have a context
  bool is_prohibited = false;  // or none
};

struct HostGpus {
  std::string problem;     // why there are none, for people; empty if there are
  int driver_version = 0;  // 13000 for CUDA 13.0; 0: no driver
  std::vector<HostGpu> gpus;
};

HostGpus host_gpus();

}  // namespace mcc::codegen
