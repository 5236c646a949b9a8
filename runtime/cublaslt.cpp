#include "runtime/cublaslt.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <initializer_list>

#include "runtime/cuda.h"

namespace mcc::runtime {

namespace {

// The one piece of state that a process has of the library; written once.
struct Loaded {
  mcc_cublaslt functions = {};
  bool has_library = false;
  const char* missing = nullptr;  // the first function that is not there
};
pthread_once_t once = PTHREAD_ONCE_INIT;
Loaded loaded;

// The first of those that are not newer than the driver's CUDA, which they would not work with; else the first of all, to say so.
void* open_library() {
  mcc_error ignored = {};
  int driver = 0;
  if (const mcc_cuda_driver* cuda = load_cuda(&ignored)) cuda->driver_version(&driver);
  for (const bool is_any : {false, true}) {
    for (const char* name : MCC_LT_LIBRARIES) {
      const int version = 1000 * std::atoi(std::strrchr(name, '.') + 1);
      if (!is_any && driver != 0 && version > driver) continue;
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

void load() {
  void* library = open_library();
  if (library == nullptr) return;
  loaded.has_library = true;
  auto look_up = [&](auto* field, const char* name, bool is_needed) {
    void* function = dlsym(library, name);
    std::memcpy(field, &function, sizeof function);
    if (function == nullptr && is_needed && loaded.missing == nullptr) loaded.missing = name;
  };
#define MCC_LOOK_UP(field, name, parameters) look_up(&loaded.functions.field, name, true);
  MCC_LT_FUNCTIONS(MCC_LOOK_UP)
#undef MCC_LOOK_UP
  look_up(&loaded.functions.version, "cublasLtGetVersion", true);
  look_up(&loaded.functions.status_name, "cublasLtGetStatusName", false);
}

mcc_status fail_lt(const mcc_cublaslt& lt, mcc_lt_status code, mcc_status status, const char* what,
                   mcc_error* error) {
  const char* name = lt.status_name != nullptr ? lt.status_name(code) : nullptr;
  return fail(error, code == MCC_LT_ALLOC_FAILED ? MCC_OUT_OF_MEMORY : status, "cuBLASLt: %s (%s, %d)", what,
              name != nullptr ? name : "status", code);
}

int data_type(uint32_t dtype) {
  return dtype == MCC_DTYPE_f16 ? MCC_LT_R_16F : dtype == MCC_DTYPE_bf16 ? MCC_LT_R_16BF : MCC_LT_R_32F;
}

// The first error of several calls.
struct Calls {
  mcc_lt_status status = MCC_LT_SUCCESS;
  void operator()(mcc_lt_status code) {
    if (status == MCC_LT_SUCCESS) status = code;
  }
};

mcc_lt_status open_layout(const mcc_cublaslt& lt, const mcc_device_matrix& m, uint64_t batches,
                          mcc_lt_layout* layout) {
  const auto count = static_cast<int32_t>(batches);
  const auto stride = static_cast<int64_t>(m.batch_stride);
  const mcc_lt_status status =
      lt.layout_create(layout, data_type(m.dtype), m.rows, m.columns, static_cast<int64_t>(m.leading));
  if (status != MCC_LT_SUCCESS) {
    *layout = nullptr;
    return status;
  }
  Calls calls;
  if (batches > 1) {
    calls(lt.layout_set(*layout, MCC_LT_LAYOUT_BATCH_COUNT, &count, sizeof count));
    calls(lt.layout_set(*layout, MCC_LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride));
  }
  return calls.status;
}

mcc_lt_status open_desc(const mcc_cublaslt& lt, const mcc_device_product& of, mcc_lt_desc* desc) {
  // f32 is multiplied as f32: TF32 is for those who ask for it.
  const int compute = of.compute == MCC_COMPUTE_tf32 ? MCC_LT_COMPUTE_32F_FAST_TF32 : MCC_LT_COMPUTE_32F;
  const mcc_lt_status status = lt.desc_create(desc, compute, MCC_LT_R_32F);
  if (status != MCC_LT_SUCCESS) {
    *desc = nullptr;
    return status;
  }
  const int32_t first = of.first.is_transposed != 0 ? MCC_LT_OP_T : MCC_LT_OP_N;
  const int32_t second = of.second.is_transposed != 0 ? MCC_LT_OP_T : MCC_LT_OP_N;
  Calls calls;
  calls(lt.desc_set(*desc, MCC_LT_DESC_TRANSA, &first, sizeof first));
  calls(lt.desc_set(*desc, MCC_LT_DESC_TRANSB, &second, sizeof second));
  if (of.has_bias != 0) {
    const uint32_t epilogue = MCC_LT_EPILOGUE_BIAS;
    // Which algorithms fit depends on the alignment of the address, which is that of all tensors.
    const void* bias = reinterpret_cast<const void*>(uintptr_t{MCC_BUFFER_ALIGNMENT});
    calls(lt.desc_set(*desc, MCC_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    calls(lt.desc_set(*desc, MCC_LT_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  return calls.status;
}

mcc_lt_status choose(const mcc_cublaslt& lt, mcc_lt_handle handle, const mcc_device_product& of,
                     LibraryProduct* p) {
  mcc_lt_preference preference = nullptr;
  mcc_lt_status status = lt.preference_create(&preference);
  if (status != MCC_LT_SUCCESS) return status;
  Calls calls;
  calls(lt.preference_set(preference, MCC_LT_PREFERENCE_WORKSPACE_BYTES, &of.workspace_bytes,
                          sizeof of.workspace_bytes));
  const uint32_t alignment = MCC_BUFFER_ALIGNMENT;
  for (int matrix = MCC_LT_PREFERENCE_ALIGNMENT_A; matrix <= MCC_LT_PREFERENCE_ALIGNMENT_D; ++matrix)
    calls(lt.preference_set(preference, matrix, &alignment, sizeof alignment));
  mcc_lt_choice choices[MCC_MOST_ALGORITHMS];
  int found = 0;
  if (calls.status == MCC_LT_SUCCESS) {
    calls(lt.choose(handle, p->desc, p->first, p->second, p->addend != nullptr ? p->addend : p->result,
                    p->result, preference, static_cast<int>(of.algorithm) + 1, choices, &found));
  }
  lt.preference_destroy(preference);
  if (calls.status != MCC_LT_SUCCESS) return calls.status;
  p->algorithms = 0;
  for (int i = 0; i < found && i <= static_cast<int>(of.algorithm); ++i) {
    if (choices[i].status != MCC_LT_SUCCESS || choices[i].workspace_bytes > of.workspace_bytes) continue;
    if (p->algorithms == 0 || i == static_cast<int>(of.algorithm)) p->algorithm = choices[i].algorithm;
    ++p->algorithms;
  }
  return p->algorithms == 0 ? MCC_LT_NOT_SUPPORTED : MCC_LT_SUCCESS;
}

// Addresses of workspaces are multiples of this.
constexpr uint64_t kWorkspaceAlignment = 256;

void* memory_at(mcc_cu_pointer address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

}  // namespace

const mcc_cublaslt* load_cublaslt(mcc_error* error) {
  pthread_once(&once, load);
  if (!loaded.has_library) {
    fail(error, MCC_NOT_HERE,
         "the model calls cuBLASLt, and none of libcublasLt.so.13, .12 and .11 can be loaded: install it (it "
         "is a part of CUDA) "
         "where the loader looks, or compile the model with --no-library");
    return nullptr;
  }
  if (loaded.missing != nullptr) {
    fail(error, MCC_NOT_HERE, "cuBLASLt is too old: it has no %s", loaded.missing);
    return nullptr;
  }
  return &loaded.functions;
}

mcc_status open_cublaslt(const mcc_cublaslt& lt, mcc_lt_handle* handle, mcc_error* error) {
  const mcc_lt_status code = lt.create(handle);
  if (code == MCC_LT_SUCCESS) return MCC_OK;
  *handle = nullptr;
  return fail_lt(lt, code, MCC_NOT_HERE, "it does not work with this GPU and its driver", error);
}

mcc_status open_product(const mcc_cublaslt& lt, mcc_lt_handle handle, const mcc_device_product& of,
                        LibraryProduct* product, mcc_error* error) {
  Calls calls;
  calls(open_desc(lt, of, &product->desc));
  calls(open_layout(lt, of.first, of.batches, &product->first));
  calls(open_layout(lt, of.second, of.batches, &product->second));
  calls(open_layout(lt, of.result, of.batches, &product->result));
  if (of.has_addend != 0) calls(open_layout(lt, of.addend, of.batches, &product->addend));
  if (calls.status == MCC_LT_SUCCESS) calls(choose(lt, handle, of, product));
  if (calls.status == MCC_LT_SUCCESS) return MCC_OK;
  close_product(lt, product);
  return fail_lt(lt, calls.status, MCC_NOT_HERE, "it does not compute this product on this GPU", error);
}

void close_product(const mcc_cublaslt& lt, LibraryProduct* product) {
  for (mcc_lt_layout* layout : {&product->first, &product->second, &product->addend, &product->result}) {
    if (*layout != nullptr) lt.layout_destroy(*layout);
    *layout = nullptr;
  }
  if (product->desc != nullptr) lt.desc_destroy(product->desc);
  product->desc = nullptr;
}

mcc_status start_product(const mcc_cublaslt& lt, mcc_lt_handle handle, const mcc_device_product& of,
                         const LibraryProduct& product, const mcc_cu_pointer* arguments, mcc_cu_stream stream,
                         mcc_error* error) {
  const mcc_cu_pointer* rest = arguments + 3;
  const auto alpha = static_cast<float>(of.scale), beta = of.has_addend != 0 ? 1.0F : 0.0F;
  void* result = memory_at(arguments[2]);
  const void* addend = of.has_addend != 0 ? memory_at(*rest++) : result;
  Calls calls;
  if (of.has_bias != 0) {
    const void* bias = memory_at(*rest++);
    calls(lt.desc_set(product.desc, MCC_LT_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  // The argument has so many bytes more than algorithms may use.
  const mcc_cu_pointer workspace =
      (*rest + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  calls(lt.multiply(handle, product.desc, &alpha, memory_at(arguments[0]), product.first,
                    memory_at(arguments[1]), product.second, &beta, addend,
                    product.addend != nullptr ? product.addend : product.result, result, product.result,
                    &product.algorithm, memory_at(workspace), of.workspace_bytes, stream));
  return calls.status == MCC_LT_SUCCESS
             ? MCC_OK
             : fail_lt(lt, calls.status, MCC_DEVICE_FAILED, "a product failed", error);
}

}  // namespace mcc::runtime
