#include "fake_cuda/fake_cuda.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>

#include "fake_cuda/ptx.h"
#include "mcc/cuda_driver.h"

struct mcc_cu_module_s {
  std::string image;
  std::shared_ptr<const mcc::test::PtxModule> ptx;
};
struct mcc_cu_function_s {
  std::string entry;
  std::shared_ptr<const mcc::test::PtxModule> ptx;
};
struct mcc_cu_graph_s {
  std::vector<std::function<void()>> work;
};
struct mcc_cu_graph_exec_s {
  std::vector<std::function<void()>> work;
};
struct mcc_cu_stream_s {
  bool is_capturing = false;
  std::vector<std::function<void()>> work;
};
struct mcc_cu_event_s {
  float at = 0;
};
struct mcc_cu_context_s {
  int device = 0;
};

namespace {

using mcc::test::FakeCuda;
using mcc::test::FakeKernel;

struct Block {
  size_t bytes = 0;
  bool is_device = false;
};

struct Driver {
  FakeCuda state;
  std::map<uintptr_t, Block> blocks;
  std::vector<mcc_cu_context> current;
  mcc_cu_context_s primary[8];
  std::vector<std::unique_ptr<mcc_cu_function_s>> functions;
  void* kernels = nullptr;  // FAKE_CUDA_KERNELS
  std::string launch_action;  // FAKE_CUDA_LAUNCH
  float clock = 0;

  Driver() {
    auto number = [](const char* name, auto* value) {
      if (const char* text = std::getenv(name))
        *value = static_cast<std::remove_pointer_t<decltype(value)>>(std::atoll(text));
    };
    number("FAKE_CUDA_SM", &state.sm);
    number("FAKE_CUDA_MEMORY", &state.memory);
    number("FAKE_CUDA_DEVICES", &state.devices);
    number("FAKE_CUDA_PTX", &state.newest_ptx);
    number("FAKE_CUDA_RUN", &state.runs_ptx);
    if (const char* text = std::getenv("FAKE_CUDA_FAIL")) {
      const std::string fail = text;
      state.failures[fail.substr(0, fail.find(':'))] = std::atoi(fail.c_str() + fail.find(':') + 1);
    }
    if (const char* text = std::getenv("FAKE_CUDA_LAUNCH")) launch_action = text;
    if (const char* path = std::getenv("FAKE_CUDA_KERNELS")) kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < 8; ++i)
      primary[i].device = i;
  }
};

Driver& driver() {
  static Driver the;
  return the;
}

int called(const char* name, const std::string& more = "") {
  FakeCuda& state = driver().state;
  state.calls.push_back(more.empty() ? name : name + (" " + more));
  auto failure = state.failures.find(name);
  return failure == state.failures.end() ? MCC_CU_SUCCESS : failure->second;
}

// Whether the bytes lie in one allocation of the device.
bool is_device(mcc_cu_pointer address, size_t bytes) {
  auto it = driver().blocks.upper_bound(address);
  if (it == driver().blocks.begin()) return false;
  --it;
  return it->second.is_device && address + bytes <= it->first + it->second.bytes;
}

void* to_memory(mcc_cu_pointer address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

int allocate(void** address, size_t bytes, bool on_device) {
  FakeCuda& state = driver().state;
  if (bytes == 0) return MCC_CU_INVALID_VALUE;
  if (on_device && state.used + bytes > state.memory) return MCC_CU_OUT_OF_MEMORY;
  *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*address, 0xcd, bytes);
  driver().blocks[reinterpret_cast<uintptr_t>(*address)] = {bytes, on_device};
  ++(on_device ? state.device_blocks : state.host_blocks);
  if (on_device) state.used += bytes;
  return MCC_CU_SUCCESS;
}

int release(uintptr_t address, bool on_device) {
  FakeCuda& state = driver().state;
  auto it = driver().blocks.find(address);
  if (it == driver().blocks.end() || it->second.is_device != on_device) return MCC_CU_INVALID_VALUE;
  --(on_device ? state.device_blocks : state.host_blocks);
  if (on_device) state.used -= it->second.bytes;
  std::free(reinterpret_cast<void*>(address));
  driver().blocks.erase(it);
  return MCC_CU_SUCCESS;
}

bool has_context() { return !driver().current.empty(); }

int enqueue(mcc_cu_stream stream, std::function<void()> work) {
  if (stream != nullptr && stream->is_capturing) {
    stream->work.push_back(std::move(work));
  } else {
    work();
  }
  return MCC_CU_SUCCESS;
}

}  // namespace

