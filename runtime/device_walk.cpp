// A run of a model whose sizes or course data decides, or which draws random numbers: node by node, as on the host. Where the host has to
// know an element of a tensor, it waits for the stream.
#include "runtime/device_session.h"

namespace mcc::runtime {

namespace {

mcc_status walk_graph(mcc_session* session, uint32_t graph, mcc_error* error);

// The value's bytes where the host can read them: an input that the caller has there.
const uint8_t* host_memory(const mcc_session& session, const mcc_plan_value& value) {
  const bool is_there =
      value.storage == MCC_STORAGE_input && !session.device->inputs[value.index].is_on_device;
  return is_there ? session.inputs[value.index].data + evaluate(session, value.offset) : nullptr;
}

// Copies an element of the value to the host. *is_queued: the stream has to be waited for.
mcc_status fetch(mcc_session* session, const mcc_plan_value& value, int64_t index, uint64_t* to,
                 bool* is_queued, mcc_error* error) {
  DeviceSession& device = *session->device;
  const uint64_t size = dtype_bytes(value.dtype);
  uint64_t bytes = 0;
  if (!is_within_storage(*session, value) || !evaluate_bytes(*session, value, &bytes) || index < 0 ||
      static_cast<uint64_t>(index) >= bytes / size)
    return fail(error, MCC_RUN_FAILED, "a size is read outside of tensor \"%.200s\"",
                session->plan->text(value.name));
  const uint64_t offset = static_cast<uint64_t>(index) * size;
  if (const uint8_t* memory = host_memory(*session, value)) {
    std::memcpy(to, memory + offset, size);
    return MCC_OK;
  }
  const mcc_cu_result code =
      device.on->cuda->copy_to_host(to, address_of(*session, value) + offset, size, device.stream);
  if (code != MCC_CU_SUCCESS) return fail_here(device, code, "a size cannot be copied from the GPU", error);
  *is_queued = true;
  return MCC_OK;
}

mcc_status wait(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cu_result code = device.on->cuda->stream_synchronize(device.stream);
  device.before = nullptr;
  return code == MCC_CU_SUCCESS
             ? MCC_OK
             : fail_cuda(*device.on->cuda, code, "the model's kernels failed on the GPU", error);
}

// All that the code loads, ahead of it, so that the stream is waited for once.
mcc_status run_shape_code(mcc_session* session, mcc_plan_range range, mcc_error* error) {
  DeviceSession& device = *session->device;
  uint64_t loads = 0;
  bool is_queued = false;
  for (uint32_t i = range.begin; i < range.begin + range.count; ++i) {
    const mcc_plan_instruction& instruction = session->plan->code[i];
    if (instruction.op != MCC_SHAPE_load) continue;
    const mcc_status status =
        fetch(session, session->plan->values[instruction.a], evaluate(*session, instruction.b),
              device.fetched + loads++, &is_queued, error);
    if (status != MCC_OK) return status;
  }
  const mcc_status status = is_queued ? wait(session, error) : MCC_OK;
  device.next_fetched = 0;
  return status == MCC_OK ? run_code(session, range, error) : status;
}

mcc_status run_steps_of(mcc_session* session, uint64_t node, mcc_error* error) {
  DeviceSession& device = *session->device;
  const uint64_t begin = device.first_steps[node], end = device.first_steps[node + 1];
  mcc_status status = MCC_OK;
  for (uint64_t i = begin; i < end && status == MCC_OK; ++i) {
    status = size_step(session, &device.steps[i], device.before, error);
    if (status == MCC_OK) status = resolve_step(session, device.steps[i], error);
    device.before = &device.steps[i];
  }
  // A loop's first step starts all of it: they are all ready.
  for (uint64_t i = begin; i < end && status == MCC_OK; ++i)
    status = carry_out(*session, device.steps[i], device.stream, error);
  return status;
}

mcc_status read_condition(mcc_session* session, const mcc_plan_node& node, bool* holds, mcc_error* error) {
  bool is_queued = false;
  mcc_status status = fetch(session, session->plan->values[session->plan->indices[node.args.begin]], 0,
                            session->device->fetched, &is_queued, error);
  if (status == MCC_OK && is_queued) status = wait(session, error);
  *holds = status == MCC_OK && *reinterpret_cast<const uint8_t*>(session->device->fetched) != 0;
  return status;
}

mcc_status walk_if(mcc_session* session, const mcc_plan_node& node, mcc_error* error) {
  bool holds = false;
  const mcc_status status = read_condition(session, node, &holds, error);
  if (status != MCC_OK) return status;
  const uint32_t graph = holds ? node.target : node.other;
  return graph == MCC_PLAN_NONE ? MCC_OK : walk_graph(session, graph, error);
}

mcc_status walk_loop(mcc_session* session, const mcc_plan_node& node, mcc_error* error) {
  const int64_t trips = evaluate(*session, session->plan->quantities[node.dims.begin]);
  for (int64_t i = 0; i < trips; ++i) {
    if (node.args.count != 0) {
      bool goes_on = false;
      const mcc_status status = read_condition(session, node, &goes_on, error);
      if (status != MCC_OK || !goes_on) return status;
    }
    if (node.other != MCC_PLAN_NONE) session->slots[node.other] = i;
    const mcc_status status = walk_graph(session, node.target, error);
    if (status != MCC_OK) return status;
  }
  return MCC_OK;
}

// The driver has taken the words over when the call returns, as they are in pageable memory.
mcc_status walk_draw(mcc_session* session, uint64_t n, mcc_error* error) {
  DeviceSession& device = *session->device;
  const Plan& plan = *session->plan;
  const mcc_plan_value& value = plan.values[plan.indices[plan.nodes[n].args.begin]];
  if (!is_within_storage(*session, value))
    return fail_at(*session, n, MCC_RUN_FAILED, why_outside(*session, value), error);
  const DrawnWords words = draw(session, n);
  const mcc_cu_result code =
      device.on->cuda->copy_to_device(address_of(*session, value), &words, sizeof words, device.stream);
  device.before = nullptr;
  return code == MCC_CU_SUCCESS ? MCC_OK
                                : fail_here(device, code, "a seed cannot be copied to the GPU", error);
}

mcc_status walk_node(mcc_session* session, uint64_t n, mcc_error* error) {
  const mcc_plan_node& node = session->plan->nodes[n];
  switch (node.kind) {
    case MCC_NODE_device:
    case MCC_NODE_copy:
      return run_steps_of(session, n, error);
    case MCC_NODE_shape:
      return run_shape_code(session, node.code, error);
    case MCC_NODE_if:
      return walk_if(session, node, error);
    case MCC_NODE_loop:
      return walk_loop(session, node, error);
    case MCC_NODE_draw:
      return walk_draw(session, n, error);
  }
  return MCC_OK;  // plans for GPUs have no others
}

// What the host has waited for; of launches by themselves what the GPU takes for them.
mcc_status walk_timed(mcc_session* session, uint64_t n, mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const bool is_launch = device.first_steps[n + 1] > device.first_steps[n];
  mcc_cu_event* events = device.events.data();
  if (device.events.size() == 0) {
    if (!device.events.allocate(2)) return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
    events = device.events.data();
  }
  mcc_cu_result code = MCC_CU_SUCCESS;
  for (int i = 0; i < 2 && code == MCC_CU_SUCCESS; ++i)
    if (events[i] == nullptr) code = cuda.event_create(&events[i], 0);
  const uint64_t start = clock_ns();
  if (is_launch && code == MCC_CU_SUCCESS) code = cuda.event_record(events[0], device.stream);
  const mcc_status status = walk_node(session, n, error);
  if (status != MCC_OK) return status;
  uint64_t elapsed = clock_ns() - start;
  if (is_launch && code == MCC_CU_SUCCESS) {
    float ms = 0;
    code = cuda.event_record(events[1], device.stream);
    if (code == MCC_CU_SUCCESS) code = cuda.stream_synchronize(device.stream);
    if (code == MCC_CU_SUCCESS) code = cuda.event_milliseconds(&ms, events[0], events[1]);
    elapsed = static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
  }
  if (code != MCC_CU_SUCCESS) return fail_cuda(cuda, code, "the model's kernels failed on the GPU", error);
  NodeTimes& times = session->times[n];
  if (times.executions == 0 || elapsed < times.min_ns) times.min_ns = elapsed;
  times.total_ns += elapsed;
  ++times.executions;
  return MCC_OK;
}

mcc_status walk_nodes(mcc_session* session, mcc_plan_range nodes, uint64_t from, mcc_error* error) {
  mcc_status status = MCC_OK;
  for (uint64_t n = from; n < nodes.count && status == MCC_OK; ++n) {
    const uint64_t node = nodes.begin + n;
    status = session->is_profiling ? walk_timed(session, node, error) : walk_node(session, node, error);
  }
  return status;
}

mcc_status walk_graph(mcc_session* session, uint32_t graph, mcc_error* error) {
  const mcc_plan_graph& record = session->plan->graphs[graph];
  const mcc_status status = run_code(session, record.code, error);
  return status == MCC_OK ? walk_nodes(session, record.nodes, 0, error) : status;
}

// More memory at the same place of the list, with what was at its beginning.
mcc_status move_block(DeviceSession& device, DeviceBlock* block, uint64_t bytes, uint64_t kept,
                      const char* what, mcc_error* error) {
  const mcc_cuda_driver& cuda = *device.on->cuda;
  DeviceBlock old = *block;
  *block = {};
  mcc_status status =
      grow_on_device(device, grown(old.bytes, bytes), what, &block->address, &block->bytes, error);
  if (status == MCC_OUT_OF_MEMORY)
    status = grow_on_device(device, bytes, what, &block->address, &block->bytes, error);
  mcc_cu_result code = MCC_CU_SUCCESS;
  if (status == MCC_OK)
    code =
        cuda.copy_on_device(block->address, old.address, kept < old.bytes ? kept : old.bytes, device.stream);
  cuda.stream_synchronize(device.stream);
  cuda.release(old.address);
  if (code != MCC_CU_SUCCESS) return fail_here(device, code, "a tensor cannot be moved", error);
  return status;
}

}  // namespace

namespace {

bool is_step(const mcc_plan_node& node) { return node.kind == MCC_NODE_device || node.kind == MCC_NODE_copy; }

}  // namespace

mcc_status set_up_walk(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const Plan& plan = *session->plan;
  const mcc_plan_range nodes = plan.graphs[0].nodes;
  while (device.leading_nodes < nodes.count && is_step(plan.nodes[nodes.begin + device.leading_nodes]))
    ++device.leading_nodes;
  device.is_walked = is_walked(plan);
  if (!device.is_walked) return MCC_OK;
  uint64_t most = 1;
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    uint64_t loads = 0;
    for (uint32_t i = 0; i < plan.nodes[n].code.count; ++i)
      loads += plan.code[plan.nodes[n].code.begin + i].op == MCC_SHAPE_load ? 1 : 0;
    most = loads > most ? loads : most;
  }
  // The driver copies to pageable memory where it gives none.
  void* pinned = nullptr;
  if (device.on->cuda->host_allocate(&pinned, most * sizeof(uint64_t), 0) == MCC_CU_SUCCESS) {
    device.pinned = pinned;
    device.fetched = static_cast<uint64_t*>(pinned);
  } else {
    if (!device.pageable.allocate(most)) return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
    device.fetched = device.pageable.data();
  }
  return device.heap.allocate(plan.header->heap_count) ? MCC_OK
                                                       : fail(error, MCC_OUT_OF_MEMORY, "out of memory");
}

mcc_status grow_block(mcc_session* session, uint64_t index, uint64_t bytes, uint64_t kept, const char* what,
                      mcc_error* error) {
  DeviceSession& device = *session->device;
  DeviceBlock& block = device.heap[index];
  if (bytes <= block.bytes) return MCC_OK;
  if (kept != 0 && block.address != 0) return move_block(device, &block, bytes, kept, what, error);
  return grow_on_device(device, bytes, what, &block.address, &block.bytes, error);
}

mcc_status walk_model(mcc_session* session, uint64_t from, mcc_error* error) {
  session->device->before = nullptr;
  return walk_nodes(session, session->plan->graphs[0].nodes, from, error);
}

}  // namespace mcc::runtime
