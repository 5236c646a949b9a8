// A model's code for GPUs as the compiler builds it, and its bytes (runtime/include/mcc/device_format.h has the meaning of
// every field). Needs no LLVM.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mcc/device_format.h"

namespace mcc::codegen {

struct DeviceImageDesc {
  mcc_image_kind kind = MCC_IMAGE_ptx;
  std::string arch;  // "sm_80", "sm_90a"
  std::string bytes;
  // Which of the kernel's launches it has the code of; of no number: all.
  uint32_t first_launch = 0;
  std::optional<uint32_t> launch_count = {};
};

struct DeviceFiguresDesc {
  std::string arch;
  uint32_t registers = 0, shared_bytes = 0, stack_bytes = 0, spill_stores = 0, spill_loads = 0;
};

struct DeviceLaunchDesc {
  std::string entry;
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};  // of a grid also MCC_DEVICE_DIM
  uint32_t shared_bytes = 0, dynamic_shared_bytes = 0;
  bool waits_itself = false;
  uint32_t loop_launches = 0, loop_first = 0, loop_turns = 0;  // of turns also MCC_DEVICE_DIM
  std::vector<uint32_t>
      arguments;  // numbers into the node's args, MCC_DEVICE_DIM, MCC_DEVICE_NUMBER or MCC_DEVICE_TURN
  std::vector<mcc_device_map> maps;
  std::optional<mcc_device_product> product = {};  // then there is no entry
  std::vector<DeviceFiguresDesc> figures;
};

struct DeviceKernelDesc {
  std::vector<DeviceLaunchDesc> launches;
  std::vector<DeviceImageDesc> images;
};

struct DeviceDesc {
  std::vector<DeviceKernelDesc> kernels;
  bool is_walked = false;  // the plan has other nodes than launches and copies
};

// Deterministic.
std::vector<std::byte> write_device_code(const DeviceDesc& device);

}  // namespace mcc::codegen
