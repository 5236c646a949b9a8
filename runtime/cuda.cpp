#include "runtime/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

namespace mcc::runtime {

namespace {

// The one piece of state that a process has of a driver; written once.
struct Loaded {
  mcc_cuda_driver functions = {};
  bool has_library = false;
  const char* missing = nullptr;  // the first function that is not there
  mcc_cu_result init = 0;
  pid_t process = 0;  // that has initialised it: no child of it can use a GPU
};
pthread_once_t once = PTHREAD_ONCE_INIT;
Loaded loaded;

void load() {
  void* library = dlopen(MCC_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  loaded.has_library = true;
#define MCC_LOOK_UP(field, name, parameters)                                     \
  {                                                                              \
    void* function = dlsym(library, name);                                       \
    std::memcpy(&loaded.functions.field, &function, sizeof function);            \
    if (function == nullptr && loaded.missing == nullptr) loaded.missing = name; \
  }
  MCC_CUDA_FUNCTIONS(MCC_LOOK_UP)
  const char* missing = loaded.missing;
  MCC_CUDA_NEWER_FUNCTIONS(MCC_LOOK_UP)
  loaded.missing = missing;
#undef MCC_LOOK_UP
  loaded.process = getpid();
  if (loaded.missing == nullptr) loaded.init = loaded.functions.init(0);
}

mcc_status fail_after_fork(mcc_error* error) {
  return fail(error, MCC_NOT_HERE,
              "this process was forked from one that had begun to use the GPU, and the driver serves no such "
              "child: fork before the "
              "first session on a GPU, or start the child by exec");
}

}  // namespace

const mcc_cuda_driver* load_cuda(mcc_error* error) {
  pthread_once(&once, load);
  if (!loaded.has_library) {
    fail(error, MCC_NOT_HERE, "the model needs an NVIDIA GPU, and there is no driver: %s cannot be loaded",
         MCC_CUDA_LIBRARY);
    return nullptr;
  }
  if (loaded.missing != nullptr) {
    fail(error, MCC_NOT_HERE, "the NVIDIA driver is too old: it has no %s", loaded.missing);
    return nullptr;
  }
  if (loaded.process != getpid()) {
    fail_after_fork(error);
    return nullptr;
  }
  if (loaded.init != MCC_CU_SUCCESS) {
    fail_cuda(loaded.functions, loaded.init, "the model needs an NVIDIA GPU, and the driver finds none",
              error);
    if (error != nullptr) error->status = MCC_NOT_HERE;
    return nullptr;
  }
  return &loaded.functions;
}

mcc_status retain_primary(const mcc_cuda_driver& cuda, mcc_cu_device device, mcc_cu_context* context,
                          mcc_error* error) {
  const mcc_cu_result code = cuda.primary_retain(context, device);
  if (code == MCC_CU_SUCCESS) return MCC_OK;
  *context = nullptr;
  const mcc_status status = fail_cuda(cuda, code, "the GPU's context cannot be made", error);
  if (code != MCC_CU_DEVICE_UNAVAILABLE) return status;
  append_message(error,
                 ": another process has GPU %d for itself, or its compute mode lets none use it; wait for "
                 "that process, or let "
                 "several use it (nvidia-smi -i %d -c DEFAULT)",
                 device, device);
  if (error != nullptr) error->status = MCC_NOT_HERE;
  return MCC_NOT_HERE;
}

mcc_status encode_map(const mcc_cuda_driver& cuda, const mcc_device_map& map, mcc_cu_pointer address,
                      mcc_cu_tensor_map* out, mcc_error* error) {
  if (cuda.encode_tiles == nullptr) {
    return fail(error, MCC_NOT_HERE, "the NVIDIA driver is too old: it has no %s", "cuTensorMapEncodeTiled");
  }
  const uint64_t extents[] = {map.width, map.height}, strides[] = {map.width * map.element_bytes};
  const uint32_t box[] = {map.box_width, map.box_height}, steps[] = {1, 1};
  const int type = map.element_bytes == 1   ? MCC_CU_TENSOR_UINT8
                   : map.element_bytes == 2 ? MCC_CU_TENSOR_UINT16
                   : map.element_bytes == 4 ? MCC_CU_TENSOR_UINT32
                                            : MCC_CU_TENSOR_UINT64;
  const int swizzle = map.swizzle == 32   ? MCC_CU_TENSOR_SWIZZLE_32B
                      : map.swizzle == 64 ? MCC_CU_TENSOR_SWIZZLE_64B
                                          : MCC_CU_TENSOR_SWIZZLE_128B;
  // Nothing is interleaved; what lies outside is zeros.
  const mcc_cu_result code =
      cuda.encode_tiles(out, type, 2, reinterpret_cast<void*>(static_cast<uintptr_t>(address)), extents,
                        strides, box, steps, 0, swizzle, MCC_CU_TENSOR_L2_256B, 0);
  return code == MCC_CU_SUCCESS ? MCC_OK
                                : fail_cuda(cuda, code, "the driver makes no map of a matrix", error);
}

bool is_context_lost(mcc_cu_result code) {
  switch (code) {
    case MCC_CU_ECC_UNCORRECTABLE:
    case MCC_CU_NVLINK_UNCORRECTABLE:
    case MCC_CU_ILLEGAL_ADDRESS:
    case MCC_CU_LAUNCH_TIMEOUT:
    case MCC_CU_ASSERT:
    case MCC_CU_HARDWARE_STACK_ERROR:
    case MCC_CU_ILLEGAL_INSTRUCTION:
    case MCC_CU_MISALIGNED_ADDRESS:
    case MCC_CU_INVALID_ADDRESS_SPACE:
    case MCC_CU_INVALID_PC:
    case MCC_CU_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

mcc_status fail_cuda(const mcc_cuda_driver& cuda, mcc_cu_result code, const char* what, mcc_error* error) {
  if (code == MCC_CU_NOT_INITIALIZED && loaded.process != getpid()) return fail_after_fork(error);
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuda.error_name(code, &name) != MCC_CU_SUCCESS || name == nullptr) name = "unknown error";
  if (cuda.error_string(code, &text) != MCC_CU_SUCCESS || text == nullptr) text = "the driver reports";
  const mcc_status status = code == MCC_CU_OUT_OF_MEMORY ? MCC_OUT_OF_MEMORY : MCC_DEVICE_FAILED;
  return fail(error, status, "%s: %s (%s, %d)", what, text, name, code);
}

}  // namespace mcc::runtime
