// The launches and copies of a session on a GPU: what they are, what they take with the present shapes, and how they start.
#include <cstdio>

#include "runtime/device_session.h"

namespace mcc::runtime {

mcc_status fail_here(const DeviceSession& device, mcc_cu_result code, const char* what, mcc_error* error) {
  const char* lost =
      "the GPU's context is lost to what it was given before this call, by this model or by another part of "
      "the program; all that "
      "uses this GPU has to be started again in a new process";
  return fail_cuda(*device.on->cuda, code, is_context_lost(code) ? lost : what, error);
}

mcc_cu_pointer address_of(const mcc_session& session, const mcc_plan_value& value) {
  const DeviceSession& device = *session.device;
  const auto offset = static_cast<mcc_cu_pointer>(evaluate(session, value.offset));
  switch (value.storage) {
    case MCC_STORAGE_arena:
      return device.arena + offset;
    case MCC_STORAGE_weights:
      return device.on->weights + offset;
    case MCC_STORAGE_input:
      return device.inputs[value.index].address + offset;
    case MCC_STORAGE_output:
      return device.outputs[value.index].address + offset;
    case MCC_STORAGE_heap:
      return device.heap[value.index].address + offset;
  }
  return 0;
}

namespace {

// The bytes of a storage with the present shapes.
uint64_t size_of_storage(const mcc_session& session, const mcc_plan_value& value) {
  switch (value.storage) {
    case MCC_STORAGE_arena:
      return session.arena_size;
    case MCC_STORAGE_weights:
      return session.plan->header->weights_size;
    case MCC_STORAGE_input:
      return session.device->inputs[value.index].bytes;
    case MCC_STORAGE_output:
      return session.device->outputs[value.index].bytes;
    case MCC_STORAGE_heap:
      return session.device->heap[value.index].bytes;
  }
  return 0;
}

}  // namespace

bool is_within_storage(const mcc_session& session, const mcc_plan_value& value) {
  const int64_t offset = evaluate(session, value.offset);
  uint64_t bytes = 0;
  return offset >= 0 && evaluate_bytes(session, value, &bytes) &&
         is_within(static_cast<uint64_t>(offset), bytes, size_of_storage(session, value));
}

mcc_status resolve_step(mcc_session* session, const DeviceStep& step, mcc_error* error) {
  DeviceSession& device = *session->device;
  for (uint64_t i = step.arguments; i < step.arguments + step.argument_count; ++i) {
    if (device.values[i] == MCC_PLAN_NONE) continue;
    const mcc_plan_value& value = session->plan->values[device.values[i]];
    if (!is_within_storage(*session, value))
      return fail(error, MCC_RUN_FAILED, "tensor \"%.200s\": %s", session->plan->text(value.name),
                  why_outside(*session, value));
    device.addresses[i] = address_of(*session, value);
  }
  for (uint64_t i = step.maps; i < step.maps + step.map_count; ++i) {
    DeviceMap& m = device.maps[i];
    const mcc_cu_pointer address =
        m.value == MCC_PLAN_NONE ? 0 : address_of(*session, session->plan->values[m.value]);
    const mcc_status status = encode_map(*device.on->cuda, *m.of, address, m.map(), error);
    if (status != MCC_OK) return status;
  }
  return MCC_OK;
}

namespace {

// A kernel that the one ahead of it need not have ended for. Kernels wait ahead of all that they do, so that whatever comes before
// the one ahead has ended as well.
mcc_cu_result launch_early(const mcc_cuda_driver& cuda, const DeviceStep& step, const mcc_device_launch& l,
                           mcc_cu_stream stream, void** parameters) {
  mcc_cu_launch_attribute early = {MCC_CU_LAUNCH_BEFORE_PREVIOUS_ENDS, 0, {1}};
  const mcc_cu_launch_config config = {
      step.grid[0], step.grid[1],           step.grid[2], l.block[0], l.block[1],
      l.block[2],   l.dynamic_shared_bytes, stream,       &early,     1};
  return cuda.launch_with(&config, step.function, parameters, nullptr);
}

mcc_cu_result launch(const mcc_session& session, const DeviceStep& step, mcc_cu_stream stream,
                     bool is_early) {
  DeviceSession& device = *session.device;
  const mcc_cuda_driver& cuda = *device.on->cuda;
  if (step.function == nullptr) {
    if (step.bytes == 0) return MCC_CU_SUCCESS;
    return cuda.copy_on_device(device.addresses[step.arguments + 1], device.addresses[step.arguments],
                               step.bytes, stream);
  }
  const mcc_device_launch& l = session.model->device_code.launches[step.launch];
  if (is_empty(step)) return MCC_CU_SUCCESS;
  void** parameters = device.parameters.data() + step.parameters;
  // Profiled runs have events between the kernels, which are to take their own time.
  if (is_early && !session.is_profiling) return launch_early(cuda, step, l, stream, parameters);
  return cuda.launch(step.function, step.grid[0], step.grid[1], step.grid[2], l.block[0], l.block[1],
                     l.block[2], l.dynamic_shared_bytes, stream, parameters, nullptr);
}

mcc_status start(const mcc_session& session, const DeviceStep& step, mcc_cu_stream stream, bool is_early,
                 mcc_error* error) {
  DeviceSession& device = *session.device;
  mcc_error why = {};
  mcc_status status = MCC_OK;
  if (step.call != nullptr) {
    status = start_product(*device.on->lt, device.on->lt_handle, *step.call, device.products[step.product],
                           device.addresses.data() + step.arguments, stream, &why);
    // The library says no more than that it failed; the driver tells whether nothing can be done any more.
    int ignored = 0;
    const mcc_cu_result code =
        status == MCC_OK ? MCC_CU_SUCCESS : device.on->cuda->stream_is_capturing(stream, &ignored);
    if (is_context_lost(code)) return fail_here(device, code, "", error);
  } else if (const mcc_cu_result code = launch(session, step, stream, is_early); code != MCC_CU_SUCCESS) {
    // No fault of this node's: what has failed is ahead of it.
    if (is_context_lost(code)) return fail_here(device, code, "", error);
    status = fail_cuda(*device.on->cuda, code, "it cannot be launched", &why);
  }
  return status == MCC_OK ? MCC_OK : fail_at(session, step.node, status, why.message, error);
}

}  // namespace

mcc_status carry_out(const mcc_session& session, const DeviceStep& step, mcc_cu_stream stream,
                     mcc_error* error) {
  DeviceSession& device = *session.device;
  if (step.is_in_loop) return MCC_OK;
  if (step.loop_steps == 0) return start(session, step, stream, step.is_early, error);
  const DeviceStep* body = &step;
  const DeviceStep& last = body[step.loop_steps - 1];
  const int64_t first = session.model->device_code.launches[step.launch].loop_first;
  // From the second iteration on the end of the body is ahead of its beginning.
  const bool may_follow = device.on->has_early_launch && last.function != nullptr && !is_empty(last) &&
                          step.function != nullptr &&
                          session.model->device_code.launches[step.launch].waits_itself != 0;
  for (int64_t turn = 0; turn < step.turns; ++turn) {
    for (uint32_t i = 0; i < step.loop_steps; ++i) {
      for (uint64_t d = body[i].dims; d < body[i].dims + body[i].dim_count; ++d)
        if (device.dims[d].is_turn)
          device.addresses[device.dims[d].argument] = static_cast<mcc_cu_pointer>(first + turn);
      const mcc_status status =
          start(session, body[i], stream, turn > 0 && i == 0 ? may_follow : body[i].is_early, error);
      if (status != MCC_OK) return status;
    }
  }
  return MCC_OK;
}

namespace {

mcc_status size_copy(const mcc_session& session, DeviceStep* step, mcc_error* error) {
  const Plan& plan = *session.plan;
  const mcc_plan_range args = plan.nodes[step->node].args;
  const mcc_plan_value &from = plan.values[plan.indices[args.begin]],
                       &to = plan.values[plan.indices[args.begin + 1]];
  uint64_t to_bytes = 0;
  if (evaluate_bytes(session, from, &step->bytes) && evaluate_bytes(session, to, &to_bytes) &&
      step->bytes == to_bytes)
    return MCC_OK;
  return fail(error, plan.symbols_count == 0 ? MCC_BAD_MODEL : MCC_RUN_FAILED,
              "a copy between tensors of different size");
}

mcc_status size_grid(const mcc_session& session, const mcc_device_launch& launch, DeviceStep* step,
                     mcc_error* error) {
  constexpr int64_t kMost[3] = {MCC_DEVICE_MOST_BLOCKS_X, MCC_DEVICE_MOST_BLOCKS_YZ,
                                MCC_DEVICE_MOST_BLOCKS_YZ};
  const mcc_plan_range dims = session.plan->nodes[step->node].dims;
  for (uint32_t i = 0; i < 3; ++i) {
    step->grid[i] = launch.grid[i];
    if (!MCC_DEVICE_IS_DIM(launch.grid[i])) continue;
    const int64_t blocks =
        evaluate(session, session.plan->quantities[dims.begin + MCC_DEVICE_DIM_NUMBER(launch.grid[i])]);
    if (blocks < 0 || blocks > kMost[i]) {
      char what[128];
      std::snprintf(what, sizeof what, "with these shapes it has %lld blocks along %c, a GPU takes %lld",
                    static_cast<long long>(blocks), 'x' + static_cast<int>(i),
                    static_cast<long long>(kMost[i]));
      return fail_at(session, step->node, MCC_INVALID_ARGUMENT, what, error);
    }
    step->grid[i] = static_cast<uint32_t>(blocks);
  }
  return MCC_OK;
}

}  // namespace

mcc_status size_step(mcc_session* session, DeviceStep* step, const DeviceStep* before, mcc_error* error) {
  DeviceSession& device = *session->device;
  const DeviceCode& code = session->model->device_code;
  const bool is_copy = step->function == nullptr && step->call == nullptr;
  const mcc_status status = is_copy ? size_copy(*session, step, error)
                                    : size_grid(*session, code.launches[step->launch], step, error);
  if (status != MCC_OK) return status;
  step->is_early = device.on->has_early_launch && step->function != nullptr &&
                   code.launches[step->launch].waits_itself != 0 && before != nullptr &&
                   before->function != nullptr && !is_empty(*before) && before->turns > 0;
  for (uint64_t i = step->dims; i < step->dims + step->dim_count; ++i) {
    if (!device.dims[i].is_turn)
      device.addresses[device.dims[i].argument] =
          static_cast<mcc_cu_pointer>(evaluate(*session, device.dims[i].quantity));
  }
  step->turns = step->is_in_loop ? (step - 1)->turns : 1;
  if (step->loop_steps == 0) return MCC_OK;
  const uint32_t turns = code.launches[step->launch].loop_turns;
  const mcc_plan_range dims = session->plan->nodes[step->node].dims;
  step->turns = MCC_DEVICE_IS_DIM(turns)
                    ? evaluate(*session, session->plan->quantities[dims.begin + MCC_DEVICE_DIM_NUMBER(turns)])
                    : turns;
  return MCC_OK;
}

namespace {

// How many of each list the session has.
struct StepCounts {
  uint64_t steps = 0, arguments = 0, dims = 0, maps = 0, products = 0;
};

// A dimension, or the iteration of a loop.
bool is_of_run(uint32_t argument) { return MCC_DEVICE_IS_DIM(argument) || argument == MCC_DEVICE_TURN; }

StepCounts count_steps(const mcc_session& session) {
  const Plan& plan = *session.plan;
  const DeviceCode& code = session.model->device_code;
  StepCounts counts;
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    if (node.kind == MCC_NODE_copy) {
      ++counts.steps;
      counts.arguments += 2;
    }
    if (node.kind != MCC_NODE_device) continue;
    const mcc_plan_range launches = session.device->on->launches[node.target];
    counts.steps += launches.count;
    for (uint32_t l = launches.begin; l < launches.begin + launches.count; ++l) {
      const mcc_plan_range numbers = code.launches[l].arguments;
      counts.arguments += numbers.count;
      for (uint32_t a = 0; a < numbers.count; ++a)
        counts.dims += is_of_run(code.arguments[numbers.begin + a]) ? 1 : 0;
      counts.maps += code.launches[l].maps.count;
      counts.products += code.launches[l].products.count;
    }
  }
  return counts;
}

}  // namespace

