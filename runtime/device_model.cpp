#include "runtime/device_model.h"

#include <cstdio>

#include "runtime/model.h"

namespace mcc::runtime {

namespace {

using ull = unsigned long long;

int attribute(const mcc_cuda_driver& cuda, int which, mcc_cu_device device) {
  int value = 0;
  return cuda.device_attribute(&value, which, device) == MCC_CU_SUCCESS ? value : 0;
}

// The context of the caller's stream, else the thread's current one; null where there is neither.
mcc_status find_callers_context(const mcc_cuda_driver& cuda, const mcc_session_options& options,
                                mcc_cu_context* context, mcc_cu_device* device, mcc_error* error) {
  cuda.context_current(context);
  if (options.cuda_stream != nullptr) {
    const mcc_cu_result code = cuda.stream_context(static_cast<mcc_cu_stream>(options.cuda_stream), context);
    // The default streams are those of the current context, and there may be none; a stream of a part of the GPU (a green
    // context) is used with the current one.
    if (code != MCC_CU_SUCCESS && code != MCC_CU_INVALID_CONTEXT && code != MCC_CU_NOT_SUPPORTED)
      return fail_cuda(cuda, code, "the stream that the options name cannot be used", error);
  }
  if (*context == nullptr) return MCC_OK;
  const CurrentContext current(cuda, *context);
  if (!current.is_there()) return current.fail(error);
  const mcc_cu_result code = cuda.context_device(device);
  return code == MCC_CU_SUCCESS
             ? MCC_OK
             : fail_cuda(cuda, code, "the GPU of the current context cannot be told", error);
}

// The context that the options mean.
mcc_status choose_context(DeviceModel* on, const mcc_session_options& options, mcc_error* error) {
  const mcc_cuda_driver& cuda = *on->cuda;
  int count = 0;
  mcc_cu_result code = cuda.device_count(&count);
  if (code != MCC_CU_SUCCESS) return fail_cuda(cuda, code, "the GPUs cannot be counted", error);
  if (count == 0)
    return fail(error, MCC_NOT_HERE, "the model needs an NVIDIA GPU, and the driver finds none");
  const int32_t asked = options.cuda_device;
  if (asked < 0 || asked > count) {
    return fail(error, MCC_INVALID_ARGUMENT,
                "cuda_device must be between 0 and %d (1 + the number of a GPU), got %d", count, asked);
  }
  mcc_cu_context callers = nullptr;
  mcc_cu_device of_callers = 0;
  const mcc_status status = find_callers_context(cuda, options, &callers, &of_callers, error);
  if (status != MCC_OK) return status;
  on->device = callers != nullptr ? of_callers : 0;
  if (asked > 0 || callers == nullptr) {
    code = cuda.device_get(&on->device, asked > 0 ? asked - 1 : 0);
    if (code != MCC_CU_SUCCESS) return fail_cuda(cuda, code, "the GPU cannot be used", error);
  }
  if (options.cuda_stream != nullptr && callers != nullptr && of_callers != on->device) {
    return fail(error, MCC_INVALID_ARGUMENT,
                "cuda_stream is a stream of GPU %d, and cuda_device asks for GPU %d", of_callers, on->device);
  }
  on->sm = static_cast<uint32_t>(attribute(cuda, MCC_CU_ATTRIBUTE_MAJOR, on->device) * 10 +
                                 attribute(cuda, MCC_CU_ATTRIBUTE_MINOR, on->device));
  if (callers != nullptr && of_callers == on->device) {
    on->context = callers;
    return MCC_OK;
  }
  const mcc_status retained = retain_primary(cuda, on->device, &on->context, error);
  on->is_retained = retained == MCC_OK;
  return retained;
}

// "ptx sm_80, cubin sm_90"
void print_images(char* out, size_t size, const DeviceCode& code, const mcc_device_kernel& kernel) {
  size_t used = 0;
  out[0] = 0;
  for (uint32_t i = 0; i < kernel.images.count && used < size; ++i) {
    const mcc_device_image& image = code.images[kernel.images.begin + i];
    const int wrote = std::snprintf(out + used, size - used, "%s%s %s", i == 0 ? "" : ", ",
                                    image.kind == MCC_IMAGE_ptx ? "ptx" : "cubin", code.text(image.arch));
    if (wrote < 0) return;
    used += static_cast<size_t>(wrote);
  }
}

mcc_status no_image(const DeviceModel& on, const DeviceCode& code, const mcc_device_kernel& kernel,
                    mcc_error* error) {
  char images[256], name[128] = "";
  print_images(images, sizeof images, code, kernel);
  on.cuda->device_name(name, sizeof name - 1, on.device);
  return fail(error, MCC_NOT_HERE,
              "the model has no code for this GPU (%s, sm_%u): it was compiled for %s; compile it with "
              "--target cuda:sm_%u",
              name, on.sm, images, on.sm);
}

// Codes by which a driver says that this image is not for it; another one may be.
bool is_refusal(mcc_cu_result code) {
  return code == MCC_CU_NO_BINARY_FOR_GPU || code == MCC_CU_INVALID_IMAGE || code == MCC_CU_INVALID_PTX ||
         code == MCC_CU_UNSUPPORTED_PTX_VERSION || code == MCC_CU_NO_JIT_COMPILER || code == MCC_CU_INVALID_SOURCE ||
         code == MCC_CU_NOT_SUPPORTED;
}

mcc_status refused(const DeviceModel& on, mcc_cu_result code, const char* log, mcc_error* error) {
  if (code == MCC_CU_UNSUPPORTED_PTX_VERSION) {
    int version = 0;
    on.cuda->driver_version(&version);
    return fail(error, MCC_NOT_HERE,
                "the NVIDIA driver (for CUDA %d.%d) is too old for the model's PTX: install a newer one, or "
                "compile the model where "
                "CUDA's assembler makes machine code for sm_%u",
                version / 1000, version % 1000 / 10, on.sm);
  }
  fail_cuda(*on.cuda, code, "the driver cannot load the model's code", error);
  if (code == MCC_CU_NO_JIT_COMPILER) {
    append_message(error,
                   ": install the part of the driver that compiles PTX (libnvidia-ptxjitcompiler.so.1; of containers, the "
                   "capability \"compute\"), or compile the model where CUDA's assembler makes machine code for sm_%u",
                   on.sm);
  }
  if (log[0] != 0) append_message(error, ": %.400s", log);
  if (is_refusal(code) && error != nullptr) error->status = MCC_NOT_HERE;
  return is_refusal(code) ? MCC_NOT_HERE : code == MCC_CU_OUT_OF_MEMORY ? MCC_OUT_OF_MEMORY : MCC_DEVICE_FAILED;
}

// The best image that the driver takes.
mcc_status load_kernel(DeviceModel* on, const DeviceCode& code, uint64_t index, mcc_error* error) {
  const mcc_device_kernel& kernel = code.kernels[index];
  char log[1024] = "";
  mcc_cu_result last = MCC_CU_SUCCESS;
  uint32_t below = UINT32_MAX;
  while (true) {
    const mcc_device_image* best = nullptr;
    uint32_t best_rank = 0;
    for (uint32_t i = 0; i < kernel.images.count; ++i) {
      const mcc_device_image& image = code.images[kernel.images.begin + i];
      const uint32_t rank = image_rank(image, on->sm);
      if (rank > best_rank && rank < below) {
        best = &image;
        best_rank = rank;
      }
    }
    if (best == nullptr)
      return last == MCC_CU_SUCCESS ? no_image(*on, code, kernel, error) : refused(*on, last, log, error);
    int options[] = {MCC_CU_JIT_ERROR_LOG_BUFFER, MCC_CU_JIT_ERROR_LOG_BUFFER_SIZE};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
    const mcc_cu_result result =
        on->cuda->module_load(&on->modules[index], code.code + best->offset, 2, options, values);
    if (result == MCC_CU_SUCCESS) {
      on->launches[index] = best->launches;
      return MCC_OK;
    }
    on->modules[index] = nullptr;
    if (!is_refusal(result)) return refused(*on, result, log, error);
    // An old driver may refuse machine code of a newer assembler, and take the PTX.
    last = result;
    below = best_rank;
  }
}

mcc_status load_library(DeviceModel* on, mcc_error* error) {
  if (on->lt_handle != nullptr) return MCC_OK;
  on->lt = load_cublaslt(error);
  return on->lt == nullptr ? MCC_NOT_HERE : open_cublaslt(*on->lt, &on->lt_handle, error);
}

mcc_status load_functions(DeviceModel* on, const DeviceCode& code, mcc_error* error) {
  const mcc_cuda_driver& cuda = *on->cuda;
  if (!on->modules.allocate(code.kernels_count) || !on->launches.allocate(code.kernels_count) ||
      !on->functions.allocate(code.launches_count))
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
  const int most_shared = attribute(cuda, MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, on->device);
  for (uint64_t k = 0; k < code.kernels_count; ++k) {
    mcc_status status = load_kernel(on, code, k, error);
    if (status != MCC_OK) return status;
    const mcc_plan_range launches = on->launches[k];
    for (uint64_t l = launches.begin; l < uint64_t{launches.begin} + launches.count; ++l) {
      const mcc_device_launch& launch = code.launches[l];
      if (launch.products.count != 0) {
        status = load_library(on, error);
        if (status != MCC_OK) return status;
        continue;
      }
      const char* name = code.text(launch.entry);
      mcc_cu_result result = cuda.module_function(&on->functions[l], on->modules[k], name);
      if (result != MCC_CU_SUCCESS) return fail_cuda(cuda, result, name, error);
      if (launch.dynamic_shared_bytes == 0) continue;
      if (launch.dynamic_shared_bytes > static_cast<uint32_t>(most_shared)) {
        return fail(
            error, MCC_NOT_HERE,
            "kernel %.200s needs %u bytes of shared memory, and this GPU (sm_%u) gives a block %d at most: "
            "compile the model with --target cuda:sm_%u",
            name, launch.dynamic_shared_bytes, on->sm, most_shared, on->sm);
      }
      result = cuda.function_set_attribute(on->functions[l], MCC_CU_FUNCTION_MAX_DYNAMIC_SHARED,
                                           static_cast<int>(launch.dynamic_shared_bytes));
      if (result != MCC_CU_SUCCESS) return fail_cuda(cuda, result, name, error);
    }
  }
  return MCC_OK;
}

// From CUDA 12.3 on graphs have such launches as well.
bool has_early_launch(const mcc_cuda_driver& cuda) {
  constexpr int kFirstVersion = 12030;
  int version = 0;
  return cuda.launch_with != nullptr && cuda.driver_version(&version) == MCC_CU_SUCCESS && version >= kFirstVersion;
}

mcc_status upload_weights(DeviceModel* on, const mcc_model& model, mcc_error* error) {
  const mcc_cuda_driver& cuda = *on->cuda;
  const uint64_t size = model.plan.header->weights_size;
  if (size == 0) return MCC_OK;
  mcc_cu_result code = cuda.allocate(&on->weights, size);
  if (code == MCC_CU_OUT_OF_MEMORY) {
    on->weights = 0;
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory on the GPU: %llu bytes for the weights",
                static_cast<ull>(size));
  }
  if (code != MCC_CU_SUCCESS) return fail_cuda(cuda, code, "the GPU gives no memory for the weights", error);
  mcc_cu_stream stream = nullptr;
  code = cuda.stream_create(&stream, MCC_CU_STREAM_NON_BLOCKING);
  if (code == MCC_CU_SUCCESS) {
    code = cuda.copy_to_device(on->weights, model.weights, size, stream);
    const mcc_cu_result after = cuda.stream_synchronize(stream);
    if (code == MCC_CU_SUCCESS) code = after;
    cuda.stream_destroy(stream);
  }
  return code == MCC_CU_SUCCESS ? MCC_OK
                                : fail_cuda(cuda, code, "the weights cannot be copied to the GPU", error);
}

void destroy(DeviceModel* on) {
  const mcc_cuda_driver& cuda = *on->cuda;
  // What is in a context that cannot be used any more has gone with it.
  if (const CurrentContext current(cuda, on->context); current.is_there()) {
    if (on->lt_handle != nullptr) on->lt->destroy(on->lt_handle);
    for (mcc_cu_module module : on->modules)
      if (module != nullptr) cuda.module_unload(module);
    if (on->weights != 0) cuda.release(on->weights);
  }
  if (on->is_retained) cuda.primary_release(on->device);
  on->~DeviceModel();
  std::free(on);
}

}  // namespace

