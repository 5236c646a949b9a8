#include <time.h>

#include "runtime/session.h"

namespace mcc::runtime {

uint64_t clock_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

mcc_status fail_at(const mcc_session& session, uint64_t node, mcc_status status, const char* what,
                   mcc_error* error) {
  const mcc_plan_node& record = session.plan->nodes[node];
  fail(error, status, "node \"%.200s\"", session.plan->text(record.name));
  for (uint32_t i = 0; i < record.sources.count && i < 4; ++i) {
    append_message(error, "%s%.100s", i == 0 ? " (" : ", ",
                   session.plan->text(session.plan->names[record.sources.begin + i]));
  }
  append_message(error, "%s: %s",
                 record.sources.count == 0  ? ""
                 : record.sources.count > 4 ? ", ...)"
                                            : ")",
                 what);
  return status;
}

namespace {

mcc_status run_graph(mcc_session* session, uint32_t graph, mcc_error* error);

mcc_status resolve_step(mcc_session* session, uint64_t node, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_node& record = plan.nodes[node];
  Step& step = session->steps[node];
  for (uint32_t i = 0; i < record.args.count; ++i) {
    const uint32_t value = plan.indices[record.args.begin + i];
    if (value == MCC_PLAN_NONE) continue;
    if (!resolve(*session, plan.values[value], &step.args[i], nullptr)) {
      return fail_at(*session, node, MCC_RUN_FAILED, why_outside(*session, plan.values[value]), error);
    }
  }
  for (uint32_t i = 0; i < record.dims.count; ++i) {
    step.dims[i] = evaluate(*session, plan.quantities[record.dims.begin + i]);
  }
  step.generation = session->generation;
  return MCC_OK;
}

// Host functions. --------------------------------------------------------------------------------

struct HostContext {
  mcc_session* session;
  const mcc_plan_node* node;
};

void* resize_heap(mcc_host_call* call, int32_t arg, uint64_t bytes) {
  const auto* context = static_cast<const HostContext*>(call->runtime);
  if (arg < call->input_count || arg >= call->input_count + call->output_count) return nullptr;
  const Plan& plan = *context->session->plan;
  const uint32_t index = plan.indices[context->node->args.begin + static_cast<uint32_t>(arg)];
  const mcc_plan_value& value = plan.values[index];
  if (value.storage != MCC_STORAGE_heap || value.offset != 0) return nullptr;
  Block& block = context->session->heap[value.index];
  if (!block.reserve(bytes == 0 ? 1 : bytes)) return nullptr;
  call->args[arg].data = block.data();
  call->args[arg].capacity = block.capacity();
  return block.data();
}

// The memory of an output before the function runs: none when its size is not known yet.
void place_host_output(const mcc_session& session, const mcc_plan_value& value, mcc_host_tensor* tensor) {
  if (value.storage == MCC_STORAGE_heap && value.offset == 0) {
    tensor->data = session.heap[value.index].data();
    tensor->capacity = session.heap[value.index].capacity();
  } else if (!resolve(session, value, &tensor->data, &tensor->capacity)) {
    tensor->data = nullptr;
    tensor->capacity = 0;
  }
}

mcc_status set_up_host_call(mcc_session* session, uint64_t node, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_node& record = plan.nodes[node];
  const HostArguments& arguments = session->host_arguments[node];
  for (uint32_t i = 0; i < record.args.count; ++i) {
    const uint32_t index = plan.indices[record.args.begin + i];
    mcc_host_tensor& tensor = arguments.tensors[i];
    tensor = {};
    if (index == MCC_PLAN_NONE) continue;
    const mcc_plan_value& value = plan.values[index];
    tensor.dtype = value.dtype;
    tensor.rank = value.rank;
    tensor.dims = arguments.dims + uint64_t{i} * MCC_MAX_RANK;
    for (uint32_t d = 0; d < value.rank; ++d)
      tensor.dims[d] = evaluate(*session, plan.dims_of(value)[d]);
    if (i >= record.args.count - record.output_count) {
      place_host_output(*session, value, &tensor);
    } else if (!resolve(*session, value, &tensor.data, &tensor.capacity)) {
      return fail_at(*session, node, MCC_RUN_FAILED, why_outside(*session, value), error);
    }
  }
  return MCC_OK;
}

// Takes over the shapes that the function has set.
mcc_status accept_host_outputs(mcc_session* session, uint64_t node, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_node& record = plan.nodes[node];
  for (uint32_t i = record.args.count - record.output_count; i < record.args.count; ++i) {
    const mcc_plan_value& value = plan.values[plan.indices[record.args.begin + i]];
    const mcc_host_tensor& tensor = session->host_arguments[node].tensors[i];
    for (uint32_t d = 0; d < value.rank; ++d) {
      const mcc_quantity dim = plan.dims_of(value)[d];
      if (is_static(dim) && tensor.dims[d] != dim) {
        return fail_at(*session, node, MCC_RUN_FAILED, "it returned another shape than planned", error);
      }
      const bool is_computed = !is_static(dim) && MCC_SLOT_OF_QUANTITY(dim) >= plan.symbols_count;
      if (is_computed) session->slots[MCC_SLOT_OF_QUANTITY(dim)] = tensor.dims[d];
    }
    void* data = nullptr;
    if (!resolve(*session, value, &data, nullptr)) {
      return fail_at(*session, node, MCC_RUN_FAILED, "its result does not fit into its memory", error);
    }
  }
  ++session->generation;
  return MCC_OK;
}

mcc_status run_host(mcc_session* session, uint64_t node, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_node& record = plan.nodes[node];
  mcc_status status = set_up_host_call(session, node, error);
  if (status != MCC_OK) return status;
  char message[256] = "";
  HostContext context = {session, &record};
  mcc_host_call call = {};
  call.struct_size = sizeof call;
  call.input_count = static_cast<int32_t>(record.args.count - record.output_count);
  call.output_count = static_cast<int32_t>(record.output_count);
  call.args = session->host_arguments[node].tensors;
  call.attributes = plan.bytes + record.attributes.begin;
  call.attributes_size = record.attributes.count;
  call.executor = session->executor;
  call.resize = resize_heap;
  call.message = message;
  call.message_size = sizeof message;
  call.runtime = &context;
  if (session->model->image->host_functions[record.target](&call) != 0) {
    message[sizeof message - 1] = 0;
    return fail_at(*session, node, MCC_RUN_FAILED, message[0] == 0 ? "it failed" : message, error);
  }
  return accept_host_outputs(session, node, error);
}

// The other kinds of node. -----------------------------------------------------------------------

mcc_status run_kernel(mcc_session* session, uint64_t node, mcc_error* error) {
  const Step& step = session->steps[node];
  const int32_t code = step.kernel(step.args, step.dims, session->executor);
  if (code == 0) return MCC_OK;
  fail_at(*session, node, MCC_RUN_FAILED, "it failed with code", error);
  append_message(error, " %d", code);
  return MCC_RUN_FAILED;
}

mcc_status run_copy(mcc_session* session, uint64_t node, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_range args = plan.nodes[node].args;
  void* from = nullptr;
  void* to = nullptr;
  uint64_t from_bytes = 0;
  uint64_t to_bytes = 0;
  if (!resolve(*session, plan.values[plan.indices[args.begin]], &from, &from_bytes) ||
      !resolve(*session, plan.values[plan.indices[args.begin + 1]], &to, &to_bytes) ||
      from_bytes != to_bytes) {
    return fail_at(*session, node, MCC_RUN_FAILED, "a copy between tensors of different size", error);
  }
  if (from_bytes != 0) std::memmove(to, from, from_bytes);
  return MCC_OK;
}

void run_draw(mcc_session* session, uint64_t node) {
  const DrawnWords words = draw(session, node);
  std::memcpy(session->steps[node].args[0], &words, sizeof words);
}

bool is_true(void* condition) { return *static_cast<const uint8_t*>(condition) != 0; }

mcc_status run_if(mcc_session* session, uint64_t node, mcc_error* error) {
  const mcc_plan_node& record = session->plan->nodes[node];
  const uint32_t graph = is_true(session->steps[node].args[0]) ? record.target : record.other;
  return graph == MCC_PLAN_NONE ? MCC_OK : run_graph(session, graph, error);
}

mcc_status run_loop(mcc_session* session, uint64_t node, mcc_error* error) {
  const mcc_plan_node& record = session->plan->nodes[node];
  const int64_t trips = evaluate(*session, session->plan->quantities[record.dims.begin]);
  void* condition = record.args.count == 0 ? nullptr : session->steps[node].args[0];
  for (int64_t i = 0; i < trips && (condition == nullptr || is_true(condition)); ++i) {
    if (record.other != MCC_PLAN_NONE) {
      session->slots[record.other] = i;
      ++session->generation;
    }
    const mcc_status status = run_graph(session, record.target, error);
    if (status != MCC_OK) return status;
  }
  return MCC_OK;
}

mcc_status run_node(mcc_session* session, uint64_t node, mcc_error* error) {
  const Step& step = session->steps[node];
  if (step.is_dynamic && step.generation != session->generation) {
    const mcc_status status = resolve_step(session, node, error);
    if (status != MCC_OK) return status;
  }
  switch (step.kind) {
    case MCC_NODE_kernel:
      return run_kernel(session, node, error);
    case MCC_NODE_host:
      return run_host(session, node, error);
    case MCC_NODE_copy:
      return run_copy(session, node, error);
    case MCC_NODE_shape:
      return run_code(session, session->plan->nodes[node].code, error);
    case MCC_NODE_if:
      return run_if(session, node, error);
    case MCC_NODE_loop:
      return run_loop(session, node, error);
    case MCC_NODE_text:
      return run_text(session, node, error);
    case MCC_NODE_draw:
      run_draw(session, node);
      return MCC_OK;
    case MCC_NODE_device:  // only in sessions that have no steps
      break;
  }
  return MCC_OK;
}

mcc_status run_timed(mcc_session* session, uint64_t node, mcc_error* error) {
  const uint64_t start = clock_ns();
  const mcc_status status = run_node(session, node, error);
  const uint64_t elapsed = clock_ns() - start;
  NodeTimes& times = session->times[node];
  if (times.executions == 0 || elapsed < times.min_ns) times.min_ns = elapsed;
  times.total_ns += elapsed;
  ++times.executions;
  return status;
}

mcc_status run_nodes(mcc_session* session, mcc_plan_range nodes, mcc_error* error) {
  const uint64_t end = uint64_t{nodes.begin} + nodes.count;
  for (uint64_t node = nodes.begin; node < end; ++node) {
    const Step& step = session->steps[node];
    mcc_status status = MCC_OK;
    if (session->is_profiling) {
      status = run_timed(session, node, error);
    } else if (step.kind == MCC_NODE_kernel && !step.is_dynamic) {
      status = run_kernel(session, node, error);
    } else {
      status = run_node(session, node, error);
    }
    if (status != MCC_OK) return status;
  }
  return MCC_OK;
}

mcc_status run_graph(mcc_session* session, uint32_t graph, mcc_error* error) {
  const mcc_plan_graph& record = session->plan->graphs[graph];
  const mcc_status status = run_code(session, record.code, error);
  return status != MCC_OK ? status : run_nodes(session, record.nodes, error);
}

}  // namespace

mcc_status run_model(mcc_session* session, mcc_error* error) {
  if (session->has_pool) session->pool.begin_run();
  const mcc_status status = run_nodes(session, session->plan->graphs[0].nodes, error);
  if (session->has_pool) session->pool.end_run();
  return status;
}

}  // namespace mcc::runtime