mcc_status set_up_steps(mcc_session* session, mcc_error* error) {
  DeviceSession& device = *session->device;
  const Plan& plan = *session->plan;
  const DeviceCode& code = session->model->device_code;
  const StepCounts counts = count_steps(*session);
  if (!device.steps.allocate(counts.steps) || !device.values.allocate(counts.arguments) ||
      !device.addresses.allocate(counts.arguments) || !device.maps.allocate(counts.maps) ||
      !device.parameters.allocate(counts.arguments + counts.maps) ||
      !device.products.allocate(counts.products) || !device.dims.allocate(counts.dims) ||
      !device.first_steps.allocate(plan.nodes_count + 1)) {
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
  }
  StepCounts next;
  uint64_t parameter = 0;
  auto add_step = [&](uint64_t node, uint32_t launch, mcc_cu_function function) -> DeviceStep& {
    DeviceStep& step = device.steps[next.steps++];
    step.node = static_cast<uint32_t>(node);
    step.launch = launch;
    step.function = function;
    step.arguments = next.arguments;
    step.parameters = parameter;
    step.dims = next.dims;
    step.maps = next.maps;
    return step;
  };
  auto add_argument = [&](DeviceStep& step, const mcc_plan_node& node, uint32_t number) {
    const bool is_number = MCC_DEVICE_IS_NUMBER(number), is_turn = number == MCC_DEVICE_TURN;
    device.values[next.arguments] =
        is_of_run(number) || is_number ? MCC_PLAN_NONE : plan.indices[node.args.begin + number];
    if (is_number) device.addresses[next.arguments] = MCC_DEVICE_NUMBER_OF(number);
    if (is_of_run(number)) {
      DeviceDim& dim = device.dims[next.dims++];
      dim.argument = next.arguments;
      dim.is_turn = is_turn;
      if (!is_turn) dim.quantity = plan.quantities[node.dims.begin + MCC_DEVICE_DIM_NUMBER(number)];
      ++step.dim_count;
    }
    device.parameters[parameter++] = &device.addresses[next.arguments++];
    ++step.argument_count;
  };
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    device.first_steps[n] = next.steps;
    if (node.kind == MCC_NODE_copy) {
      DeviceStep& step = add_step(n, 0, nullptr);
      add_argument(step, node, 0);
      add_argument(step, node, 1);
    }
    if (node.kind != MCC_NODE_device) continue;
    const mcc_plan_range launches = device.on->launches[node.target];
    uint32_t loop_end = launches.begin;
    for (uint32_t l = launches.begin; l < launches.begin + launches.count; ++l) {
      const mcc_plan_range numbers = code.launches[l].arguments;
      DeviceStep& step = add_step(n, l, device.on->functions[l]);
      step.is_in_loop = l < loop_end;
      step.loop_steps = code.launches[l].loop_launches;
      if (step.loop_steps != 0) loop_end = l + step.loop_steps;
      if (code.launches[l].products.count != 0) {
        mcc_error why = {};
        step.call = &code.products[code.launches[l].products.begin];
        step.product = next.products++;
        const mcc_status status = open_product(*device.on->lt, device.on->lt_handle, *step.call,
                                               &device.products[step.product], &why);
        if (status != MCC_OK) return fail_at(*session, n, status, why.message, error);
      }
      for (uint32_t a = 0; a < numbers.count; ++a)
        add_argument(step, node, code.arguments[numbers.begin + a]);
      const mcc_plan_range matrices = code.launches[l].maps;
      step.map_count = matrices.count;
      for (uint32_t m = 0; m < matrices.count; ++m) {
        const mcc_device_map& of = code.maps[matrices.begin + m];
        device.maps[next.maps].of = &of;
        device.maps[next.maps].value = plan.indices[node.args.begin + of.argument];
        device.parameters[parameter++] = device.maps[next.maps++].map();
      }
    }
  }
  device.first_steps[plan.nodes_count] = next.steps;
  return MCC_OK;
}

}  // namespace mcc::runtime
