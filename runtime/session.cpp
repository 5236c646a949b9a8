#include "runtime/session.h"

#include "runtime/device_session.h"

using namespace mcc::runtime;

namespace {

mcc_status out_of_memory(mcc_error* error) { return fail(error, MCC_OUT_OF_MEMORY, "out of memory"); }

// Creation. --------------------------------------------------------------------------------------

mcc_status set_up_threads(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  if (options.executor != nullptr) {
    if (options.executor->parallel_for == nullptr || options.executor->num_threads < 1 ||
        options.executor->num_threads > MCC_MAX_THREADS) {
      return fail(error, MCC_INVALID_ARGUMENT, "the executor needs parallel_for and 1 to %d threads",
                  MCC_MAX_THREADS);
    }
    session->executor = options.executor;
    return MCC_OK;
  }
  if (options.threads < 0 || options.threads > MCC_MAX_THREADS) {
    return fail(error, MCC_INVALID_ARGUMENT, "the number of threads must be between 0 and %d, got %d",
                MCC_MAX_THREADS, options.threads);
  }
  const int32_t threads = options.threads == 0 ? available_cpus() : options.threads;
  if (threads == 1) {
    session->inline_executor = make_inline_executor();
    session->executor = &session->inline_executor;
    return MCC_OK;
  }
  session->has_pool = true;
  session->executor = session->pool.executor();
  return session->pool.start(threads, error);
}

mcc_status set_up_memory(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  const mcc_plan_header& header = *session->plan->header;
  for (uint64_t i = 0; i < session->plan->code_count; ++i)
    session->may_share_memory |= session->plan->code[i].op == MCC_SHAPE_same;
  const auto threads = static_cast<uint64_t>(session->executor->num_threads);
  if (!session->scratch.reserve(header.scratch_per_thread * threads) ||
      !session->heap.allocate(header.heap_count) || !session->slots.allocate(header.slot_count)) {
    return out_of_memory(error);
  }
  const uint64_t needed = is_static(header.arena_size) ? static_cast<uint64_t>(header.arena_size) : 0;
  if (options.arena != nullptr) {
    if (reinterpret_cast<uintptr_t>(options.arena) % MCC_BUFFER_ALIGNMENT != 0) {
      return fail(error, MCC_INVALID_ARGUMENT, "the arena must be aligned to %u bytes", MCC_BUFFER_ALIGNMENT);
    }
    if (options.arena_size < needed) {
      return fail(error, MCC_INVALID_ARGUMENT, "the arena needs %llu bytes, got %llu",
                  static_cast<unsigned long long>(needed),
                  static_cast<unsigned long long>(options.arena_size));
    }
    session->is_callers_arena = true;
    session->arena = static_cast<uint8_t*>(options.arena);
    session->arena_capacity = options.arena_size;
  } else {
    if (!session->arena_block.reserve(needed)) return out_of_memory(error);
    session->arena = session->arena_block.data();
    session->arena_capacity = session->arena_block.capacity();
  }
  session->arena_size = needed;
  return MCC_OK;
}

mcc_status set_up_interface(mcc_session* session, mcc_error* error) {
  const Plan& plan = *session->plan;
  if (!session->inputs.allocate(plan.inputs().count) || !session->outputs.allocate(plan.outputs().count)) {
    return out_of_memory(error);
  }
  for (uint32_t i = 0; i < plan.outputs().count; ++i) {
    const mcc_plan_value& value = plan.output(i);
    OutputSlot& slot = session->outputs[i];
    slot.is_direct = value.storage == MCC_STORAGE_output && value.index == i;
    slot.is_static = has_static_dims(plan, value);
    if (!slot.is_static) continue;
    for (uint32_t d = 0; d < value.rank; ++d)
      slot.dims[d] = plan.dims_of(value)[d];
    tensor_bytes(value.dtype, slot.dims, value.rank, &slot.bytes);
  }
  return MCC_OK;
}

// When the address of an argument is known.
enum class Known { at_creation, with_its_input, with_its_output, at_run };

Known classify(const Plan& plan, const mcc_plan_value& value) {
  if (!is_static(value.offset) || !has_static_dims(plan, value)) return Known::at_run;
  switch (value.storage) {
    case MCC_STORAGE_weights:
    case MCC_STORAGE_scratch:
      return Known::at_creation;
    case MCC_STORAGE_arena:
      return is_static(plan.header->arena_size) ? Known::at_creation : Known::at_run;
    case MCC_STORAGE_input:
      return has_static_dims(plan, plan.input(value.index)) ? Known::with_its_input : Known::at_run;
    case MCC_STORAGE_output:
      return has_static_dims(plan, plan.output(value.index)) ? Known::with_its_output : Known::at_run;
  }
  return Known::at_run;
}

mcc_status allocate_steps(mcc_session* session, mcc_error* error) {
  const Plan& plan = *session->plan;
  uint64_t args = 0, dims = 0, host_args = 0, patches = 0;
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    args += node.args.count;
    dims += node.dims.count;
    if (node.kind == MCC_NODE_host) host_args += node.args.count;
    for (uint32_t i = 0; i < node.args.count; ++i) {
      const uint32_t index = plan.indices[node.args.begin + i];
      if (index == MCC_PLAN_NONE) continue;
      const Known known = classify(plan, plan.values[index]);
      patches += known == Known::with_its_input || known == Known::with_its_output ? 1 : 0;
    }
  }
  const bool is_allocated =
      session->steps.allocate(plan.nodes_count) && session->args.allocate(args) &&
      session->dims.allocate(dims) && session->patches.allocate(patches) &&
      session->host_arguments.allocate(plan.nodes_count) && session->host_tensors.allocate(host_args) &&
      session->host_dims.allocate(host_args * MCC_MAX_RANK) && session->times.allocate(plan.nodes_count);
  return is_allocated ? MCC_OK : out_of_memory(error);
}

