// The CUDA driver, loaded when the first model for GPUs is run.
#pragma once

#include "mcc/cuda_driver.h"
#include "mcc/device_format.h"
#include "runtime/base.h"

namespace mcc::runtime {

// The driver's functions; null when there is no driver, or one that lacks some of them. Initialises it. Stays loaded.
const mcc_cuda_driver* load_cuda(mcc_error* error);

// Fails with what the driver says: "what: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)".
mcc_status fail_cuda(const mcc_cuda_driver& cuda, mcc_cu_result code, const char* what, mcc_error* error);

// What the copy engine needs to know of the matrix at this address. Fails where the driver cannot make it.
mcc_status encode_map(const mcc_cuda_driver& cuda, const mcc_device_map& map, mcc_cu_pointer address,
                      mcc_cu_tensor_map* out, mcc_error* error);

// A context for as long as this lives.
class CurrentContext {
 public:
  CurrentContext(const mcc_cuda_driver& cuda, mcc_cu_context context) : cuda_(cuda) {
    is_pushed_ = context != nullptr && cuda.context_push(context) == MCC_CU_SUCCESS;
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    mcc_cu_context old = nullptr;
    if (is_pushed_) cuda_.context_pop(&old);
  }

 private:
  const mcc_cuda_driver& cuda_;
  bool is_pushed_ = false;
};

}  // namespace mcc::runtime
