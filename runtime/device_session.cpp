#include "runtime/device_session.h"

namespace mcc::runtime {

namespace {

// The run after which the launches are put into a graph: addresses that change all the time are not worth one.
constexpr uint32_t kRunsBeforeGraph = 1;

mcc_status out_of_memory(mcc_error* error) { return fail(error, MCC_OUT_OF_MEMORY, "out of memory"); }

void drop_other(const mcc_cuda_driver& cuda, DeviceTensor* tensor) {
  if (tensor->other != nullptr) cuda.primary_release(tensor->other_device);
  tensor->other = nullptr;
}

// A copy on the session's GPU, or from or to another one.
mcc_cu_result copy(const DeviceSession& device, mcc_cu_pointer to, mcc_cu_context to_other, mcc_cu_pointer from,
                   mcc_cu_context from_other, uint64_t bytes) {
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const mcc_cu_context own = device.on->context;
  if (to_other == nullptr && from_other == nullptr) return cuda.copy_on_device(to, from, bytes, device.stream);
  return cuda.copy_between_devices(to, to_other != nullptr ? to_other : own, from, from_other != nullptr ? from_other : own,
                                   bytes, device.stream);
}

// Finds out where `data` is, and what the kernels use.
mcc_status place(mcc_session* session, DeviceTensor* tensor, const void* data, const char* name,
                 mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  CurrentContext current(cuda, device.on->context);
  tensor->is_on_device = is_on_device(cuda, data);
  mcc_cu_pointer address = reinterpret_cast<uintptr_t>(data);
  drop_other(cuda, tensor);
  if (tensor->is_on_device) {
    tensor->other_device = device_of(cuda, data, device.on->device);
    if (tensor->other_device != device.on->device) {
      const mcc_cu_result code = cuda.primary_retain(&tensor->other, tensor->other_device);
      if (code != MCC_CU_SUCCESS) {
        tensor->other = nullptr;
        return fail_cuda(cuda, code, "the other GPU, which has an input or output, cannot be used", error);
      }
    }
  }
  // What is on another GPU is copied, as is what vectors do not fit.
  if (!tensor->is_on_device || address % MCC_BUFFER_ALIGNMENT != 0 || tensor->other != nullptr) {
    if (!tensor->has_own) {
      const mcc_status status = allocate_on_device(cuda, tensor->bytes, name, &tensor->own, error);
      if (status != MCC_OK) return status;
      tensor->has_own = true;
    }
    address = tensor->own;
  }
  if (!tensor->is_on_device && !tensor->has_pinned && tensor->bytes != 0) {
    tensor->has_pinned = true;
    if (cuda.host_allocate(&tensor->pinned, tensor->bytes, 0) != MCC_CU_SUCCESS) tensor->pinned = nullptr;
  }
  if (address != tensor->address) device.is_stale = true;
  tensor->address = address;
  return MCC_OK;
}

mcc_cu_pointer address_of(const mcc_session& session, const mcc_plan_value& value) {
  const DeviceSession& device = *session.device;
  const auto offset = static_cast<mcc_cu_pointer>(value.offset);
  switch (value.storage) {
    case MCC_STORAGE_arena:
      return device.arena + offset;
    case MCC_STORAGE_weights:
      return device.on->weights + offset;
    case MCC_STORAGE_input:
      return device.inputs[value.index].address + offset;
    case MCC_STORAGE_output:
      return device.outputs[value.index].address + offset;
  }
  return 0;
}

// ---- Creation ----

bool is_empty(const mcc_device_launch& l) { return l.grid[0] == 0 || l.grid[1] == 0 || l.grid[2] == 0; }

mcc_status set_up_steps(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const Plan& plan = *session->plan;
  const DeviceCode& code = session->model->device_code;
  uint64_t steps = 0, arguments = 0, maps = 0, products = 0;
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    if (node.kind == MCC_NODE_copy) {
      ++steps;
      arguments += 2;
      continue;
    }
    const mcc_plan_range launches = device.on->launches[node.target];
    steps += launches.count;
    for (uint32_t l = 0; l < launches.count; ++l) {
      arguments += code.launches[launches.begin + l].arguments.count;
      maps += code.launches[launches.begin + l].maps.count;
      products += code.launches[launches.begin + l].products.count;
    }
  }
  if (!device.steps.allocate(steps) || !device.values.allocate(arguments) ||
      !device.addresses.allocate(arguments) || !device.maps.allocate(maps) ||
      !device.parameters.allocate(arguments + maps) || !device.products.allocate(products)) {
    return out_of_memory(error);
  }
  uint64_t step = 0, argument = 0, map = 0, parameter = 0, product = 0;
  auto add_argument = [&](const mcc_plan_node& node, uint32_t number) {
    device.values[argument] = plan.indices[node.args.begin + number];
    device.parameters[parameter++] = &device.addresses[argument];
    ++argument;
  };
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    if (node.kind == MCC_NODE_copy) {
      const mcc_plan_value& from = plan.values[plan.indices[node.args.begin]];
      const mcc_plan_value& to = plan.values[plan.indices[node.args.begin + 1]];
      uint64_t bytes = 0, to_bytes = 0;
      tensor_bytes(from.dtype, plan.dims_of(from), from.rank, &bytes);
      tensor_bytes(to.dtype, plan.dims_of(to), to.rank, &to_bytes);
      if (bytes != to_bytes) return fail(error, MCC_BAD_MODEL, "a copy between tensors of different size");
      device.steps[step++] = {static_cast<uint32_t>(n), 0, nullptr, argument, bytes, parameter};
      add_argument(node, 0);
      add_argument(node, 1);
      continue;
    }
    const mcc_plan_range launches = device.on->launches[node.target];
    for (uint32_t l = launches.begin; l < launches.begin + launches.count; ++l) {
      const mcc_plan_range numbers = code.launches[l].arguments;
      device.steps[step] = {static_cast<uint32_t>(n), l, device.on->functions[l], argument, 0, parameter};
      if (code.launches[l].products.count != 0) {
        mcc_error why = {};
        const mcc_device_product& call = code.products[code.launches[l].products.begin];
        device.steps[step].call = &call;
        device.steps[step].product = product;
        const mcc_status status = open_product(*device.on->lt, device.on->lt_handle, call, &device.products[product++], &why);
        if (status != MCC_OK) return fail_at(*session, n, status, why.message, error);
      }
      const DeviceStep* before = step == 0 ? nullptr : &device.steps[step - 1];
      device.steps[step].is_early = device.on->has_early_launch && code.launches[l].waits_itself != 0 && before != nullptr &&
                                    before->function != nullptr && !is_empty(code.launches[before->launch]);
      ++step;
      for (uint32_t a = 0; a < numbers.count; ++a)
        add_argument(node, code.arguments[numbers.begin + a]);
      const mcc_plan_range matrices = code.launches[l].maps;
      for (uint32_t m = 0; m < matrices.count; ++m) {
        const mcc_device_map& of = code.maps[matrices.begin + m];
        device.maps[map].of = &of;
        device.maps[map].value = plan.indices[node.args.begin + of.argument];
        device.parameters[parameter++] = device.maps[map++].map();
      }
    }
  }
  return MCC_OK;
}