// Fills in the arguments and dimensions that are known now, and marks the steps that have others.
void fill_steps(mcc_session* session) {
  const Plan& plan = *session->plan;
  uint64_t args = 0, dims = 0, host_args = 0;
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    Step& step = session->steps[n];
    step.kind = node.kind;
    step.kernel = node.kind == MCC_NODE_kernel ? session->model->image->kernels[node.target] : nullptr;
    step.args = session->args.data() + args;
    step.dims = session->dims.data() + dims;
    args += node.args.count;
    dims += node.dims.count;
    // Host functions, copies and operations on text look up their tensors themselves.
    const bool uses_lists =
        node.kind != MCC_NODE_host && node.kind != MCC_NODE_copy && node.kind != MCC_NODE_text;
    for (uint32_t i = 0; i < node.args.count; ++i) {
      const uint32_t index = plan.indices[node.args.begin + i];
      if (index == MCC_PLAN_NONE) continue;
      const Known known = classify(plan, plan.values[index]);
      if (known == Known::at_creation) resolve(*session, plan.values[index], &step.args[i], nullptr);
      step.is_dynamic |= uses_lists && known == Known::at_run;
    }
    for (uint32_t i = 0; i < node.dims.count; ++i) {
      const mcc_quantity dim = plan.quantities[node.dims.begin + i];
      step.dims[i] = is_static(dim) ? dim : 0;
      step.is_dynamic |= uses_lists && !is_static(dim);
    }
    if (node.kind == MCC_NODE_host) {
      session->host_arguments[n] = {session->host_tensors.data() + host_args,
                                    session->host_dims.data() + host_args * MCC_MAX_RANK};
      host_args += node.args.count;
    }
  }
}

// Lists the arguments that follow input or output `index`; returns the next free patch.
uint64_t fill_patches(mcc_session* session, Known wanted, uint32_t index, uint64_t next) {
  const Plan& plan = *session->plan;
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    for (uint32_t i = 0; i < node.args.count; ++i) {
      const uint32_t number = plan.indices[node.args.begin + i];
      if (number == MCC_PLAN_NONE) continue;
      const mcc_plan_value& value = plan.values[number];
      if (value.index != index || classify(plan, value) != wanted) continue;
      session->patches[next++] = {&session->steps[n].args[i], value.offset};
    }
  }
  return next;
}

