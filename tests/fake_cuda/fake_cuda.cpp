// Devices, contexts, modules and memory of the stand-in driver.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fake_cuda/fake_driver.h"

namespace mcc::test {

FakeDriver::FakeDriver() {
  auto number = [](const char* name, auto* value) {
    if (const char* text = std::getenv(name))
      *value = static_cast<std::remove_pointer_t<decltype(value)>>(std::atoll(text));
  };
  number("FAKE_CUDA_SM", &state.sm);
  number("FAKE_CUDA_MEMORY", &state.memory);
  number("FAKE_CUDA_DEVICES", &state.devices);
  number("FAKE_CUDA_PTX", &state.newest_ptx);
  number("FAKE_CUDA_DRIVER", &state.driver_version);
  number("FAKE_CUDA_LOAD", &state.load_seconds);
  number("FAKE_CUDA_RUN", &state.runs_ptx);
  if (const char* text = std::getenv("FAKE_CUDA_FAIL")) {
    const std::string fail = text;
    state.failures[fail.substr(0, fail.find(':'))] = std::atoi(fail.c_str() + fail.find(':') + 1);
  }
  if (const char* text = std::getenv("FAKE_CUDA_LAUNCH")) launch_action = text;
  if (const char* path = std::getenv("FAKE_CUDA_COUNT")) count_file = path;
  if (const char* path = std::getenv("FAKE_CUDA_EXCLUSIVE")) exclusive = path;
  if (const char* path = std::getenv("FAKE_CUDA_KERNELS")) kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; i < 8; ++i)
    primary[i].device = i;
}

FakeDriver& driver() {
  static FakeDriver the;
  return the;
}

const FakeDriver::Block* FakeDriver::block_of(uint64_t address) const {
  auto it = blocks.upper_bound(address);
  if (it == blocks.begin()) return nullptr;
  --it;
  return address < it->first + it->second.bytes ? &it->second : nullptr;
}

FakeThread& this_thread() {
  thread_local FakeThread the;
  return the;
}

int failure_of(const char* name) {
  const auto& failures = driver().state.failures;
  auto failure = failures.find(name);
  return failure == failures.end() ? MCC_CU_SUCCESS : failure->second;
}

int called(const char* name, const std::string& more) {
  driver().state.calls.push_back(more.empty() ? name : name + (" " + more));
  if (const int code = refuse_without_driver()) return code;
  return failure_of(name);
}

int refuse_without_driver() {
  if (driver().state.is_deinitialized) return MCC_CU_DEINITIALIZED;
  return driver().process == ::getpid() ? MCC_CU_SUCCESS : MCC_CU_NOT_INITIALIZED;
}

int refuse_without_context() {
  if (const int code = refuse_without_driver()) return code;
  return this_thread().contexts.empty() ? MCC_CU_INVALID_CONTEXT : driver().state.lost;
}

bool is_device(uint64_t address, size_t bytes) {
  if (bytes == 0) return true;
  const FakeDriver::Block* block = driver().block_of(address);
  return block != nullptr && block->is_device && driver().block_of(address + bytes - 1) == block;
}

int most_shared(int sm) {
  return (sm >= 90 ? 227 : sm == 86 || sm == 89 ? 99 : sm >= 80 ? 163 : sm == 75 ? 64 : 96) << 10;
}

}  // namespace mcc::test

using namespace mcc::test;

namespace {

int allocate(void** address, size_t bytes, bool on_device) {
  FakeCuda& state = driver().state;
  if (bytes == 0) return MCC_CU_INVALID_VALUE;
  if (on_device && state.used + bytes > state.memory) return MCC_CU_OUT_OF_MEMORY;
  *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*address, 0xff, bytes);  // no number, and no index
  driver().blocks[reinterpret_cast<uintptr_t>(*address)] = {bytes, on_device,
                                                            this_thread().contexts.back()->device};
  ++(on_device ? state.device_blocks : state.host_blocks);
  if (on_device) state.used += bytes;
  return MCC_CU_SUCCESS;
}

