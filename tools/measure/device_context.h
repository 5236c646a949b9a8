// The GPU of a measuring process, and what tasks and candidates have there.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cublaslt.h"
#include "runtime/cuda.h"
#include "support/result.h"
#include "tools/measure/measured_task.h"

namespace mcc::tools {

// The first GPU: its primary context, a stream, events. For one thread, on which the context is current while this lives.
class DeviceContext {
 public:
  // Errors (kind environment): no driver, no GPU.
  static Result<std::unique_ptr<DeviceContext>> open();
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  const mcc_cuda_driver& cuda() const { return *cuda_; }
  mcc_cu_stream stream() const { return stream_; }
  // "what: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)"
  std::string problem(mcc_cu_result code, const std::string& what) const;
  // Waits for everything. After an error the context is good for nothing any more.
  mcc_cu_result synchronize();
  bool is_lost() const { return is_lost_; }
  void lose() { is_lost_ = true; }

  // A GPU that has had nothing to do lowers its clocks, and takes a while to raise them again: what is timed then is slow, whatever it
  // is. Whether it has; and work until it is no longer so, of half a second at most.
  bool has_cooled() const;
  void warm_up();

  // Memory that candidates have for their workspaces, one after the other: workspace i has at least sizes[i] bytes, until somebody
  // asks for more. workspace_version() changes when addresses do.
  mcc_cu_result reserve_workspaces(const std::vector<size_t>& sizes);
  mcc_cu_pointer workspace(size_t i) const { return workspaces_[i].memory; }
  int64_t workspace_version() const { return workspace_version_; }

  // Memory of the device: 0 where there is not enough, also without the workspaces.
  mcc_cu_pointer allocate(size_t bytes, mcc_cu_result* code);
  void release(mcc_cu_pointer memory);

  // cuBLASLt in this context; null where it is not to be had.
  const mcc_cublaslt* library(mcc_error* error);
  mcc_lt_handle library_handle() const { return library_handle_; }

  // Writes more than the second-level cache holds.
  mcc_cu_result flush_cache();
  // Pairs of events: begin, end.
  static constexpr size_t kPairs = 32;
  mcc_cu_event event(size_t pair, bool is_end) const { return events_[2 * pair + (is_end ? 1 : 0)]; }

 private:
  DeviceContext() = default;
  mcc_cu_pointer allocate_once(size_t bytes, mcc_cu_result* code);

  const mcc_cuda_driver* cuda_ = nullptr;
  mcc_cu_device device_ = 0;
  mcc_cu_context context_ = nullptr;
  mcc_cu_stream stream_ = nullptr;
  mcc_cu_event events_[2 * kPairs] = {};
  const mcc_cublaslt* library_ = nullptr;
  mcc_lt_handle library_handle_ = nullptr;
  struct Workspace {
    mcc_cu_pointer memory = 0;
    size_t bytes = 0;
  };
  std::vector<Workspace> workspaces_;
  int64_t workspace_version_ = 0;
  std::chrono::steady_clock::time_point last_busy_;  // a synchronisation
  mcc_cu_pointer flush_ = 0;
  size_t flush_bytes_ = 0;
  bool is_lost_ = false;
};

// A task's parameters on the device. The task outlives it.
class DeviceTask {
 public:
  // Nothing, and the driver's code, when the device has not enough memory.
  static std::unique_ptr<DeviceTask> create(DeviceContext& device, MeasuredTask& task, mcc_cu_result* code);
  ~DeviceTask();

  // Once the reference is known, which settles what the inputs are.
  mcc_cu_result upload();
  mcc_cu_result poison_outputs();
  mcc_cu_result fetch_outputs();
  mcc_cu_pointer parameter(size_t i) const { return parameters_[i]; }
  const MeasuredTask& measured() const { return task_; }

 private:
  DeviceTask(DeviceContext& device, MeasuredTask& task) : device_(device), task_(task) {}

  DeviceContext& device_;
  MeasuredTask& task_;
  std::vector<mcc_cu_pointer> parameters_;
  bool is_uploaded_ = false;
};

}  // namespace mcc::tools