mcc_status set_up_steps(mcc_session* session, mcc_error* error) {
  const mcc_status status = allocate_steps(session, error);
  if (status != MCC_OK) return status;
  fill_steps(session);
  uint64_t next = 0;
  for (uint32_t i = 0; i < session->inputs.size(); ++i) {
    session->inputs[i].patches_begin = next;
    session->inputs[i].patches_end = next = fill_patches(session, Known::with_its_input, i, next);
  }
  for (uint32_t i = 0; i < session->outputs.size(); ++i) {
    session->outputs[i].patches_begin = next;
    session->outputs[i].patches_end = next = fill_patches(session, Known::with_its_output, i, next);
  }
  return MCC_OK;
}

mcc_status set_up_on_device(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  session->inline_executor = make_inline_executor();
  session->executor = &session->inline_executor;
  const mcc_status status = set_up_interface(session, error);
  if (status != MCC_OK) return status;
  if (!session->times.allocate(session->plan->nodes_count)) return out_of_memory(error);
  const mcc_status drawn = set_up_draws(session, options, error);
  if (drawn != MCC_OK) return drawn;
  return set_up_device(session, options, error);
}

mcc_status set_up(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  session->is_profiling = options.profile != 0;
  if (session->model->device_code.header != nullptr) return set_up_on_device(session, options, error);
  mcc_status status = set_up_threads(session, options, error);
  if (status != MCC_OK) return status;
  status = set_up_memory(session, options, error);
  if (status != MCC_OK) return status;
  status = set_up_interface(session, error);
  if (status != MCC_OK) return status;
  status = set_up_texts(session, error);
  if (status != MCC_OK) return status;
  status = set_up_draws(session, options, error);
  if (status != MCC_OK) return status;
  return set_up_steps(session, error);
}

}  // namespace

extern "C" {

mcc_status mcc_session_create(mcc_model* model, const mcc_session_options* options, mcc_session** out,
                              mcc_error* error) {
  if (model == nullptr || out == nullptr) {
    return fail(error, MCC_INVALID_ARGUMENT, "mcc_session_create: null argument");
  }
  mcc_session_options all = {};
  if (options != nullptr) {
    if (options->struct_size < sizeof options->struct_size) {
      return fail(error, MCC_INVALID_ARGUMENT, "mcc_session_options: struct_size is not set");
    }
    std::memcpy(&all, options, options->struct_size < sizeof all ? options->struct_size : sizeof all);
  }
  // The pool is aligned to cache lines.
  void* memory = nullptr;
  if (posix_memalign(&memory, alignof(mcc_session), sizeof(mcc_session)) != 0) return out_of_memory(error);
  auto* session = new (memory) mcc_session;
  session->model = model;
  session->plan = &model->plan;
  model->owners.fetch_add(1, std::memory_order_relaxed);
  const mcc_status status = set_up(session, all, error);
  if (status != MCC_OK) {
    mcc_session_destroy(session);
    return status;
  }
  *out = session;
  return succeed(error);
}

void mcc_session_destroy(mcc_session* session) {
  if (session == nullptr) return;
  mcc_model* model = session->model;
  destroy_device(session);
  session->~mcc_session();
  std::free(session);
  mcc_model_close(model);
}

int32_t mcc_session_threads(const mcc_session* session) { return session->executor->num_threads; }

// Profile. ---------------------------------------------------------------------------------------

void mcc_session_set_profiling(mcc_session* session, int on) { session->is_profiling = on != 0; }

void mcc_session_reset_profile(mcc_session* session) {
  for (NodeTimes& times : session->times)
    times = {};
}

mcc_status mcc_session_node_profile(const mcc_session* session, size_t node, mcc_node_profile* profile) {
  if (profile == nullptr || node >= session->plan->nodes_count) return MCC_INVALID_ARGUMENT;
  const mcc_plan_node& record = session->plan->nodes[node];
  const NodeTimes& times = session->times[node];
  mcc_node_profile all = {};
  all.struct_size = profile->struct_size;
  all.executions = times.executions;
  all.total_ns = times.total_ns;
  all.min_ns = times.min_ns;
  all.flops = evaluate(*session, record.flops);
  all.bytes = evaluate(*session, record.bytes);
  std::memcpy(profile, &all, profile->struct_size < sizeof all ? profile->struct_size : sizeof all);
  return MCC_OK;
}

}  // extern "C"