int release(uintptr_t address, bool on_device) {
  FakeCuda& state = driver().state;
  auto it = driver().blocks.find(address);
  if (it == driver().blocks.end() || it->second.is_device != on_device) return MCC_CU_INVALID_VALUE;
  finish_all();
  --(on_device ? state.device_blocks : state.host_blocks);
  if (on_device) state.used -= it->second.bytes;
  std::free(reinterpret_cast<void*>(address));
  driver().blocks.erase(it);
  return MCC_CU_SUCCESS;
}

// False where another process has the GPU.
bool lock_gpu() {
  FakeDriver& d = driver();
  if (d.exclusive.empty()) return true;
  if (d.exclusive == "none") return false;
  d.lock = ::open(d.exclusive.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (d.lock >= 0 && ::flock(d.lock, LOCK_EX | LOCK_NB) == 0) return true;
  if (d.lock >= 0) ::close(d.lock);
  d.lock = -1;
  return false;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) FakeCuda* fake_cuda_state() { return &driver().state; }

FAKE(cuInit)(unsigned) {
  // A child of a process that has called it cannot do so once more.
  if (driver().process != 0 && driver().process != ::getpid()) return MCC_CU_NOT_INITIALIZED;
  driver().process = ::getpid();
  CALLED(cuInit);
  return driver().state.devices == 0 ? MCC_CU_NO_DEVICE : MCC_CU_SUCCESS;
}
FAKE(cuDriverGetVersion)(int* version) {
  *version = driver().state.driver_version;
  return MCC_CU_SUCCESS;
}
FAKE(cuGetErrorName)(mcc_cu_result code, const char** name) {
  *name = code == MCC_CU_ILLEGAL_ADDRESS   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == MCC_CU_NOT_INITIALIZED ? "CUDA_ERROR_NOT_INITIALIZED"
          : code == MCC_CU_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == MCC_CU_NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
                                           : "CUDA_ERROR_OTHER";
  return MCC_CU_SUCCESS;
}
FAKE(cuGetErrorString)(mcc_cu_result code, const char** text) {
  *text = code == MCC_CU_ILLEGAL_ADDRESS   ? "an illegal memory access was encountered"
          : code == MCC_CU_NOT_INITIALIZED ? "initialization error"
          : code == MCC_CU_OUT_OF_MEMORY   ? "out of memory"
          : code == MCC_CU_NO_DEVICE       ? "no CUDA-capable device is detected"
                                           : "another error";
  return MCC_CU_SUCCESS;
}
FAKE(cuDeviceGetCount)(int* count) {
  CALLED(cuDeviceGetCount);
  *count = driver().state.devices;
  return MCC_CU_SUCCESS;
}
FAKE(cuDeviceGet)(mcc_cu_device* device, int ordinal) {
  CALLED(cuDeviceGet);
  *device = ordinal;
  return ordinal < driver().state.devices ? MCC_CU_SUCCESS : MCC_CU_INVALID_VALUE;
}
FAKE(cuDeviceGetName)(char* name, int size, mcc_cu_device) {
  std::strncpy(name, "Stand-in GPU", static_cast<size_t>(size));
  return MCC_CU_SUCCESS;
}
FAKE(cuDeviceGetAttribute)(int* value, int attribute, mcc_cu_device) {
  const int sm = driver().state.sm;
  switch (attribute) {
    case MCC_CU_ATTRIBUTE_MAJOR:
      *value = sm / 10;
      break;
    case MCC_CU_ATTRIBUTE_MINOR:
      *value = sm % 10;
      break;
    case MCC_CU_ATTRIBUTE_MULTIPROCESSORS:
      *value = 108;
      break;
    case MCC_CU_ATTRIBUTE_CLOCK_KHZ:
      *value = 1410000;
      break;
    case MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN:
      *value = most_shared(sm);
      break;
    case MCC_CU_ATTRIBUTE_COMPUTE_MODE:
      *value = driver().exclusive.empty()     ? 0
               : driver().exclusive == "none" ? MCC_CU_COMPUTE_PROHIBITED
                                              : MCC_CU_COMPUTE_EXCLUSIVE_PROCESS;
      break;
    case MCC_CU_ATTRIBUTE_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    default:
      *value = 0;
  }
  return MCC_CU_SUCCESS;
}
FAKE(cuDeviceTotalMem_v2)(size_t* bytes, mcc_cu_device) {
  *bytes = driver().state.memory;
  return MCC_CU_SUCCESS;
}
FAKE(cuDevicePrimaryCtxRetain)(mcc_cu_context* context, mcc_cu_device device) {
  CALLED(cuDevicePrimaryCtxRetain);
  // A driver reserves addresses for all memory of the host and of GPUs, whatever a process may have of data.
  rlimit data = {};
  constexpr rlim_t kReserved = rlim_t{1} << 40;
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur < kReserved) return MCC_CU_OUT_OF_MEMORY;
  if (driver().state.contexts == 0 && !lock_gpu()) return MCC_CU_DEVICE_UNAVAILABLE;
  ++driver().state.contexts;
  *context = &driver().primary[device];
  return MCC_CU_SUCCESS;
}
FAKE(cuDevicePrimaryCtxRelease_v2)(mcc_cu_device) {
  CALLED(cuDevicePrimaryCtxRelease_v2);
  if (--driver().state.contexts == 0 && driver().lock >= 0) {
    ::close(driver().lock);
    driver().lock = -1;
  }
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxGetCurrent)(mcc_cu_context* context) {
  NEEDS_DRIVER;
  const std::vector<mcc_cu_context>& all = this_thread().contexts;
  *context = all.empty() ? nullptr : all.back();
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxPushCurrent_v2)(mcc_cu_context context) {
  NEEDS_DRIVER;
  if (const int code = failure_of("cuCtxPushCurrent_v2")) return code;
  if (context == nullptr) return MCC_CU_INVALID_CONTEXT;
  this_thread().contexts.push_back(context);
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxPopCurrent_v2)(mcc_cu_context* context) {
  NEEDS_DRIVER;
  if (this_thread().contexts.empty()) return MCC_CU_INVALID_CONTEXT;
  *context = this_thread().contexts.back();
  this_thread().contexts.pop_back();
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxGetDevice)(mcc_cu_device* device) {
  NEEDS_DRIVER;
  if (this_thread().contexts.empty()) return MCC_CU_INVALID_CONTEXT;
  *device = this_thread().contexts.back()->device;
  return MCC_CU_SUCCESS;
}
namespace {

void write_log(unsigned count, const int* options, void** values, const std::string& text) {
  size_t size = 0;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == MCC_CU_JIT_ERROR_LOG_BUFFER_SIZE) size = reinterpret_cast<uintptr_t>(values[i]);
  for (unsigned i = 0; i < count && size > 0; ++i)
    if (options[i] == MCC_CU_JIT_ERROR_LOG_BUFFER)
      std::strncpy(static_cast<char*>(values[i]), text.c_str(), size - 1);
}

}  // namespace

