// A run of a session on a GPU: copies, and launches one by one or as a CUDA graph.
#include "runtime/device_session.h"

namespace mcc::runtime {

namespace {

// The run after which the launches are put into a graph: addresses that change all the time are not worth one.
constexpr uint32_t kRunsBeforeGraph = 1;
// Captures of a run that may go wrong before its launches stay single.
constexpr uint32_t kMostGraphFailures = 3;
// Of a graph. Launches that steps of a recurrence repeat more often are single ones.
constexpr int64_t kMostGraphLaunches = 1 << 14;

// A copy on the session's GPU, or from or to another one.
mcc_cu_result copy(const DeviceSession& device, mcc_cu_pointer to, mcc_cu_context to_other,
                   mcc_cu_pointer from, mcc_cu_context from_other, uint64_t bytes) {
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const mcc_cu_context own = device.on->context;
  if (to_other == nullptr && from_other == nullptr)
    return cuda.copy_on_device(to, from, bytes, device.stream);
  return cuda.copy_between_devices(to, to_other != nullptr ? to_other : own, from,
                                   from_other != nullptr ? from_other : own, bytes, device.stream);
}

mcc_status resolve_addresses(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  if (!device.is_stale) return MCC_OK;
  for (const DeviceStep& step : leading_steps(*session)) {
    const mcc_status status = resolve_step(session, step, error);
    if (status != MCC_OK) return status;
  }
  device.is_stale = false;
  return MCC_OK;
}

mcc_status launch_all(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_status resolved = resolve_addresses(session, error);
  if (resolved != MCC_OK) return resolved;
  for (const DeviceStep& step : leading_steps(*session)) {
    const mcc_status status = carry_out(*session, step, device.stream, error);
    if (status != MCC_OK) return status;
  }
  return MCC_OK;
}

// The launches as a graph, which costs the host one call. Where the driver makes none, they go on one by one. They are recorded
// on a stream that nobody else's work waits for.
void make_graph(mcc_session* session, DeviceGraph* to) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  mcc_cu_stream stream = nullptr;
  mcc_cu_graph graph = nullptr;
  mcc_cu_result code = cuda.stream_create(&stream, MCC_CU_STREAM_NON_BLOCKING);
  if (code == MCC_CU_SUCCESS) {
    // Relaxed: what this or another thread does meanwhile (a library that allocates, say) is no part of it and does it no harm.
    code = cuda.capture_begin(stream, MCC_CU_CAPTURE_RELAXED);
    if (code == MCC_CU_SUCCESS) {
      mcc_status status = MCC_OK;
      for (const DeviceStep& step : leading_steps(*session))
        if (status == MCC_OK) status = carry_out(*session, step, stream, nullptr);
      code = cuda.capture_end(stream, &graph);
      if (code == MCC_CU_SUCCESS && status != MCC_OK) code = MCC_CU_INVALID_VALUE;
    }
    if (code == MCC_CU_SUCCESS) code = cuda.graph_instantiate(&to->exec, graph, 0);
    if (graph != nullptr) cuda.graph_destroy(graph);
    cuda.stream_destroy(stream);
  }
  if (code == MCC_CU_SUCCESS) return;
  to->exec = nullptr;
  // A capture that somebody else has broken may go well at another time; what the driver cannot do it cannot do again.
  const bool is_broken = code >= MCC_CU_CAPTURE_UNSUPPORTED && code <= MCC_CU_CAPTURED_EVENT;
  device.graph_failures = is_broken ? device.graph_failures + 1 : kMostGraphFailures;
}

// The graph of the present addresses and sizes. Those of the sets that were used last are kept: callers take turns between few buffers
// and shapes.
DeviceGraph* find_graph(mcc_session* session) {
  DeviceSession* device = session->device;
  const uint64_t symbols = session->plan->symbols_count;
  const uint64_t inputs = device->inputs.size(), tensors = inputs + device->outputs.size();
  auto address = [&](uint64_t t) {
    return t < inputs ? device->inputs[t].address : device->outputs[t - inputs].address;
  };
  DeviceGraph* oldest = nullptr;
  for (uint64_t g = 0; g < device->graphs.size(); ++g) {
    DeviceGraph& graph = device->graphs[g];
    const mcc_cu_pointer* known = device->graph_addresses.data() + g * tensors;
    bool is_it = graph.used != 0;
    for (uint64_t t = 0; t < tensors && is_it; ++t)
      is_it = known[t] == address(t);
    for (uint64_t s = 0; s < symbols && is_it; ++s)
      is_it = device->graph_sizes[g * symbols + s] == session->slots[s];
    if (is_it) return &graph;
    if (oldest == nullptr || graph.used < oldest->used) oldest = &graph;
  }
  if (oldest->exec != nullptr) device->on->cuda->graph_exec_destroy(oldest->exec);
  *oldest = {};
  const auto g = static_cast<uint64_t>(oldest - device->graphs.data());
  for (uint64_t t = 0; t < tensors; ++t)
    device->graph_addresses[g * tensors + t] = address(t);
  for (uint64_t s = 0; s < symbols; ++s)
    device->graph_sizes[g * symbols + s] = session->slots[s];
  return oldest;
}

// Launches and copies, with all iterations of loops; too many to count are the most.
int64_t count_launches(const DeviceSteps& steps) {
  int64_t count = 0;
  for (const DeviceStep& step : steps) {
    int64_t more = step.is_in_loop ? 0 : 1;
    if (step.loop_steps != 0 && __builtin_mul_overflow(int64_t{step.loop_steps}, step.turns, &more))
      more = kMostGraphLaunches;
    if (__builtin_add_overflow(count, more, &count)) return INT64_MAX;
  }
  return count;
}

mcc_status run_steps(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const DeviceSteps steps = leading_steps(*session);
  if (steps.begin() == steps.end()) return MCC_OK;
  if (device.graph == nullptr) device.graph = find_graph(session);
  DeviceGraph& graph = *device.graph;
  graph.used = ++device.uses;
  if (graph.exec == nullptr) {
    const mcc_status status = resolve_addresses(session, error);
    if (status != MCC_OK) return status;
    const int64_t launches = count_launches(steps);
    if (graph.runs >= kRunsBeforeGraph && device.graph_failures < kMostGraphFailures && launches > 1 &&
        launches <= kMostGraphLaunches)
      make_graph(session, &graph);
    graph.runs = kRunsBeforeGraph;
  }
  if (graph.exec == nullptr) return launch_all(session, error);
  const mcc_cu_result code = device.on->cuda->graph_launch(graph.exec, device.stream);
  return code == MCC_CU_SUCCESS ? MCC_OK
                                : fail_here(device, code, "the model's launches cannot be started", error);
}

// Node by node, with an event behind each.
mcc_status run_profiled(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const uint64_t nodes = session->plan->nodes_count;
  const mcc_status resolved = resolve_addresses(session, error);
  if (resolved != MCC_OK) return resolved;
  if (device.events.size() == 0 && !device.events.allocate(nodes + 1))
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
  auto record = [&](uint64_t i) {
    if (device.events[i] == nullptr) {
      const mcc_cu_result code = cuda.event_create(&device.events[i], 0);
      if (code != MCC_CU_SUCCESS) return code;
    }
    return cuda.event_record(device.events[i], device.stream);
  };
  mcc_cu_result code = record(0);
  uint64_t step = 0;
  for (uint64_t n = 0; n < nodes && code == MCC_CU_SUCCESS; ++n) {
    for (; step < device.steps.size() && device.steps[step].node == n; ++step) {
      const mcc_status launched = carry_out(*session, device.steps[step], device.stream, error);
      if (launched != MCC_OK) return launched;
    }
    code = record(n + 1);
  }
  if (code == MCC_CU_SUCCESS) code = cuda.stream_synchronize(device.stream);
  for (uint64_t n = 0; n < nodes && code == MCC_CU_SUCCESS; ++n) {
    float ms = 0;
    code = cuda.event_milliseconds(&ms, device.events[n], device.events[n + 1]);
    const auto elapsed = static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
    NodeTimes& times = session->times[n];
    if (times.executions == 0 || elapsed < times.min_ns) times.min_ns = elapsed;
    times.total_ns += elapsed;
    ++times.executions;
  }
  return code == MCC_CU_SUCCESS ? MCC_OK
                                : fail_cuda(cuda, code, "the model's kernels failed on the GPU", error);
}

mcc_cu_result copy_in(mcc_session* session, uint64_t i) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const DeviceTensor& tensor = device.inputs[i];
  const uint8_t* data = session->inputs[i].data;
  if (tensor.bytes == 0) return MCC_CU_SUCCESS;
  if (tensor.is_on_device) {
    const mcc_cu_pointer from = reinterpret_cast<uintptr_t>(data);
    return tensor.address == from ? MCC_CU_SUCCESS
                                  : copy(device, tensor.address, nullptr, from, tensor.other, tensor.bytes);
  }
  if (tensor.pinned != nullptr) {
    std::memcpy(tensor.pinned, data, tensor.bytes);
    data = static_cast<const uint8_t*>(tensor.pinned);
  }
  return cuda.copy_to_device(tensor.address, data, tensor.bytes, device.stream);
}

