#include "runtime/cuda.h"

#include <dlfcn.h>
#include <pthread.h>

namespace mcc::runtime {

namespace {

// The one piece of state that a process has of a driver; written once.
struct Loaded {
  mcc_cuda_driver functions = {};
  bool has_library = false;
  const char* missing = nullptr;  // the first function that is not there
  mcc_cu_result init = 0;
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
  if (loaded.missing == nullptr) loaded.init = loaded.functions.init(0);
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
  if (loaded.init != MCC_CU_SUCCESS) {
    fail_cuda(loaded.functions, loaded.init, "the model needs an NVIDIA GPU, and the driver finds none",
              error);
    if (error != nullptr) error->status = MCC_NOT_HERE;
    return nullptr;
  }
  return &loaded.functions;
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

mcc_status fail_cuda(const mcc_cuda_driver& cuda, mcc_cu_result code, const char* what, mcc_error* error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuda.error_name(code, &name) != MCC_CU_SUCCESS || name == nullptr) name = "unknown error";
  if (cuda.error_string(code, &text) != MCC_CU_SUCCESS || text == nullptr) text = "the driver reports";
  const mcc_status status = code == MCC_CU_OUT_OF_MEMORY ? MCC_OUT_OF_MEMORY : MCC_DEVICE_FAILED;
  return fail(error, status, "%s: %s (%s, %d)", what, text, name, code);
}

}  // namespace mcc::runtime
