// A model on one GPU: its functions and weights there, shared by the sessions of a context.
#pragma once

#include "runtime/cublaslt.h"
#include "runtime/cuda.h"
#include "runtime/device_code.h"

namespace mcc::runtime {

struct DeviceModel {
  const mcc_cuda_driver* cuda = nullptr;
  mcc_cu_context context = nullptr;
  mcc_cu_device device = 0;
  bool is_retained = false;  // the primary context, which is given back
  uint32_t sm = 0;           // compute capability: 10 * major + minor
  bool has_early_launch = false;  // the driver lets kernels begin before those ahead of them have ended, in graphs, too
  mcc_cu_pointer weights = 0;
  Array<mcc_cu_module> modules;      // one a kernel
  Array<mcc_plan_range> launches;    // of each kernel, those of the image that was taken
  Array<mcc_cu_function> functions;  // one a launch; null: of images for other GPUs, and of calls
  const mcc_cublaslt* lt = nullptr;  // where a launch is a call
  mcc_lt_handle lt_handle = nullptr;
  DeviceModel* next = nullptr;       // of the same mcc_model, in another context
};

// The model in the context that a session asks for (mcc_session_options::cuda_stream, cuda_device); loads it when it is the first
// there. Null with an error.
DeviceModel* find_device_model(mcc_model* model, const mcc_session_options& options, mcc_error* error);

// All of the model's.
void destroy_device_models(mcc_model* model);

}  // namespace mcc::runtime
