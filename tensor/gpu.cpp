#include "tensor/gpu.h"

#include <vector>

namespace mcc::tensor {

namespace {

constexpr int64_t KB = 1 << 10;

// Peak, bandwidth and processors of K80 to A100-80 as in the table released with Pruner, the others from their data sheets;
// limits from the CUDA programming guide's table of compute capabilities. Tensor cores: dense f16 with f32 sums of the data sheets;
// on sm_90, mma.sync reaches some 62 % of that, which takes wgmma.
const std::vector<Gpu>& table() {
  static const std::vector<Gpu> gpus = {
      {.name = "K80",
       .arch = "sm_37",
       .gflops = 8226,
       .gb_per_s = 480,
       .multiprocessors = 26,
       .ghz = 0.88,
       .l2_bytes = 1.5e6,
       .shared_per_block_max = 48 * KB,
       .shared_per_multiprocessor = 112 * KB,
       .blocks_per_multiprocessor = 16},
      {.name = "T4",
       .arch = "sm_75",
       .gflops = 8141,
       .gb_per_s = 320,
       .matrix_fmas = 512,
       .multiprocessors = 40,
       .ghz = 1.59,
       .l2_bytes = 4e6,
       .shared_per_block_max = 64 * KB,
       .shared_per_multiprocessor = 64 * KB,
       .threads_per_multiprocessor = 1024,
       .blocks_per_multiprocessor = 16},
      {.name = "TITANV",
       .arch = "sm_70",
       .gflops = 14900,
       .gb_per_s = 651,
       .multiprocessors = 80,
       .ghz = 1.46,
       .l2_bytes = 4.5e6,
       .shared_per_block_max = 96 * KB,
       .shared_per_multiprocessor = 96 * KB},
      {.name = "Orin",
       .arch = "sm_87",
       .gflops = 2660,
       .gb_per_s = 204,
       .matrix_fmas = 512,
       .multiprocessors = 16,
       .ghz = 1.3,
       .l2_bytes = 4e6,
       .threads_per_multiprocessor = 1536,
       .blocks_per_multiprocessor = 16},
      {.name = "A100-40",
       .arch = "sm_80",
       .gflops = 19490,
       .gb_per_s = 1555,
       .matrix_fmas = 1024,
       .multiprocessors = 108,
       .ghz = 1.41,
       .l2_bytes = 40e6},
      {.name = "A100-80",
       .arch = "sm_80",
       .gflops = 19490,
       .gb_per_s = 1935,
       .matrix_fmas = 1024,
       .multiprocessors = 108,
       .ghz = 1.41,
       .l2_bytes = 40e6},
      {.name = "RTX3090",
       .arch = "sm_86",
       .gflops = 35580,
       .gb_per_s = 936,
       .matrix_fmas = 256,
       .multiprocessors = 82,
       .ghz = 1.7,
       .l2_bytes = 6e6,
       .shared_per_block_max = 99 * KB,
       .shared_per_multiprocessor = 100 * KB,
       .threads_per_multiprocessor = 1536,
       .blocks_per_multiprocessor = 16},
      {.name = "RTX4090",
       .arch = "sm_89",
       .gflops = 82580,
       .gb_per_s = 1008,
       .matrix_fmas = 256,
       .multiprocessors = 128,
       .ghz = 2.52,
       .l2_bytes = 72e6,
       .shared_per_block_max = 99 * KB,
       .shared_per_multiprocessor = 100 * KB,
       .threads_per_multiprocessor = 1536,
       .blocks_per_multiprocessor = 24},
      {.name = "H200",
       .arch = "sm_90",
       .gflops = 66900,
       .gb_per_s = 4800,
       .matrix_fmas = 1280,
       .warpgroup_fmas = 2048,
       .multiprocessors = 132,
       .ghz = 1.98,
       .l2_bytes = 60e6,
       .shared_per_block_max = 227 * KB,
       .shared_per_multiprocessor = 228 * KB},
      {.name = "H100",
       .arch = "sm_90",
       .gflops = 66900,
       .gb_per_s = 3350,
       .matrix_fmas = 1280,
       .warpgroup_fmas = 2048,
       .multiprocessors = 132,
       .ghz = 1.98,
       .l2_bytes = 50e6,
       .shared_per_block_max = 227 * KB,
       .shared_per_multiprocessor = 228 * KB},
  };
  return gpus;
}

}  // namespace

int sm_of(std::string_view arch) {
  int number = 0;
  if (!arch.starts_with("sm_")) return 0;
  for (size_t i = 3; i < arch.size() && arch[i] >= '0' && arch[i] <= '9'; ++i)
    number = number * 10 + (arch[i] - '0');
  return number;
}

std::span<const Gpu> all_gpus() { return table(); }

const Gpu* find_gpu(std::string_view name) {
  for (const Gpu& gpu : table()) {
    if (gpu.name == name || gpu.arch == name) return &gpu;
  }
  return nullptr;
}

}  // namespace mcc::tensor
