#include "runtime/device_session.h"

namespace mcc::runtime {

namespace {

mcc_status out_of_memory(mcc_error* error) { return fail(error, MCC_OUT_OF_MEMORY, "out of memory"); }

void drop_other(const mcc_cuda_driver& cuda, DeviceTensor* tensor) {
  if (tensor->other != nullptr) cuda.primary_release(tensor->other_device);
  tensor->other = nullptr;
}

}  // namespace

uint64_t grown(uint64_t from, uint64_t needed) {
  const uint64_t more = from + from / 2;
  return more > needed ? more : needed;
}

mcc_status grow_on_device(DeviceSession& device, uint64_t bytes, const char* what, mcc_cu_pointer* memory, uint64_t* capacity,
                          mcc_error* error) {
  if (bytes <= *capacity) return MCC_OK;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  if (device.is_being_captured) {
    return fail(error, MCC_INVALID_ARGUMENT,
                "the stream is being captured, and these shapes need more memory than those before (%llu bytes for %s): run them "
                "once outside of the capture",
                static_cast<unsigned long long>(bytes), what);
  }
  const uint64_t wanted = grown(*capacity, bytes);
  if (*memory != 0) {
    // A run that is only queued may work on it still.
    cuda.stream_synchronize(device.stream);
    cuda.release(*memory);
    *memory = 0;
    *capacity = 0;
  }
  uint64_t got = wanted;
  mcc_status status = allocate_on_device(cuda, wanted, what, memory, error);
  if (status == MCC_OUT_OF_MEMORY && wanted > bytes) {
    got = bytes;
    status = allocate_on_device(cuda, bytes, what, memory, error);
  }
  if (status == MCC_OK) *capacity = got;
  return status;
}

namespace {

// The host's side of copies, for as many bytes as the tensor has. The driver copies from pageable memory where it gives none.
void pin(const mcc_cuda_driver& cuda, DeviceTensor* tensor) {
  if (tensor->bytes <= tensor->pinned_bytes) return;
  const uint64_t bytes = grown(tensor->pinned_bytes, tensor->bytes);
  if (tensor->pinned != nullptr) cuda.host_release(tensor->pinned);
  tensor->pinned_bytes = bytes;
  if (cuda.host_allocate(&tensor->pinned, bytes, 0) != MCC_CU_SUCCESS) tensor->pinned = nullptr;
}

// Finds out where `data` is, and what the kernels use, if they do.
mcc_status place(mcc_session* session, DeviceTensor* tensor, const void* data, bool is_used, const char* name,
                 mcc_error* error) {
  DeviceSession& device = *session->device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const CurrentContext current(cuda, device.on->context);
  if (!current.is_there()) return current.fail(error);
  const mcc_status found = find_memory(cuda, data, &tensor->is_on_device, error);
  if (found != MCC_OK) return found;
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
  if (is_used && (!tensor->is_on_device || address % MCC_BUFFER_ALIGNMENT != 0 || tensor->other != nullptr)) {
    const mcc_status status = grow_on_device(device, tensor->bytes, name, &tensor->own, &tensor->own_bytes, error);
    if (status != MCC_OK) return status;
    address = tensor->own;
  }
  if (!tensor->is_on_device) pin(cuda, tensor);
  if (address != tensor->address) {
    device.is_stale = true;
    device.graph = nullptr;
  }
  tensor->address = address;
  return MCC_OK;
}

// ---- Creation ----

mcc_status size_arena(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const int64_t size = evaluate(*session, session->plan->header->arena_size);
  if (size < 0)
    return fail(error, MCC_RUN_FAILED,
                "an input is too small: a tensor inside of the model would have a negative size");
  const mcc_cu_pointer before = device.arena;
  const mcc_status status =
      grow_on_device(device, static_cast<uint64_t>(size), "the arena of intermediate tensors", &device.arena, &device.arena_bytes, error);
  session->arena_size = static_cast<uint64_t>(size);
  if (device.arena != before) drop_graphs(device);
  return status;
}

mcc_status size_steps(mcc_session* session, mcc_error* error) {
  const DeviceStep* before = nullptr;
  for (DeviceStep& step : leading_steps(*session)) {
    const mcc_status status = size_step(session, &step, before, error);
    if (status != MCC_OK) return status;
    before = &step;
  }
  return MCC_OK;
}

mcc_status set_up_memory(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const Plan& plan = *session->plan;
  const uint64_t tensors = uint64_t{plan.inputs().count} + plan.outputs().count;
  const uint64_t graphs = plan.symbols_count == 0 ? kMostGraphs : kMostGraphsOfSizes;
  if (!session->slots.allocate(plan.header->slot_count) || !device.inputs.allocate(plan.inputs().count) ||
      !device.outputs.allocate(plan.outputs().count) || !device.graphs.allocate(graphs) ||
      !device.graph_addresses.allocate(graphs * tensors) || !device.graph_sizes.allocate(graphs * plan.symbols_count))
    return out_of_memory(error);
  mcc_status status = MCC_OK;
  if (is_static(plan.header->arena_size)) status = size_arena(session, error);
  for (uint64_t i = 0; i < device.outputs.size() && status == MCC_OK; ++i) {
    if (session->outputs[i].is_static) status = set_device_output(session, i, error);
  }
  return status;
}

}  // namespace

mcc_status set_up_device(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  session->device = static_cast<DeviceSession*>(std::calloc(1, sizeof(DeviceSession)));
  if (session->device == nullptr) return out_of_memory(error);
  DeviceSession& device = *new (session->device) DeviceSession;
  device.on = find_device_model(session->model, options, error);
  if (device.on == nullptr) return error != nullptr ? error->status : MCC_NOT_HERE;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  const CurrentContext current(cuda, device.on->context);
  if (!current.is_there()) return current.fail(error);
  // One that work of the default stream comes before: inputs on the GPU may have been made there.
  const mcc_cu_result code = cuda.stream_create(&device.own_stream, MCC_CU_STREAM_DEFAULT);
  if (code != MCC_CU_SUCCESS) {
    device.own_stream = nullptr;
    return fail_cuda(cuda, code, "the GPU's stream cannot be made", error);
  }
  device.is_callers_stream = options.cuda_stream != nullptr;
  device.stream =
      device.is_callers_stream ? static_cast<mcc_cu_stream>(options.cuda_stream) : device.own_stream;
  mcc_status status = set_up_memory(session, error);
  if (status == MCC_OK) status = set_up_steps(session, error);
  if (status == MCC_OK) status = set_up_walk(session, error);
  // With open dimensions when shapes are known.
  return status == MCC_OK && session->plan->header->slot_count == 0 ? size_steps(session, error) : status;
}

void drop_graphs(DeviceSession& device) {
  for (DeviceGraph& graph : device.graphs) {
    if (graph.exec != nullptr) device.on->cuda->graph_exec_destroy(graph.exec);
    graph = {};
  }
  device.graph = nullptr;
}

mcc_status prepare_device(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  if (session->plan->header->slot_count == 0) return MCC_OK;
  device.is_stale = true;
  device.graph = nullptr;
  mcc_status status = size_arena(session, error);
  for (uint64_t i = 0; i < device.outputs.size() && status == MCC_OK; ++i) {
    if (!session->outputs[i].is_static && !is_late(*session, i))
      status = set_device_output(session, i, error);
  }
  return status == MCC_OK ? size_steps(session, error) : status;
}

namespace {

// What the driver has given.
void give_back(DeviceSession& device) {
  const mcc_cuda_driver& cuda = *device.on->cuda;
  if (device.stream != nullptr) cuda.stream_synchronize(device.stream);
  drop_graphs(device);
  for (LibraryProduct& product : device.products)
    close_product(*device.on->lt, &product);
  for (mcc_cu_event event : device.events)
    if (event != nullptr) cuda.event_destroy(event);
  for (Array<DeviceTensor>* list : {&device.inputs, &device.outputs}) {
    for (DeviceTensor& tensor : *list) {
      if (tensor.own != 0) cuda.release(tensor.own);
      if (tensor.pinned != nullptr) cuda.host_release(tensor.pinned);
    }
  }
  for (const DeviceBlock& block : device.heap)
    if (block.address != 0) cuda.release(block.address);
  if (device.pinned != nullptr) cuda.host_release(device.pinned);
  if (device.arena != 0) cuda.release(device.arena);
  if (device.own_stream != nullptr) cuda.stream_destroy(device.own_stream);
}

}  // namespace

void destroy_device(mcc_session* session) {
  DeviceSession* device = session->device;
  if (device == nullptr) return;
  if (device->on != nullptr) {
    // What is in a context that cannot be used any more has gone with it.
    const CurrentContext current(*device->on->cuda, device->on->context);
    if (current.is_there()) give_back(*device);
    for (Array<DeviceTensor>* list : {&device->inputs, &device->outputs})
      for (DeviceTensor& tensor : *list)
        drop_other(*device->on->cuda, &tensor);
  }
  device->~DeviceSession();
  std::free(device);
  session->device = nullptr;
}

mcc_status set_device_input(mcc_session* session, uint64_t index, mcc_error* error) {
  DeviceTensor& tensor = session->device->inputs[index];
  tensor.bytes = session->inputs[index].bytes;
  return place(session, &tensor, session->inputs[index].data, true, "an input", error);
}

mcc_status set_device_output(mcc_session* session, uint64_t index, mcc_error* error) {
  OutputSlot& slot = session->outputs[index];
  DeviceTensor& tensor = session->device->outputs[index];
  tensor.bytes = slot.bytes;
  const mcc_status status =
      place(session, &tensor, slot.is_callers ? slot.data : nullptr, slot.is_direct, "an output", error);
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

}  // namespace mcc::runtime
