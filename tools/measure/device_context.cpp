#include "tools/measure/device_context.h"

#include <algorithm>
#include <limits>

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;

// After so long without work a GPU may have lowered its clocks, and for so long it may raise them without a step that shows.
constexpr double kCoolingSeconds = 0.1;
constexpr double kMostWarmingSeconds = 0.5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<DeviceContext>> DeviceContext::open() {
  mcc_error error;
  const mcc_cuda_driver* cuda = runtime::load_cuda(&error);
  if (cuda == nullptr) return Diagnostic{ErrorKind::environment, "", error.message, ""};
  auto out = std::unique_ptr<DeviceContext>(new DeviceContext);
  out->cuda_ = cuda;
  auto failed = [&](mcc_cu_result code, const char* what) {
    return Diagnostic{ErrorKind::environment, "", out->problem(code, what), ""};
  };
  if (mcc_cu_result code = cuda->device_get(&out->device_, 0)) return failed(code, "there is no GPU");
  if (runtime::retain_primary(*cuda, out->device_, &out->context_, &error) != MCC_OK)
    return Diagnostic{ErrorKind::environment, "", error.message, ""};
  if (mcc_cu_result code = cuda->context_push(out->context_)) return failed(code, "the GPU gives no context");
  if (mcc_cu_result code = cuda->stream_create(&out->stream_, MCC_CU_STREAM_NON_BLOCKING))
    return failed(code, "the GPU gives no stream");
  for (mcc_cu_event& event : out->events_) {
    if (mcc_cu_result code = cuda->event_create(&event, 0)) return failed(code, "the GPU gives no event");
  }
  int l2 = 0;
  cuda->device_attribute(&l2, MCC_CU_ATTRIBUTE_L2_BYTES, out->device_);
  out->flush_bytes_ = 2 * static_cast<size_t>(std::max(l2, 1 << 20));
  return out;
}

DeviceContext::~DeviceContext() {
  if (context_ == nullptr || is_lost_) return;
  if (library_handle_ != nullptr) library_->destroy(library_handle_);
  release(flush_);
  for (const Workspace& workspace : workspaces_)
    release(workspace.memory);
  for (mcc_cu_event event : events_)
    if (event != nullptr) cuda_->event_destroy(event);
  if (stream_ != nullptr) cuda_->stream_destroy(stream_);
  mcc_cu_context old = nullptr;
  cuda_->context_pop(&old);
  cuda_->primary_release(device_);
}

std::string DeviceContext::problem(mcc_cu_result code, const std::string& what) const {
  mcc_error error;
  runtime::fail_cuda(*cuda_, code, what.c_str(), &error);
  return error.message;
}

mcc_cu_result DeviceContext::synchronize() {
  const mcc_cu_result code = cuda_->stream_synchronize(stream_);
  if (code != MCC_CU_SUCCESS) is_lost_ = true;
  last_busy_ = Clock::now();
  return code;
}

bool DeviceContext::has_cooled() const { return seconds_since(last_busy_) > kCoolingSeconds; }

void DeviceContext::warm_up() {
  constexpr int kFills = 8;
  const Clock::time_point start = Clock::now();
  Clock::time_point gained = start;
  float best = std::numeric_limits<float>::infinity();
  while (!is_lost_ && seconds_since(gained) < kCoolingSeconds && seconds_since(start) < kMostWarmingSeconds) {
    cuda_->event_record(event(0, false), stream_);
    for (int fill = 0; fill < kFills; ++fill)
      if (flush_cache() != MCC_CU_SUCCESS) return;
    cuda_->event_record(event(0, true), stream_);
    float ms = 0;
    if (synchronize() != MCC_CU_SUCCESS || flush_ == 0 ||
        cuda_->event_milliseconds(&ms, event(0, false), event(0, true)) != MCC_CU_SUCCESS)
      return;
    if (ms < best * 0.98F) {
      best = ms;
      gained = Clock::now();
    }
  }
}

