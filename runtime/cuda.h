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

// Retains the GPU's primary context. Fails with what to do where another process has the GPU for itself.
mcc_status retain_primary(const mcc_cuda_driver& cuda, mcc_cu_device device, mcc_cu_context* context,
                          mcc_error* error);

// What the copy engine needs to know of the matrix at this address. Fails where the driver cannot make it.
mcc_status encode_map(const mcc_cuda_driver& cuda, const mcc_device_map& map, mcc_cu_pointer address,
                      mcc_cu_tensor_map* out, mcc_error* error);

// Whether nothing can be done any more in the context in which a call has returned this: an error of a kernel or of the machine, which
// every later call returns as well, whatever it is about.
bool is_context_lost(mcc_cu_result code);

// A context for as long as this lives, on a thread that may meanwhile do what captures of streams forbid: what is done here has
// nothing to do with those of other threads, and is not to break them.
class CurrentContext {
 public:
  CurrentContext(const mcc_cuda_driver& cuda, mcc_cu_context context) : cuda_(cuda) {
    if (context != nullptr) code_ = cuda.context_push(context);
    is_mode_set_ = is_there() && cuda.exchange_capture_mode(&capture_mode_) == MCC_CU_SUCCESS;
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    mcc_cu_context old = nullptr;
    if (is_mode_set_) cuda_.exchange_capture_mode(&capture_mode_);
    if (is_there()) cuda_.context_pop(&old);
  }

  // Else another context may be current, or the driver may have ended before the program: nothing is to be asked of it.
  bool is_there() const { return code_ == MCC_CU_SUCCESS; }
  // Fails with the reason for which it is not.
  mcc_status fail(mcc_error* error) const {
    return fail_cuda(cuda_, code_, "the GPU's context cannot be used", error);
  }

 private:
  const mcc_cuda_driver& cuda_;
  mcc_cu_result code_ = MCC_CU_INVALID_CONTEXT;
  int capture_mode_ = MCC_CU_CAPTURE_RELAXED;  // then: the thread's before
  bool is_mode_set_ = false;
};

}  // namespace mcc::runtime
