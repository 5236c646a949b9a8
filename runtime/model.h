// A loaded model.
#pragma once

#include <pthread.h>

#include <atomic>

#include "runtime/device_code.h"
#include "runtime/plan.h"

namespace mcc::runtime {

struct DeviceModel;

// An input or output as the API shows it: -1 and a name where a dimension is not fixed.
struct InterfaceInfo {
  int64_t dims[MCC_MAX_RANK];
  const char* dim_names[MCC_MAX_RANK];
};

}  // namespace mcc::runtime

// Immutable once opened, but for the count of its owners (the caller, and every session) and the GPUs that it is on.
struct mcc_model {
  std::atomic<int32_t> owners{1};
  void* library = nullptr;  // of dlopen
  const mcc_model_v1* image = nullptr;
  mcc::runtime::Plan plan;
  const uint8_t* weights = nullptr;
  void* mapping = nullptr;  // of a side file with weights
  uint64_t mapping_size = 0;
  mcc::runtime::Array<mcc::runtime::InterfaceInfo> inputs;
  mcc::runtime::Array<mcc::runtime::InterfaceInfo> outputs;

  // Of a model for GPUs: its code, and where it has been loaded.
  mcc::runtime::DeviceCode device_code;
  pthread_mutex_t device_mutex = PTHREAD_MUTEX_INITIALIZER;
  mcc::runtime::DeviceModel* device_models = nullptr;
};