mcc_cu_result copy_out(mcc_session* session, uint64_t i) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const DeviceTensor& tensor = device.outputs[i];
  const OutputSlot& slot = session->outputs[i];
  const mcc_cu_pointer from = address_of(*session, session->plan->output(i));
  if (tensor.bytes == 0) return MCC_CU_SUCCESS;
  if (tensor.is_on_device) {
    const mcc_cu_pointer to = reinterpret_cast<uintptr_t>(slot.data);
    return to == from ? MCC_CU_SUCCESS : copy(device, to, tensor.other, from, nullptr, tensor.bytes);
  }
  return cuda.copy_to_host(tensor.pinned != nullptr ? tensor.pinned : slot.data, from, tensor.bytes,
                           device.stream);
}

// Those whose shapes are known now.
mcc_status place_late_outputs(mcc_session* session, mcc_error* error) {
  mcc_status status = MCC_OK;
  for (uint64_t i = 0; i < session->outputs.size() && status == MCC_OK; ++i) {
    if (!is_late(*session, i)) continue;
    status = measure_output(session, i, error);
    if (status == MCC_OK && session->outputs[i].is_callers) status = check_capacity(session, i, error);
    if (status == MCC_OK) status = set_device_output(session, i, error);
    if (status == MCC_OK && !is_within_storage(*session, session->plan->output(i)))
      status = fail(error, MCC_RUN_FAILED, "output \"%.200s\" does not fit into its memory",
                    session->plan->text(session->plan->output(i).name));
  }
  return status;
}

