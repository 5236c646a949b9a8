#include "codegen/host_gpu.h"

#include <dlfcn.h>

#include <algorithm>

#include "mcc/cuda_driver.h"
#include "support/text.h"

namespace mcc::codegen {

namespace {

std::string error_text(const mcc_cuda_driver& cuda, mcc_cu_result code) {
  const char* what = nullptr;
  if (cuda.error_string(code, &what) == MCC_CU_SUCCESS && what != nullptr) return what;
  return text("error ", code);
}

// What is known of the architecture, or of the newest one before it.
const tensor::Gpu* find_like(const std::string& arch) {
  const tensor::Gpu* like = tensor::find_gpu(arch);
  if (like != nullptr) return like;
  for (const tensor::Gpu& gpu : tensor::all_gpus())
    if (gpu.sm() <= tensor::sm_of(arch) && (like == nullptr || gpu.sm() > like->sm())) like = &gpu;
  return like;
}

HostGpu describe(const mcc_cuda_driver& cuda, mcc_cu_device device) {
  auto attribute = [&](int which) {
    int value = 0;
    return cuda.device_attribute(&value, which, device) == MCC_CU_SUCCESS ? value : 0;
  };
  char name[256] = "";
  cuda.device_name(name, sizeof name - 1, device);
  const std::string arch = text("sm_", attribute(MCC_CU_ATTRIBUTE_MAJOR), attribute(MCC_CU_ATTRIBUTE_MINOR));
  HostGpu host;
  if (const tensor::Gpu* like = find_like(arch)) host.gpu = *like;
  tensor::Gpu& gpu = host.gpu;
  gpu.name = name;
  gpu.arch = arch;
  // Lanes of f32 FMA of one multiprocessor: 64, and 128 from sm_86 on but for sm_87's smaller brothers of it.
  int lanes = gpu.sm() >= 86 ? 128 : 64;
  auto take = [&](int which, auto* field, auto scale) {
    if (int value = attribute(which); value > 0)
      *field = static_cast<std::remove_pointer_t<decltype(field)>>(value * scale);
  };
  take(MCC_CU_ATTRIBUTE_MULTIPROCESSORS, &gpu.multiprocessors, 1);
  take(MCC_CU_ATTRIBUTE_CLOCK_KHZ, &gpu.ghz, 1e-6);
  take(MCC_CU_ATTRIBUTE_L2_BYTES, &gpu.l2_bytes, 1.0);
  take(MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK, &gpu.shared_per_block, 1);
  take(MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, &gpu.shared_per_block_max, 1);
  take(MCC_CU_ATTRIBUTE_SHARED_PER_MULTIPROCESSOR, &gpu.shared_per_multiprocessor, 1);
  take(MCC_CU_ATTRIBUTE_REGISTERS_PER_MULTIPROCESSOR, &gpu.registers_per_multiprocessor, 1);
  take(MCC_CU_ATTRIBUTE_THREADS_PER_BLOCK, &gpu.threads_per_block, 1);
  take(MCC_CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR, &gpu.threads_per_multiprocessor, 1);
  take(MCC_CU_ATTRIBUTE_BLOCKS_PER_MULTIPROCESSOR, &gpu.blocks_per_multiprocessor, 1);
  gpu.gflops = gpu.multiprocessors * gpu.ghz * lanes * 2;
  // Two transfers a clock.
  double memory_khz = attribute(MCC_CU_ATTRIBUTE_MEMORY_CLOCK_KHZ);
  double bus_bytes = attribute(MCC_CU_ATTRIBUTE_MEMORY_BUS_BITS) / 8.0;
  if (memory_khz > 0 && bus_bytes > 0) gpu.gb_per_s = 2 * memory_khz * bus_bytes * 1e-6;
  const int mode = attribute(MCC_CU_ATTRIBUTE_COMPUTE_MODE);
  host.is_exclusive = mode == MCC_CU_COMPUTE_EXCLUSIVE_PROCESS;
  host.is_prohibited = mode == MCC_CU_COMPUTE_PROHIBITED;
  size_t bytes = 0;
  if (cuda.device_memory(&bytes, device) == MCC_CU_SUCCESS) host.memory_bytes = static_cast<int64_t>(bytes);
  return host;
}

}  // namespace

HostGpus host_gpus() {
  HostGpus found;
  // Stays loaded: drivers do not like to be unloaded.
  void* library = dlopen(MCC_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    found.problem = "no NVIDIA driver: " MCC_CUDA_LIBRARY " is not there";
    return found;
  }
  mcc_cuda_driver cuda = {};
  const char* missing = nullptr;
  auto look_up = [&](auto* field, const char* name) {
    *field = reinterpret_cast<std::remove_pointer_t<decltype(field)>>(dlsym(library, name));
    if (*field == nullptr && missing == nullptr) missing = name;
  };
#define MCC_LOOK_UP(field, name, parameters) look_up(&cuda.field, name);
  MCC_CUDA_FUNCTIONS(MCC_LOOK_UP)
#undef MCC_LOOK_UP
  if (missing != nullptr) {
    found.problem = text("the NVIDIA driver is too old: it has no ", missing);
    return found;
  }
  cuda.driver_version(&found.driver_version);
  int count = 0;
  mcc_cu_result code = cuda.init(0);
  if (code == MCC_CU_SUCCESS) code = cuda.device_count(&count);
  if (code != MCC_CU_SUCCESS || count == 0) {
    found.problem = text("the NVIDIA driver finds no GPU", code == MCC_CU_SUCCESS ? "" : ": ",
                         code == MCC_CU_SUCCESS ? "" : error_text(cuda, code));
    return found;
  }
  for (int i = 0; i < count; ++i) {
    mcc_cu_device device = 0;
    if (cuda.device_get(&device, i) == MCC_CU_SUCCESS) found.gpus.push_back(describe(cuda, device));
  }
  return found;
}

}  // namespace mcc::codegen
