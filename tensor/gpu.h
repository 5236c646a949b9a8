// A GPU, as data: what schedules, cost formulas and limits go by.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mcc::tensor {

struct Gpu {
  std::string name;     // "A100-40"
  std::string arch;     // as LLVM and ptxas call it: "sm_80", "sm_90a"
  double gflops = 0;    // f32, multiply and add as two
  double gb_per_s = 0;  // of the device's memory
  // Of 16-bit floats (bytes: twice that): what the tensor cores of a multiprocessor multiply and add in a cycle by mma.sync.
  int matrix_fmas = 0;
  int warpgroup_fmas = 0;  // the same by wgmma, which only code for sm_90a itself may use
  int multiprocessors = 1;
  double ghz = 1.4;
  double l2_bytes = 40e6;

  int64_t shared_per_block = 48 << 10;       // that any kernel may have
  int64_t shared_per_block_max = 163 << 10;  // that a launch may ask for
  int64_t shared_per_multiprocessor = 164 << 10;
  int registers_per_multiprocessor = 65536;
  int registers_per_thread = 255;
  int threads_per_block = 1024;
  int threads_per_multiprocessor = 2048;
  int blocks_per_multiprocessor = 32;
  int warp = 32;
  double launch_us = 2.5;

  int sm() const;
  // cp.async: from global to shared memory, while the thread goes on.
  bool has_async_copies() const { return sm() >= 80; }
  bool has_wgmma() const { return arch == "sm_90a" && warpgroup_fmas > 0; }
};

// 80 of "sm_80" and "sm_80a"; 0 of anything else.
int sm_of(std::string_view arch);
inline int Gpu::sm() const { return sm_of(arch); }

// Those with known figures, in a fixed order.
std::span<const Gpu> all_gpus();
// By name ("A100-40") or architecture ("sm_80": the first of that architecture); null for another.
const Gpu* find_gpu(std::string_view name);

}  // namespace mcc::tensor