// Whether the caller makes a graph of what goes to its stream: of a run, the single launches, since no graph can be launched there.
bool is_being_captured(const DeviceSession& device) {
  int status = 0;
  return device.is_callers_stream &&
         device.on->cuda->stream_is_capturing(device.stream, &status) == MCC_CU_SUCCESS && status != 0;
}

bool is_all_on_device(const mcc_session& session) {
  for (const DeviceTensor& tensor : session.device->inputs)
    if (!tensor.is_on_device) return false;
  for (const DeviceTensor& tensor : session.device->outputs)
    if (!tensor.is_on_device) return false;
  return true;
}

}  // namespace

mcc_status run_device(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const CurrentContext current(cuda, device.on->context);
  if (!current.is_there()) return current.fail(error);
  const bool is_captured = is_being_captured(device);
  if (session->needs_preparation) {
    device.is_being_captured = is_captured;
    const mcc_status prepared = prepare_device(session, error);
    device.is_being_captured = false;
    if (prepared != MCC_OK) return prepared;
    session->needs_preparation = false;
  }
  if (is_captured && device.is_walked) {
    return fail(
        error, MCC_INVALID_ARGUMENT,
        "the stream is being captured: data decides sizes or the course of this model's runs, or they draw "
        "random numbers, so that the host has a part in each of them");
  }
  if (is_captured && (session->is_profiling || !is_all_on_device(*session))) {
    return fail(error, MCC_INVALID_ARGUMENT, "the stream is being captured: %s",
                session->is_profiling ? "switch profiling off, which waits for the GPU"
                                      : "inputs and outputs have to be in the GPU's memory");
  }
  mcc_cu_result code = MCC_CU_SUCCESS;
  for (uint64_t i = 0; i < device.inputs.size() && code == MCC_CU_SUCCESS; ++i)
    code = copy_in(session, i);
  if (code != MCC_CU_SUCCESS) return fail_here(device, code, "the inputs cannot be copied to the GPU", error);
  mcc_status status = MCC_OK;
  if (session->is_profiling) {
    status = device.is_walked ? walk_model(session, 0, error) : run_profiled(session, error);
  } else {
    status = is_captured ? launch_all(session, error) : run_steps(session, error);
    if (status == MCC_OK && device.is_walked) status = walk_model(session, device.leading_nodes, error);
  }
  if (status == MCC_OK) status = place_late_outputs(session, error);
  if (status != MCC_OK) return status;
  for (uint64_t i = 0; i < device.outputs.size() && code == MCC_CU_SUCCESS; ++i)
    code = copy_out(session, i);
  if (code != MCC_CU_SUCCESS)
    return fail_here(device, code, "the outputs cannot be copied from the GPU", error);
  if (device.is_callers_stream && is_all_on_device(*session)) return MCC_OK;
  code = cuda.stream_synchronize(device.stream);
  if (code != MCC_CU_SUCCESS) return fail_cuda(cuda, code, "the model's kernels failed on the GPU", error);
  for (uint64_t i = 0; i < device.outputs.size(); ++i) {
    const DeviceTensor& tensor = device.outputs[i];
    uint8_t* to = session->outputs[i].data;
    if (!tensor.is_on_device && tensor.pinned != nullptr && tensor.pinned != to)
      std::memcpy(to, tensor.pinned, tensor.bytes);
  }
  return MCC_OK;
}

}  // namespace mcc::runtime