mcc_status set_up_memory(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const Plan& plan = *session->plan;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  if (!device.inputs.allocate(plan.inputs().count) || !device.outputs.allocate(plan.outputs().count))
    return out_of_memory(error);
  mcc_status status = allocate_on_device(cuda, static_cast<uint64_t>(plan.header->arena_size),
                               "the arena of intermediate tensors", &device.arena, error);
  for (uint64_t i = 0; i < device.inputs.size(); ++i) {
    const mcc_plan_value& value = plan.input(i);
    tensor_bytes(value.dtype, plan.dims_of(value), value.rank, &device.inputs[i].bytes);
  }
  for (uint64_t i = 0; i < device.outputs.size() && status == MCC_OK; ++i) {
    device.outputs[i].bytes = session->outputs[i].bytes;
    status = set_device_output(session, i, error);
  }
  return status;
}

// ---- Runs ----

void drop_graph(DeviceSession* device) {
  if (device->graph != nullptr) device->on->cuda->graph_exec_destroy(device->graph);
  device->graph = nullptr;
  device->is_graph_stale = false;
}

mcc_status resolve_addresses(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  for (uint64_t i = 0; i < device.values.size(); ++i) {
    const uint32_t value = device.values[i];
    device.addresses[i] = value == MCC_PLAN_NONE ? 0 : address_of(*session, session->plan->values[value]);
  }
  for (DeviceMap& m : device.maps) {
    const mcc_cu_pointer address =
        m.value == MCC_PLAN_NONE ? 0 : address_of(*session, session->plan->values[m.value]);
    const mcc_status status = encode_map(*device.on->cuda, *m.of, address, m.map(), error);
    if (status != MCC_OK) return status;
  }
  // Destroyed later: a driver may refuse that while a stream is being captured.
  device.is_graph_stale = device.graph != nullptr;
  device.runs = 0;
  device.is_stale = false;
  return MCC_OK;
}