#define FAKE(name) extern "C" __attribute__((visibility("default"))) mcc_cu_result name
#define CALLED(name)                         \
  if (int code = called(#name)) return code; \
  static_assert(true)

extern "C" __attribute__((visibility("default"))) FakeCuda* fake_cuda_state() { return &driver().state; }

extern "C" __attribute__((visibility("default"))) const mcc::test::FakeCudaHooks fake_cuda_hooks = {
    [](mcc_cu_stream stream, std::function<void()> work, float milliseconds) {
      driver().state.calls.push_back("library call");
      return enqueue(stream, [work = std::move(work), milliseconds] {
        work();
        driver().clock += milliseconds;
      });
    },
    is_device};

FAKE(cuInit)(unsigned) {
  CALLED(cuInit);
  return driver().state.devices == 0 ? MCC_CU_NO_DEVICE : MCC_CU_SUCCESS;
}
FAKE(cuDriverGetVersion)(int* version) {
  *version = driver().state.driver_version;
  return MCC_CU_SUCCESS;
}
FAKE(cuGetErrorName)(mcc_cu_result code, const char** name) {
  *name = code == MCC_CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == MCC_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == MCC_CU_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                         : "CUDA_ERROR_OTHER";
  return MCC_CU_SUCCESS;
}
FAKE(cuGetErrorString)(mcc_cu_result code, const char** text) {
  *text = code == MCC_CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
          : code == MCC_CU_OUT_OF_MEMORY ? "out of memory"
          : code == MCC_CU_NO_DEVICE     ? "no CUDA-capable device is detected"
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
      *value = (sm >= 90 ? 227 : 163) << 10;
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
  ++driver().state.contexts;
  *context = &driver().primary[device];
  return MCC_CU_SUCCESS;
}
FAKE(cuDevicePrimaryCtxRelease_v2)(mcc_cu_device) {
  CALLED(cuDevicePrimaryCtxRelease_v2);
  --driver().state.contexts;
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxGetCurrent)(mcc_cu_context* context) {
  *context = has_context() ? driver().current.back() : nullptr;
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxPushCurrent_v2)(mcc_cu_context context) {
  driver().current.push_back(context);
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxPopCurrent_v2)(mcc_cu_context* context) {
  if (!has_context()) return MCC_CU_INVALID_CONTEXT;
  *context = driver().current.back();
  driver().current.pop_back();
  return MCC_CU_SUCCESS;
}
FAKE(cuCtxGetDevice)(mcc_cu_device* device) {
  if (!has_context()) return MCC_CU_INVALID_CONTEXT;
  *device = driver().current.back()->device;
  return MCC_CU_SUCCESS;
}
FAKE(cuModuleLoadDataEx)
(mcc_cu_module* module, const void* image, unsigned count, int* options, void** values) {
  const auto* text = static_cast<const char*>(image);
  const int version = mcc::test::ptx_version(text);
  if (int code = called("cuModuleLoadDataEx", version == 0 ? "cubin" : "ptx")) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == MCC_CU_JIT_ERROR_LOG_BUFFER)
        std::strcpy(static_cast<char*>(values[i]), "ptxas: line 7: no");
    return code;
  }
  if (!has_context()) return MCC_CU_INVALID_CONTEXT;
  if (version == 0 && (driver().state.refuses_cubins || driver().state.runs_ptx != 0)) return MCC_CU_NO_BINARY_FOR_GPU;
  if (version > driver().state.newest_ptx) return MCC_CU_UNSUPPORTED_PTX_VERSION;
  *module = new mcc_cu_module_s{version == 0 ? "" : text, nullptr};
  if (driver().state.runs_ptx) {
    std::string problem;
    (*module)->ptx = mcc::test::parse_ptx((*module)->image, &problem);
    if ((*module)->ptx == nullptr) {
      for (unsigned i = 0; i < count; ++i)
        if (options[i] == MCC_CU_JIT_ERROR_LOG_BUFFER)
          std::strncpy(static_cast<char*>(values[i]), problem.c_str(), 1000);
      delete *module;
      *module = nullptr;
      return MCC_CU_INVALID_PTX;
    }
  }
  ++driver().state.modules;
  return MCC_CU_SUCCESS;
}
FAKE(cuModuleUnload)(mcc_cu_module module) {
  --driver().state.modules;
  delete module;
  return MCC_CU_SUCCESS;
}
FAKE(cuModuleGetFunction)(mcc_cu_function* function, mcc_cu_module module, const char* name) {
  CALLED(cuModuleGetFunction);
  // Of machine code it believes the name.
  if (!module->image.empty() && module->image.find(std::string(".entry ") + name) == std::string::npos)
    return 500;
  driver().functions.push_back(std::make_unique<mcc_cu_function_s>(mcc_cu_function_s{name, module->ptx}));
  *function = driver().functions.back().get();
  return MCC_CU_SUCCESS;
}
FAKE(cuFuncSetAttribute)(mcc_cu_function, int, int value) {
  if (int code = called("cuFuncSetAttribute", std::to_string(value))) return code;
  return MCC_CU_SUCCESS;
}
FAKE(cuMemAlloc_v2)(mcc_cu_pointer* address, size_t bytes) {
  CALLED(cuMemAlloc_v2);
  if (!has_context()) return MCC_CU_INVALID_CONTEXT;
  void* memory = nullptr;
  const int code = allocate(&memory, bytes, true);
  *address = reinterpret_cast<uintptr_t>(memory);
  return code;
}
FAKE(cuMemFree_v2)(mcc_cu_pointer address) { return release(address, true); }
FAKE(cuMemHostAlloc)(void** address, size_t bytes, unsigned) {
  CALLED(cuMemHostAlloc);
  return allocate(address, bytes, false);
}
FAKE(cuMemFreeHost)(void* address) { return release(reinterpret_cast<uintptr_t>(address), false); }
FAKE(cuMemcpyHtoDAsync_v2)(mcc_cu_pointer to, const void* from, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemcpyHtoDAsync_v2);
  if (!is_device(to, bytes)) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to_memory(to), from, bytes); });
}
FAKE(cuMemcpyDtoHAsync_v2)(void* to, mcc_cu_pointer from, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemcpyDtoHAsync_v2);
  if (!is_device(from, bytes)) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to, to_memory(from), bytes); });
}
FAKE(cuMemcpyDtoDAsync_v2)(mcc_cu_pointer to, mcc_cu_pointer from, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemcpyDtoDAsync_v2);
  if (!is_device(to, bytes) || !is_device(from, bytes)) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to_memory(to), to_memory(from), bytes); });
}
FAKE(cuMemsetD8Async)(mcc_cu_pointer to, unsigned char value, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemsetD8Async);
  if (!is_device(to, bytes)) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memset(to_memory(to), value, bytes); });
}
FAKE(cuPointerGetAttribute)(void* value, int attribute, mcc_cu_pointer address) {
  auto it = driver().blocks.upper_bound(address);
  if (attribute != MCC_CU_POINTER_MEMORY_TYPE || it == driver().blocks.begin()) return MCC_CU_INVALID_VALUE;
  --it;
  if (address >= it->first + it->second.bytes) return MCC_CU_INVALID_VALUE;
  *static_cast<unsigned*>(value) = it->second.is_device ? MCC_CU_MEMORY_DEVICE : 1;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamCreate)(mcc_cu_stream* stream, unsigned) {
  CALLED(cuStreamCreate);
  *stream = new mcc_cu_stream_s;
  ++driver().state.streams;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamDestroy_v2)(mcc_cu_stream stream) {
  --driver().state.streams;
  delete stream;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamSynchronize)(mcc_cu_stream) {
  CALLED(cuStreamSynchronize);
  return MCC_CU_SUCCESS;
}
FAKE(cuLaunchKernel)
(mcc_cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
 unsigned shared, mcc_cu_stream stream, void** params, void**) {
  std::ostringstream what;
  what << function->entry << ' ' << gx << 'x' << gy << 'x' << gz << ' ' << bx << 'x' << by << 'x' << bz << ' '
       << shared;
  if (int code = called("cuLaunchKernel", what.str())) return code;
  // "SIZES=ACTION": of launches of that grid and block.
  const std::string& action = driver().launch_action;
  if (const size_t at = action.find('=');
      at != std::string::npos && what.str().find(action.substr(0, at)) != std::string::npos) {
    if (action.ends_with("=hang")) {
      for (;;)
        pause();
    }
    if (action.ends_with("=skip")) return MCC_CU_SUCCESS;
    const int code = std::atoi(action.c_str() + at + 1);
    if (code == MCC_CU_LAUNCH_OUT_OF_RESOURCES) return code;
    driver().state.failures["cuStreamSynchronize"] = code;
    return MCC_CU_SUCCESS;
  }
  if (!has_context() || gx * gy * gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024)
    return MCC_CU_INVALID_VALUE;
  mcc::test::FakeEntry entry;
  if (auto it = driver().state.kernels.find(function->entry); it != driver().state.kernels.end())
    entry = it->second;
  if (entry.function == nullptr && driver().kernels != nullptr) {
    entry.function = reinterpret_cast<FakeKernel>(dlsym(driver().kernels, function->entry.c_str()));
    const void* count = dlsym(driver().kernels, (function->entry + "_arguments").c_str());
    if (count != nullptr) entry.arguments = *static_cast<const int*>(count);
  }
  if (function->ptx != nullptr) entry.arguments = mcc::test::ptx_arguments(*function->ptx, function->entry);
  if (entry.function == nullptr && function->ptx == nullptr) return 500;
  // As a driver does, the values of the arguments are taken now.
  std::vector<uint64_t> values;
  auto maps = std::make_shared<std::vector<std::unique_ptr<mcc::test::PtxTensorMap>>>();
  for (int i = 0; i < entry.arguments; ++i) {
    const size_t bytes =
        function->ptx != nullptr ? mcc::test::ptx_argument_bytes(*function->ptx, function->entry, i) : 8;
    if (bytes == sizeof(mcc::test::PtxTensorMap)) {
      maps->push_back(std::make_unique<mcc::test::PtxTensorMap>());
      std::memcpy(maps->back().get(), params[i], bytes);
      values.push_back(reinterpret_cast<uint64_t>(maps->back().get()));
    } else {
      values.push_back(*static_cast<uint64_t*>(params[i]));
    }
  }
  if (function->ptx != nullptr) {
    return enqueue(stream, [=, kept = maps] {
      const mcc::test::PtxGrid sizes = {{gx, gy, gz}, {bx, by, bz}, shared};
      const auto start = std::chrono::steady_clock::now();
      const std::string problem =
          mcc::test::run_ptx(*function->ptx, function->entry, sizes, values, is_device);
      driver().clock +=
          std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
      if (problem.empty()) return;
      // As on a GPU, later calls report it; here with the reason.
      std::fprintf(stderr, "stand-in GPU: %s: %s\n", function->entry.c_str(), problem.c_str());
      driver().state.failures["cuStreamSynchronize"] = MCC_CU_ILLEGAL_ADDRESS;
    });
  }
  return enqueue(stream, [=]() mutable {
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    std::vector<void*> list;
    for (uint64_t& value : values)
      list.push_back(&value);
    entry.function(grid, block, list.data());
    driver().clock += 0.25F;
  });
}
FAKE(cuTensorMapEncodeTiled)
(mcc_cu_tensor_map* map, int type, uint32_t rank, void* address, const uint64_t* extents,
 const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int,
 int fill) {
  CALLED(cuTensorMapEncodeTiled);
  mcc::test::PtxTensorMap made;
  const bool is_good =
      reinterpret_cast<uintptr_t>(map) % 64 == 0 && type == MCC_CU_TENSOR_UINT16 && rank == 2 &&
      interleave == 0 && fill == 0 && steps[0] == 1 && steps[1] == 1 &&
      mcc::test::make_map(reinterpret_cast<uintptr_t>(address), extents, strides, box, swizzle, &made);
  if (is_good) std::memcpy(map, &made, sizeof made);
  return is_good ? MCC_CU_SUCCESS : MCC_CU_INVALID_VALUE;
}
FAKE(cuEventCreate)(mcc_cu_event* event, unsigned) {
  CALLED(cuEventCreate);
  ++driver().state.events;
  *event = new mcc_cu_event_s;
  return MCC_CU_SUCCESS;
}
FAKE(cuEventDestroy_v2)(mcc_cu_event event) {
  --driver().state.events;
  delete event;
  return MCC_CU_SUCCESS;
}
FAKE(cuEventRecord)(mcc_cu_event event, mcc_cu_stream) {
  CALLED(cuEventRecord);
  event->at = driver().clock;
  return MCC_CU_SUCCESS;
}
FAKE(cuEventElapsedTime)(float* ms, mcc_cu_event begin, mcc_cu_event end) {
  *ms = end->at - begin->at;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamBeginCapture_v2)(mcc_cu_stream stream, int) {
  CALLED(cuStreamBeginCapture_v2);
  stream->is_capturing = true;
  stream->work.clear();
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamEndCapture)(mcc_cu_stream stream, mcc_cu_graph* graph) {
  CALLED(cuStreamEndCapture);
  stream->is_capturing = false;
  ++driver().state.graphs;
  *graph = new mcc_cu_graph_s{stream->work};
  return MCC_CU_SUCCESS;
}
FAKE(cuGraphInstantiateWithFlags)(mcc_cu_graph_exec* exec, mcc_cu_graph graph, unsigned long long) {
  CALLED(cuGraphInstantiateWithFlags);
  ++driver().state.graphs;
  *exec = new mcc_cu_graph_exec_s{graph->work};
  return MCC_CU_SUCCESS;
}
FAKE(cuGraphLaunch)(mcc_cu_graph_exec exec, mcc_cu_stream) {
  CALLED(cuGraphLaunch);
  for (const auto& work : exec->work)
    work();
  return MCC_CU_SUCCESS;
}
FAKE(cuGraphDestroy)(mcc_cu_graph graph) {
  --driver().state.graphs;
  delete graph;
  return MCC_CU_SUCCESS;
}
FAKE(cuGraphExecDestroy)(mcc_cu_graph_exec exec) {
  --driver().state.graphs;
  delete exec;
  return MCC_CU_SUCCESS;
}
