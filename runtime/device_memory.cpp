#include "runtime/device_session.h"

namespace mcc::runtime {

mcc_status allocate_on_device(const mcc_cuda_driver& cuda, uint64_t bytes, const char* what,
                              mcc_cu_pointer* memory, mcc_error* error) {
  if (bytes == 0) return MCC_OK;
  const mcc_cu_result code = cuda.allocate(memory, bytes);
  if (code == MCC_CU_SUCCESS) return MCC_OK;
  *memory = 0;
  if (code == MCC_CU_OUT_OF_MEMORY) {
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory on the GPU: %llu bytes for %s",
                static_cast<unsigned long long>(bytes), what);
  }
  return fail_cuda(cuda, code, "the GPU gives no memory", error);
}

mcc_status find_memory(const mcc_cuda_driver& cuda, const void* memory, bool* is_on_device,
                       mcc_error* error) {
  *is_on_device = false;
  if (memory == nullptr) return MCC_OK;
  unsigned type = 0;
  const auto address = static_cast<mcc_cu_pointer>(reinterpret_cast<uintptr_t>(memory));
  const mcc_cu_result code = cuda.pointer_attribute(&type, MCC_CU_POINTER_MEMORY_TYPE, address);
  *is_on_device = code == MCC_CU_SUCCESS && type == MCC_CU_MEMORY_DEVICE;
  // Memory that the driver does not know is the host's. With any other error it has not said so.
  if (code == MCC_CU_SUCCESS || code == MCC_CU_INVALID_VALUE) return MCC_OK;
  return fail_cuda(cuda, code, "the driver does not tell where an input or output is", error);
}

mcc_cu_device device_of(const mcc_cuda_driver& cuda, const void* memory, mcc_cu_device device) {
  const auto address = static_cast<mcc_cu_pointer>(reinterpret_cast<uintptr_t>(memory));
  mcc_cu_device owner = device;
  unsigned is_managed = 0;
  const bool is_known =
      cuda.pointer_attribute(&owner, MCC_CU_POINTER_DEVICE_ORDINAL, address) == MCC_CU_SUCCESS &&
      cuda.pointer_attribute(&is_managed, MCC_CU_POINTER_IS_MANAGED, address) == MCC_CU_SUCCESS;
  return is_known && is_managed == 0 ? owner : device;
}

}  // namespace mcc::runtime

using namespace mcc::runtime;

namespace {

mcc_status no_device(mcc_error* error) {
  return fail(error, MCC_INVALID_ARGUMENT, "the session's model is not for GPUs");
}

}  // namespace

extern "C" {

mcc_status mcc_session_device_alloc(mcc_session* session, size_t bytes, void** memory, mcc_error* error) {
  if (session == nullptr || memory == nullptr)
    return fail(error, MCC_INVALID_ARGUMENT, "mcc_session_device_alloc: null argument");
  if (session->device == nullptr) return no_device(error);
  const DeviceModel& on = *session->device->on;
  const CurrentContext current(*on.cuda, on.context);
  if (!current.is_there()) return current.fail(error);
  mcc_cu_pointer address = 0;
  const mcc_status status = allocate_on_device(*on.cuda, bytes == 0 ? 1 : bytes, "a tensor", &address, error);
  if (status != MCC_OK) return status;
  *memory = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return succeed(error);
}

void mcc_session_device_free(mcc_session* session, void* memory) {
  if (session == nullptr || session->device == nullptr || memory == nullptr) return;
  const DeviceModel& on = *session->device->on;
  const CurrentContext current(*on.cuda, on.context);
  if (current.is_there()) on.cuda->release(reinterpret_cast<uintptr_t>(memory));
}

mcc_status mcc_session_device_copy(mcc_session* session, void* to, const void* from, size_t bytes,
                                   mcc_error* error) {
  if (session == nullptr || ((to == nullptr || from == nullptr) && bytes != 0))
    return fail(error, MCC_INVALID_ARGUMENT, "mcc_session_device_copy: null argument");
  if (session->device == nullptr) return no_device(error);
  const DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const CurrentContext current(cuda, device.on->context);
  if (!current.is_there()) return current.fail(error);
  if (bytes == 0) return succeed(error);
  bool is_to = false, is_from = false;
  mcc_status found = find_memory(cuda, to, &is_to, error);
  if (found == MCC_OK) found = find_memory(cuda, from, &is_from, error);
  if (found != MCC_OK) return found;
  const mcc_cu_pointer to_address = reinterpret_cast<uintptr_t>(to),
                       from_address = reinterpret_cast<uintptr_t>(from);
  mcc_cu_result code = MCC_CU_SUCCESS;
  if (is_to && is_from) {
    code = cuda.copy_on_device(to_address, from_address, bytes, device.stream);
  } else if (is_to) {
    code = cuda.copy_to_device(to_address, from, bytes, device.stream);
  } else if (is_from) {
    code = cuda.copy_to_host(to, from_address, bytes, device.stream);
  } else {
    std::memmove(to, from, bytes);
  }
  if (code == MCC_CU_SUCCESS) code = cuda.stream_synchronize(device.stream);
  return code == MCC_CU_SUCCESS ? succeed(error) : fail_cuda(cuda, code, "the copy failed", error);
}

}  // extern "C"