mcc_cu_result DeviceContext::reserve_workspaces(const std::vector<size_t>& sizes) {
  bool is_enough = workspaces_.size() >= sizes.size();
  for (size_t i = 0; i < sizes.size() && is_enough; ++i)
    is_enough = workspaces_[i].memory != 0 && workspaces_[i].bytes >= sizes[i];
  if (is_enough) return MCC_CU_SUCCESS;
  ++workspace_version_;
  if (workspaces_.size() < sizes.size()) workspaces_.resize(sizes.size());
  // What is too small goes first, and so does what this candidate does not need.
  for (size_t i = 0; i < workspaces_.size(); ++i) {
    if (i < sizes.size() && workspaces_[i].bytes >= sizes[i]) continue;
    release(workspaces_[i].memory);
    workspaces_[i] = {};
  }
  mcc_cu_result code = MCC_CU_SUCCESS;
  for (size_t i = 0; i < sizes.size() && code == MCC_CU_SUCCESS; ++i) {
    if (workspaces_[i].memory != 0) continue;
    workspaces_[i].memory = allocate_once(sizes[i], &code);
    workspaces_[i].bytes = code == MCC_CU_SUCCESS ? sizes[i] : 0;
  }
  return code;
}

mcc_cu_pointer DeviceContext::allocate(size_t bytes, mcc_cu_result* code) {
  const mcc_cu_pointer memory = allocate_once(bytes, code);
  if (memory != 0 || workspaces_.empty()) return memory;
  for (const Workspace& workspace : workspaces_)
    release(workspace.memory);
  workspaces_.clear();
  ++workspace_version_;
  return allocate_once(bytes, code);
}

mcc_cu_pointer DeviceContext::allocate_once(size_t bytes, mcc_cu_result* code) {
  mcc_cu_pointer memory = 0;
  *code = cuda_->allocate(&memory, std::max<size_t>(bytes, 1));
  return *code == MCC_CU_SUCCESS ? memory : 0;
}

const mcc_cublaslt* DeviceContext::library(mcc_error* error) {
  if (library_handle_ != nullptr) return library_;
  library_ = runtime::load_cublaslt(error);
  const bool is_here =
      library_ != nullptr && runtime::open_cublaslt(*library_, &library_handle_, error) == MCC_OK;
  return is_here ? library_ : nullptr;
}

void DeviceContext::release(mcc_cu_pointer memory) {
  if (memory != 0 && !is_lost_) cuda_->release(memory);
}

mcc_cu_result DeviceContext::flush_cache() {
  mcc_cu_result code = MCC_CU_SUCCESS;
  if (flush_ == 0) flush_ = allocate(flush_bytes_, &code);
  // Without memory for it kernels are measured warm; they could hardly be run at all.
  return flush_ == 0 ? MCC_CU_SUCCESS : cuda_->fill(flush_, 0, flush_bytes_, stream_);
}

// ---- The task ----

std::unique_ptr<DeviceTask> DeviceTask::create(DeviceContext& device, MeasuredTask& task,
                                               mcc_cu_result* code) {
  auto out = std::unique_ptr<DeviceTask>(new DeviceTask(device, task));
  for (size_t i = 0; i < task.func().params.size(); ++i) {
    const mcc_cu_pointer memory = device.allocate(task.parameter(i).size(), code);
    if (memory == 0) return nullptr;
    out->parameters_.push_back(memory);
  }
  return out;
}

DeviceTask::~DeviceTask() {
  for (mcc_cu_pointer memory : parameters_)
    device_.release(memory);
}

mcc_cu_result DeviceTask::upload() {
  if (is_uploaded_) return MCC_CU_SUCCESS;
  for (size_t i = 0; i < static_cast<size_t>(task_.func().num_inputs()); ++i) {
    const std::span<std::byte> from = task_.parameter(i);
    if (from.empty()) continue;
    if (mcc_cu_result code =
            device_.cuda().copy_to_device(parameters_[i], from.data(), from.size(), device_.stream()))
      return code;
  }
  const mcc_cu_result code = device_.synchronize();
  is_uploaded_ = code == MCC_CU_SUCCESS;
  return code;
}

mcc_cu_result DeviceTask::poison_outputs() {
  for (size_t i = static_cast<size_t>(task_.func().num_inputs()); i < parameters_.size(); ++i) {
    const size_t bytes = task_.parameter(i).size();
    if (bytes == 0) continue;
    if (mcc_cu_result code = device_.cuda().fill(parameters_[i], 0xff, bytes, device_.stream())) return code;
  }
  return MCC_CU_SUCCESS;
}

mcc_cu_result DeviceTask::fetch_outputs() {
  for (size_t i = static_cast<size_t>(task_.func().num_inputs()); i < parameters_.size(); ++i) {
    const std::span<std::byte> to = task_.parameter(i);
    if (to.empty()) continue;
    if (mcc_cu_result code =
            device_.cuda().copy_to_host(to.data(), parameters_[i], to.size(), device_.stream()))
      return code;
  }
  return device_.synchronize();
}

}  // namespace mcc::tools