FAKE(cuModuleLoadDataEx)
(mcc_cu_module* module, const void* image, unsigned count, int* options, void** values) {
  const auto* text = static_cast<const char*>(image);
  const int version = ptx_version(text);
  if (int code = called("cuModuleLoadDataEx", version == 0 ? "cubin" : "ptx")) {
    write_log(count, options, values, "ptxas: line 7: no");
    return code;
  }
  NEEDS_CONTEXT;
  IS_UNSAFE_IN_CAPTURES;
  const FakeCuda& state = driver().state;
  if (version == 0 && (state.refuses_cubins || state.runs_ptx != 0)) return MCC_CU_NO_BINARY_FOR_GPU;
  if (version > state.newest_ptx) return MCC_CU_UNSUPPORTED_PTX_VERSION;
  if (version != 0 && !ptx_suits(text, state.sm)) {
    write_log(count, options, values, "SM version specified by .target is not this GPU's");
    return MCC_CU_INVALID_PTX;
  }
  if (version != 0 && state.load_seconds > 0) sleep(static_cast<unsigned>(state.load_seconds));
  *module = give(new mcc_cu_module_s{version == 0 ? "" : text, nullptr, this_thread().contexts.back()});
  if (state.runs_ptx) {
    std::string problem;
    (*module)->ptx = parse_ptx((*module)->image, &problem);
    if ((*module)->ptx == nullptr) {
      write_log(count, options, values, problem);
      take_back(*module);
      *module = nullptr;
      return MCC_CU_INVALID_PTX;
    }
  }
  ++driver().state.modules;
  return MCC_CU_SUCCESS;
}
FAKE(cuModuleUnload)(mcc_cu_module module) {
  NEEDS_CONTEXT;
  IS_UNSAFE_IN_CAPTURES;
  finish_all();
  --driver().state.modules;
  return take_back(module);
}
FAKE(cuModuleGetFunction)(mcc_cu_function* function, mcc_cu_module module, const char* name) {
  CALLED(cuModuleGetFunction);
  NEEDS_CONTEXT;
  // Of machine code it believes the name.
  if (!module->image.empty() && module->image.find(std::string(".entry ") + name) == std::string::npos)
    return 500;
  driver().functions.push_back(
      std::make_unique<mcc_cu_function_s>(mcc_cu_function_s{name, module->ptx, module->context}));
  *function = driver().functions.back().get();
  return MCC_CU_SUCCESS;
}
FAKE(cuFuncSetAttribute)(mcc_cu_function function, int attribute, int value) {
  if (int code = called("cuFuncSetAttribute", std::to_string(value))) return code;
  NEEDS_CONTEXT;
  if (attribute != MCC_CU_FUNCTION_MAX_DYNAMIC_SHARED || value < 0 || value > most_shared(driver().state.sm))
    return MCC_CU_INVALID_VALUE;
  function->dynamic_shared = static_cast<unsigned>(value);
  return MCC_CU_SUCCESS;
}
FAKE(cuMemAlloc_v2)(mcc_cu_pointer* address, size_t bytes) {
  CALLED(cuMemAlloc_v2);
  NEEDS_CONTEXT;
  IS_UNSAFE_IN_CAPTURES;
  void* memory = nullptr;
  const int code = allocate(&memory, bytes, true);
  *address = reinterpret_cast<uintptr_t>(memory);
  return code;
}
FAKE(cuMemFree_v2)(mcc_cu_pointer address) {
  NEEDS_CONTEXT;
  IS_UNSAFE_IN_CAPTURES;
  return release(address, true);
}
FAKE(cuMemHostAlloc)(void** address, size_t bytes, unsigned) {
  CALLED(cuMemHostAlloc);
  NEEDS_CONTEXT;
  IS_UNSAFE_IN_CAPTURES;
  return allocate(address, bytes, false);
}
FAKE(cuMemFreeHost)(void* address) {
  NEEDS_CONTEXT;
  IS_UNSAFE_IN_CAPTURES;
  return release(reinterpret_cast<uintptr_t>(address), false);
}
FAKE(cuPointerGetAttribute)(void* value, int attribute, mcc_cu_pointer address) {
  NEEDS_CONTEXT;
  if (const int code = failure_of("cuPointerGetAttribute")) return code;
  const FakeDriver::Block* block = driver().block_of(address);
  if (block == nullptr) return MCC_CU_INVALID_VALUE;
  switch (attribute) {
    case MCC_CU_POINTER_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = block->is_device ? MCC_CU_MEMORY_DEVICE : 1;
      return MCC_CU_SUCCESS;
    case MCC_CU_POINTER_IS_MANAGED:
      *static_cast<unsigned*>(value) = 0;
      return MCC_CU_SUCCESS;
    case MCC_CU_POINTER_DEVICE_ORDINAL:
      *static_cast<int*>(value) = block->device;
      return MCC_CU_SUCCESS;
    default:
      return MCC_CU_INVALID_VALUE;
  }
}
