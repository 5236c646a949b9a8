#include "runtime/device_session.h"

namespace mcc::runtime {

namespace {

mcc_status out_of_memory(mcc_error* error) { return fail(error, MCC_OUT_OF_MEMORY, "out of memory"); }

void drop_other(const mcc_cuda_driver& cuda, DeviceTensor* tensor) {
  if (tensor->other != nullptr) cuda.primary_release(tensor->other_device);
  tensor->other = nullptr;
}

// Finds out where `data` is, and what the kernels use.
mcc_status place(mcc_session* session, DeviceTensor* tensor, const void* data, const char* name,
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
  if (address != tensor->address) {
    device.is_stale = true;
    device.graph = nullptr;
  }
  tensor->address = address;
  return MCC_OK;
}

// ---- Creation ----

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
  const uint64_t tensors = uint64_t{plan.inputs().count} + plan.outputs().count;
  if (!device.inputs.allocate(plan.inputs().count) || !device.outputs.allocate(plan.outputs().count) ||
      !device.graphs.allocate(kMostGraphs) || !device.graph_addresses.allocate(kMostGraphs * tensors))
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
  const mcc_status status = set_up_memory(session, error);
  return status == MCC_OK ? set_up_steps(session, error) : status;
}

namespace {

// What the driver has given.
void give_back(DeviceSession& device) {
  const mcc_cuda_driver& cuda = *device.on->cuda;
  if (device.stream != nullptr) cuda.stream_synchronize(device.stream);
  for (DeviceGraph& graph : device.graphs)
    if (graph.exec != nullptr) cuda.graph_exec_destroy(graph.exec);
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

}  // namespace mcc::runtime