DeviceModel* find_device_model(mcc_model* model, const mcc_session_options& options, mcc_error* error) {
  const mcc_cuda_driver* cuda = load_cuda(error);
  if (cuda == nullptr) return nullptr;
  void* memory = std::calloc(1, sizeof(DeviceModel));
  if (memory == nullptr) {
    fail(error, MCC_OUT_OF_MEMORY, "out of memory");
    return nullptr;
  }
  auto* on = new (memory) DeviceModel;
  on->cuda = cuda;
  on->has_early_launch = has_early_launch(*cuda);
  mcc_status status = choose_context(on, options, error);
  pthread_mutex_lock(&model->device_mutex);
  for (DeviceModel* known = model->device_models; known != nullptr && status == MCC_OK; known = known->next) {
    if (known->context != on->context) continue;
    pthread_mutex_unlock(&model->device_mutex);
    destroy(on);
    return known;
  }
  if (status == MCC_OK) {
    const CurrentContext current(*cuda, on->context);
    status = current.is_there() ? load_functions(on, model->device_code, error) : current.fail(error);
    if (status == MCC_OK) status = upload_weights(on, *model, error);
  }
  if (status == MCC_OK) {
    on->next = model->device_models;
    model->device_models = on;
  }
  pthread_mutex_unlock(&model->device_mutex);
  if (status == MCC_OK) return on;
  destroy(on);
  return nullptr;
}

void destroy_device_models(mcc_model* model) {
  while (model->device_models != nullptr) {
    DeviceModel* on = model->device_models;
    model->device_models = on->next;
    destroy(on);
  }
}

}  // namespace mcc::runtime