// A kernel that the one ahead of it need not have ended for. Kernels wait ahead of all that they do, so that whatever comes before
// the one ahead has ended as well.
mcc_cu_result launch_early(const mcc_cuda_driver& cuda, mcc_cu_function function, const mcc_device_launch& l,
                           mcc_cu_stream stream, void** parameters) {
  mcc_cu_launch_attribute early = {MCC_CU_LAUNCH_BEFORE_PREVIOUS_ENDS, 0, {1}};
  const mcc_cu_launch_config config = {l.grid[0],  l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                                       l.dynamic_shared_bytes, stream, &early, 1};
  return cuda.launch_with(&config, function, parameters, nullptr);
}

mcc_cu_result launch(const mcc_session& session, const DeviceStep& step, mcc_cu_stream stream) {
  DeviceSession& device = *session.device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  if (step.function == nullptr) {
    if (step.bytes == 0) return MCC_CU_SUCCESS;
    return cuda.copy_on_device(device.addresses[step.arguments + 1], device.addresses[step.arguments],
                               step.bytes, stream);
  }
  const mcc_device_launch& l = session.model->device_code.launches[step.launch];
  if (is_empty(l)) return MCC_CU_SUCCESS;
  void** parameters = device.parameters.data() + step.parameters;
  // Profiled runs have events between the kernels, which are to take their own time.
  if (step.is_early && !session.is_profiling) return launch_early(cuda, step.function, l, stream, parameters);
  return cuda.launch(step.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                     l.dynamic_shared_bytes, stream, parameters, nullptr);
}

mcc_status carry_out(const mcc_session& session, const DeviceStep& step, mcc_cu_stream stream, mcc_error* error) {
  DeviceSession& device = *session.device;
  mcc_error why = {};
  mcc_status status = MCC_OK;
  if (step.call != nullptr) {
    status = start_product(*device.on->lt, device.on->lt_handle, *step.call, device.products[step.product],
                           device.addresses.data() + step.arguments, stream, &why);
  } else if (const mcc_cu_result code = launch(session, step, stream); code != MCC_CU_SUCCESS) {
    status = fail_cuda(*device.on->cuda, code, "it cannot be launched", &why);
  }
  return status == MCC_OK ? MCC_OK : fail_at(session, step.node, status, why.message, error);
}

mcc_status launch_all(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  for (const DeviceStep& step : device.steps) {
    const mcc_status status = carry_out(*session, step, device.stream, error);
    if (status != MCC_OK) return status;
  }
  return MCC_OK;
}

// The launches as a graph, which costs the host one call. Where the driver makes none, they go on one by one. They are recorded
// on a stream that nobody else's work waits for.
void make_graph(mcc_session* session) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  device.has_graph_failed = true;
  mcc_cu_stream stream = nullptr;
  if (cuda.stream_create(&stream, MCC_CU_STREAM_NON_BLOCKING) != MCC_CU_SUCCESS) return;
  mcc_cu_graph graph = nullptr;
  mcc_cu_result code = cuda.capture_begin(stream, MCC_CU_CAPTURE_THREAD_LOCAL);
  if (code == MCC_CU_SUCCESS) {
    mcc_status status = MCC_OK;
    for (const DeviceStep& step : device.steps)
      if (status == MCC_OK) status = carry_out(*session, step, stream, nullptr);
    code = cuda.capture_end(stream, &graph);
    if (code == MCC_CU_SUCCESS && status != MCC_OK) code = MCC_CU_INVALID_VALUE;
  }
  if (code == MCC_CU_SUCCESS) code = cuda.graph_instantiate(&device.graph, graph, 0);
  device.has_graph_failed = code != MCC_CU_SUCCESS;
  if (device.has_graph_failed) device.graph = nullptr;
  if (graph != nullptr) cuda.graph_destroy(graph);
  cuda.stream_destroy(stream);
}

mcc_status run_steps(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  if (device.is_graph_stale) drop_graph(&device);
  if (device.graph == nullptr && !device.has_graph_failed && device.runs >= kRunsBeforeGraph &&
      device.steps.size() > 1)
    make_graph(session);
  ++device.runs;
  if (device.graph == nullptr) return launch_all(session, error);
  const mcc_cu_result code = device.on->cuda->graph_launch(device.graph, device.stream);
  if (code == MCC_CU_SUCCESS) return MCC_OK;
  return fail_cuda(*device.on->cuda, code, "the model's launches cannot be started", error);
}

// Node by node, with an event behind each.
mcc_status run_profiled(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const uint64_t nodes = session->plan->nodes_count;
  if (device.events.size() == 0 && !device.events.allocate(nodes + 1)) return out_of_memory(error);
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

mcc_status set_up_device(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  session->device = static_cast<DeviceSession*>(std::calloc(1, sizeof(DeviceSession)));
  if (session->device == nullptr) return out_of_memory(error);
  DeviceSession& device = *new (session->device) DeviceSession;
  device.on = find_device_model(session->model, options.cuda_device, error);
  if (device.on == nullptr) return error != nullptr ? error->status : MCC_NOT_HERE;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  CurrentContext current(cuda, device.on->context);
  // One that work of the default stream comes before: inputs on the GPU may have been made there.
  const mcc_cu_result code = cuda.stream_create(&device.own_stream, MCC_CU_STREAM_DEFAULT);
  if (code != MCC_CU_SUCCESS) {
    device.own_stream = nullptr;
    return fail_cuda(cuda, code, "the GPU's stream cannot be made", error);
  }
  device.is_callers_stream = options.cuda_stream != nullptr;
  device.stream =
      device.is_callers_stream ? static_cast<mcc_cu_stream>(options.cuda_stream) : device.own_stream;
  const mcc_status status = set_up_memory(session, error);
  return status == MCC_OK ? set_up_steps(session, error) : status;
}

void destroy_device(mcc_session* session) {
  DeviceSession* device = session->device;
  if (device == nullptr) return;
  if (device->on != nullptr) {
    const mcc_cuda_driver& cuda = *device->on->cuda;
    CurrentContext current(cuda, device->on->context);
    if (device->stream != nullptr) cuda.stream_synchronize(device->stream);
    drop_graph(device);
    for (LibraryProduct& product : device->products)
      close_product(*device->on->lt, &product);
    for (mcc_cu_event event : device->events)
      if (event != nullptr) cuda.event_destroy(event);
    for (Array<DeviceTensor>* list : {&device->inputs, &device->outputs}) {
      for (DeviceTensor& tensor : *list) {
        drop_other(cuda, &tensor);
        if (tensor.own != 0) cuda.release(tensor.own);
        if (tensor.pinned != nullptr) cuda.host_release(tensor.pinned);
      }
    }
    if (device->arena != 0) cuda.release(device->arena);
    if (device->own_stream != nullptr) cuda.stream_destroy(device->own_stream);
  }
  device->~DeviceSession();
  std::free(device);
  session->device = nullptr;
}

mcc_status set_device_input(mcc_session* session, uint64_t index, mcc_error* error) {
  return place(session, &session->device->inputs[index], session->inputs[index].data, "an input", error);
}

mcc_status set_device_output(mcc_session* session, uint64_t index, mcc_error* error) {
  OutputSlot& slot = session->outputs[index];
  DeviceTensor& tensor = session->device->outputs[index];
  const mcc_status status =
      place(session, &tensor, slot.is_callers ? slot.data : nullptr, "an output", error);
  if (status != MCC_OK || slot.is_callers) return status;
  // The session's own: what the copy from the GPU goes to.
  slot.data = static_cast<uint8_t*>(tensor.pinned);
  if (tensor.pinned == nullptr) {
    if (!slot.own.reserve(tensor.bytes)) return out_of_memory(error);
    slot.data = slot.own.data();
  }
  slot.capacity = tensor.bytes;
  return MCC_OK;
}

mcc_status run_device(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  CurrentContext current(cuda, device.on->context);
  const bool is_captured = is_being_captured(device);
  if (is_captured && (session->is_profiling || !is_all_on_device(*session))) {
    return fail(error, MCC_INVALID_ARGUMENT,
                "the stream is being captured: %s",
                session->is_profiling ? "switch profiling off, which waits for the GPU"
                                      : "inputs and outputs have to be in the GPU's memory");
  }
  if (device.is_stale) {
    const mcc_status status = resolve_addresses(session, error);
    if (status != MCC_OK) return status;
  }
  mcc_cu_result code = MCC_CU_SUCCESS;
  for (uint64_t i = 0; i < device.inputs.size() && code == MCC_CU_SUCCESS; ++i)
    code = copy_in(session, i);
  if (code != MCC_CU_SUCCESS) return fail_cuda(cuda, code, "the inputs cannot be copied to the GPU", error);
  const mcc_status status = session->is_profiling ? run_profiled(session, error)
                            : is_captured         ? launch_all(session, error)
                                                  : run_steps(session, error);
  if (status != MCC_OK) return status;
  for (uint64_t i = 0; i < device.outputs.size() && code == MCC_CU_SUCCESS; ++i)
    code = copy_out(session, i);
  if (code != MCC_CU_SUCCESS)
    return fail_cuda(cuda, code, "the outputs cannot be copied from the GPU", error);
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
