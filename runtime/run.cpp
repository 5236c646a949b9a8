// Inputs, outputs and runs of a session.
#include <cstdio>

#include "runtime/device_session.h"
#include "runtime/session.h"

using namespace mcc::runtime;

namespace {

using ull = unsigned long long;
constexpr size_t shape_text_size = 256;

// "Nx3x224x224"
void print_declared_shape(char* out, size_t size, const Plan& plan, const mcc_plan_value& value) {
  if (value.rank == 0) std::snprintf(out, size, "scalar");
  size_t used = 0;
  for (uint32_t i = 0; i < value.rank && used < size; ++i) {
    const mcc_quantity dim = plan.dims_of(value)[i];
    const char* separator = i == 0 ? "" : "x";
    int wrote = 0;
    if (is_static(dim)) {
      wrote = std::snprintf(out + used, size - used, "%s%lld", separator, static_cast<long long>(dim));
    } else {
      const uint64_t slot = MCC_SLOT_OF_QUANTITY(dim);
      const char* name = slot < plan.symbols_count ? plan.text(plan.symbols[slot].name) : "?";
      wrote = std::snprintf(out + used, size - used, "%s%.32s", separator, name);
    }
    if (wrote < 0) return;
    used += static_cast<size_t>(wrote);
  }
}

// `what` is "input" or "output".
struct Subject {
  const Plan& plan;
  const mcc_plan_value& value;
  const char* what;
  const char* name() const { return plan.text(value.name); }
};

mcc_status wrong_rank(const Subject& subject, const mcc_tensor& tensor, mcc_error* error) {
  char expected[shape_text_size];
  print_declared_shape(expected, sizeof expected, subject.plan, subject.value);
  return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": expected rank %u (%s), got rank %d%s",
              subject.what, subject.name(), subject.value.rank, expected, tensor.rank,
              tensor.dims == nullptr ? " without dims" : "");
}

mcc_status wrong_shape(const Subject& subject, const mcc_tensor& tensor, mcc_error* error) {
  char expected[shape_text_size], got[shape_text_size];
  print_declared_shape(expected, sizeof expected, subject.plan, subject.value);
  print_shape(got, sizeof got, tensor.dims, subject.value.rank);
  return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": expected shape %s, got %s", subject.what,
              subject.name(), expected, got);
}

mcc_status check_shape(const Subject& subject, const mcc_tensor& tensor, mcc_error* error) {
  const Plan& plan = subject.plan;
  const mcc_plan_value& value = subject.value;
  if (tensor.rank != value.rank || (tensor.dims == nullptr && tensor.rank != 0)) {
    return wrong_rank(subject, tensor, error);
  }
  for (uint32_t d = 0; d < value.rank; ++d) {
    const mcc_quantity dim = plan.dims_of(value)[d];
    const int64_t size = tensor.dims[d];
    if (is_static(dim) ? size != dim : size < 0) return wrong_shape(subject, tensor, error);
    if (is_static(dim) || MCC_SLOT_OF_QUANTITY(dim) >= plan.symbols_count) continue;
    const mcc_plan_symbol& symbol = plan.symbols[MCC_SLOT_OF_QUANTITY(dim)];
    if (size < symbol.min || size > symbol.max) {
      return fail(error, MCC_INVALID_ARGUMENT,
                  "%s \"%.200s\": dimension %u (\"%.64s\") must be between %lld and %lld, got %lld",
                  subject.what, subject.name(), d, plan.text(symbol.name), static_cast<long long>(symbol.min),
                  static_cast<long long>(symbol.max), static_cast<long long>(size));
    }
  }
  return MCC_OK;
}

mcc_status check_type(const Subject& subject, const mcc_tensor& tensor, mcc_error* error) {
  if (static_cast<uint32_t>(tensor.dtype) == subject.value.dtype) return MCC_OK;
  return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": expected element type %s, got %s", subject.what,
              subject.name(), dtype_name(subject.value.dtype),
              dtype_name(static_cast<uint32_t>(tensor.dtype)));
}

mcc_status check_memory(const Subject& subject, const mcc_tensor& tensor, uint64_t bytes, mcc_error* error) {
  if (tensor.data == nullptr && bytes != 0) {
    return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": data is null", subject.what, subject.name());
  }
  const uint32_t element = dtype_bytes(subject.value.dtype);
  const uint32_t alignment = element < 8 ? element : 8;
  if (reinterpret_cast<uintptr_t>(tensor.data) % alignment != 0) {
    return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": data is not aligned to its elements (%u bytes)",
                subject.what, subject.name(), alignment);
  }
  if (tensor.size_bytes != 0 && tensor.size_bytes < bytes) {
    return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": expected at least %llu bytes, got %llu",
                subject.what, subject.name(), static_cast<ull>(bytes), static_cast<ull>(tensor.size_bytes));
  }
  return MCC_OK;
}

mcc_status too_large(const Subject& subject, mcc_error* error) {
  return fail(error, MCC_INVALID_ARGUMENT, "%s \"%.200s\": the shape is too large", subject.what,
              subject.name());
}

void apply_patches(mcc_session* session, uint64_t begin, uint64_t end, uint8_t* data) {
  for (uint64_t i = begin; i < end; ++i) {
    const Patch& patch = session->patches[i];
    *patch.argument = data == nullptr ? nullptr : data + patch.offset;
  }
  ++session->generation;
}

mcc_status null_session(mcc_error* error) { return fail(error, MCC_INVALID_ARGUMENT, "session is null"); }

mcc_status no_output(const mcc_session& session, size_t index, mcc_error* error) {
  return fail(error, MCC_INVALID_ARGUMENT, "there is no output %llu: the model has %llu",
              static_cast<ull>(index), static_cast<ull>(session.outputs.size()));
}

// Before a run. ----------------------------------------------------------------------------------

mcc_status check_all_inputs_set(const mcc_session& session, mcc_error* error) {
  for (uint64_t i = 0; i < session.inputs.size(); ++i) {
    if (session.inputs[i].is_set) continue;
    return fail(error, MCC_INVALID_ARGUMENT, "input \"%.200s\" is not set",
                session.plan->text(session.plan->input(i).name));
  }
  return MCC_OK;
}

// Symbols take the sizes of the inputs, which must agree.
mcc_status bind_symbols(mcc_session* session, mcc_error* error) {
  const Plan& plan = *session->plan;
  for (uint64_t s = 0; s < plan.symbols_count; ++s)
    session->slots[s] = -1;
  for (uint64_t i = 0; i < session->inputs.size(); ++i) {
    const mcc_plan_value& value = plan.input(i);
    for (uint32_t d = 0; d < value.rank; ++d) {
      const mcc_quantity dim = plan.dims_of(value)[d];
      if (is_static(dim)) continue;
      int64_t& symbol = session->slots[MCC_SLOT_OF_QUANTITY(dim)];
      const int64_t size = session->inputs[i].dims[d];
      if (symbol == -1) symbol = size;
      if (symbol == size) continue;
      return fail(error, MCC_INVALID_ARGUMENT,
                  "input \"%.200s\": dimension %u is %lld, but \"%.64s\" is %lld in an input before it",
                  plan.text(value.name), d, static_cast<long long>(size),
                  plan.text(plan.symbols[MCC_SLOT_OF_QUANTITY(dim)].name), static_cast<long long>(symbol));
    }
  }
  ++session->generation;
  return MCC_OK;
}

mcc_status size_arena(mcc_session* session, mcc_error* error) {
  if (is_static(session->plan->header->arena_size)) return MCC_OK;
  const int64_t size = evaluate(*session, session->plan->header->arena_size);
  if (size < 0)
    return fail(error, MCC_RUN_FAILED,
                "an input is too small: a tensor inside of the model would have a negative size");
  const auto needed = static_cast<uint64_t>(size);
  if (session->is_callers_arena && needed > session->arena_capacity) {
    return fail(error, MCC_INVALID_ARGUMENT, "the arena needs %llu bytes with these shapes, got %llu",
                static_cast<ull>(needed), static_cast<ull>(session->arena_capacity));
  }
  if (!session->is_callers_arena) {
    session->arena_size = 0;
    if (!session->arena_block.reserve(needed)) {
      session->arena = nullptr;
      return fail(error, MCC_OUT_OF_MEMORY, "out of memory: the arena needs %llu bytes",
                  static_cast<ull>(needed));
    }
    session->arena = session->arena_block.data();
    session->arena_capacity = session->arena_block.capacity();
  }
  session->arena_size = needed;
  ++session->generation;
  return MCC_OK;
}

}  // namespace

namespace mcc::runtime {

mcc_status measure_output(mcc_session* session, uint64_t index, mcc_error* error) {
  OutputSlot& slot = session->outputs[index];
  if (slot.is_static) return MCC_OK;
  const mcc_plan_value& value = session->plan->output(index);
  for (uint32_t d = 0; d < value.rank; ++d)
    slot.dims[d] = evaluate(*session, session->plan->dims_of(value)[d]);
  if (tensor_bytes(value.dtype, slot.dims, value.rank, &slot.bytes)) return MCC_OK;
  return too_large({*session->plan, value, "output"}, error);
}

mcc_status check_capacity(mcc_session* session, uint64_t index, mcc_error* error) {
  const OutputSlot& slot = session->outputs[index];
  if (slot.capacity >= slot.bytes) return MCC_OK;
  return fail(error, MCC_INVALID_ARGUMENT, "output \"%.200s\": needs %llu bytes, got memory of %llu bytes",
              session->plan->text(session->plan->output(index).name), static_cast<ull>(slot.bytes),
              static_cast<ull>(slot.capacity));
}

}  // namespace mcc::runtime

namespace {

// An output in the memory of an input is one that the model updates there, as a whole.
mcc_status check_shared_memory(const mcc_session& session, uint64_t index, mcc_error* error) {
  const OutputSlot& slot = session.outputs[index];
  if (!slot.is_callers || slot.bytes == 0) return MCC_OK;
  const Plan& plan = *session.plan;
  const char* name = plan.text(plan.output(index).name);
  for (uint64_t i = 0; i < session.inputs.size(); ++i) {
    const InputSlot& input = session.inputs[i];
    if (input.data != slot.data || input.bytes == 0) continue;
    const char* input_name = plan.text(plan.input(i).name);
    char key[512];
    std::snprintf(key, sizeof key, "output.%s.in_place", name);
    const char* updated = plan.metadata_value(key);
    if (updated == nullptr || std::strcmp(updated, input_name) != 0) {
      return fail(error, MCC_INVALID_ARGUMENT,
                  "output \"%.200s\" is in the memory of input \"%.200s\", which the model does not update "
                  "there: it needs "
                  "memory of its own",
                  name, input_name);
    }
    const uint64_t dims = plan.output(index).rank * sizeof(int64_t);
    if (plan.input(i).rank != plan.output(index).rank || std::memcmp(input.dims, slot.dims, dims) != 0) {
      return fail(error, MCC_INVALID_ARGUMENT,
                  "output \"%.200s\" is in the memory of input \"%.200s\", but has another shape: there is "
                  "no room for "
                  "what is added",
                  name, input_name);
    }
  }
  return MCC_OK;
}

mcc_status use_own_memory(mcc_session* session, uint64_t index, mcc_error* error) {
  OutputSlot& slot = session->outputs[index];
  if (!slot.own.reserve(slot.bytes)) {
    slot.data = nullptr;
    slot.capacity = 0;
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory: an output needs %llu bytes",
                static_cast<ull>(slot.bytes));
  }
  slot.data = slot.own.data();
  slot.capacity = slot.own.capacity();
  return MCC_OK;
}

mcc_status place_outputs(mcc_session* session, mcc_error* error) {
  for (uint64_t i = 0; i < session->outputs.size(); ++i) {
    OutputSlot& slot = session->outputs[i];
    if (!slot.is_direct) continue;
    mcc_status status = measure_output(session, i, error);
    if (status != MCC_OK) return status;
    status = check_shared_memory(*session, i, error);
    if (status == MCC_OK)
      status = slot.is_callers ? check_capacity(session, i, error) : use_own_memory(session, i, error);
    if (status != MCC_OK) return status;
    apply_patches(session, slot.patches_begin, slot.patches_end, slot.data);
  }
  return MCC_OK;
}

// What follows from the shapes of the inputs.
mcc_status compute_sizes(mcc_session* session, mcc_error* error) {
  mcc_status status = check_all_inputs_set(*session, error);
  if (status != MCC_OK) return status;
  status = bind_symbols(session, error);
  if (status != MCC_OK) return status;
  return run_code(session, session->plan->graphs[0].code, error);
}

// Whether the quantity is known once the sizes are computed, or only when nodes have run.
bool follows_from_inputs(const Plan& plan, mcc_quantity quantity) {
  if (is_static(quantity)) return true;
  const uint64_t slot = MCC_SLOT_OF_QUANTITY(quantity);
  if (slot < plan.symbols_count) return true;
  const mcc_plan_range code = plan.graphs[0].code;
  for (uint32_t i = 0; i < code.count; ++i) {
    const mcc_plan_instruction& instruction = plan.code[code.begin + i];
    if (writes_slot(instruction.op) && instruction.slot == slot) return true;
  }
  return false;
}

// The part of it that is the host's; the GPU's memory is the device session's to find.
mcc_status prepare_for_device(mcc_session* session, mcc_error* error) {
  mcc_status status = compute_sizes(session, error);
  for (uint64_t i = 0; i < session->outputs.size() && status == MCC_OK; ++i) {
    if (is_late(*session, i)) continue;
    status = measure_output(session, i, error);
    if (status == MCC_OK) status = check_shared_memory(*session, i, error);
    if (status == MCC_OK && session->outputs[i].is_callers) status = check_capacity(session, i, error);
  }
  return status;
}

mcc_status prepare(mcc_session* session, mcc_error* error) {
  mcc_status status = compute_sizes(session, error);
  if (status != MCC_OK) return status;
  status = size_arena(session, error);
  if (status != MCC_OK) return status;
  status = place_outputs(session, error);
  if (status != MCC_OK) return status;
  session->needs_preparation = false;
  return MCC_OK;
}

// After a run. -----------------------------------------------------------------------------------

// Intermediate tensors are shown where they are; what the caller must not write to (or owns as an
// input) is copied.
bool may_show_in_place(const mcc_plan_value& value) {
  return value.storage == MCC_STORAGE_arena || value.storage == MCC_STORAGE_heap;
}

mcc_status deliver_output(mcc_session* session, uint64_t index, mcc_error* error) {
  OutputSlot& slot = session->outputs[index];
  mcc_status status = measure_output(session, index, error);
  if (status != MCC_OK || slot.is_direct) return status;
  const mcc_plan_value& value = session->plan->output(index);
  void* source = nullptr;
  if (!resolve(*session, value, &source, nullptr)) {
    return fail(error, MCC_RUN_FAILED, "output \"%.200s\" does not fit into its memory",
                session->plan->text(value.name));
  }
  if (!slot.is_callers && may_show_in_place(value)) {
    slot.data = static_cast<uint8_t*>(source);
    slot.capacity = slot.bytes;
    return MCC_OK;
  }
  status = slot.is_callers ? check_capacity(session, index, error) : use_own_memory(session, index, error);
  if (status != MCC_OK) return status;
  if (slot.bytes != 0) std::memcpy(slot.data, source, slot.bytes);
  return MCC_OK;
}

}  // namespace

extern "C" {

mcc_status mcc_session_set_input(mcc_session* session, size_t index, const mcc_tensor* tensor,
                                 mcc_error* error) {
  if (session == nullptr) return null_session(error);
  const Plan& plan = *session->plan;
  if (index >= session->inputs.size()) {
    return fail(error, MCC_INVALID_ARGUMENT, "there is no input %llu: the model has %llu",
                static_cast<ull>(index), static_cast<ull>(session->inputs.size()));
  }
  const Subject subject = {plan, plan.input(index), "input"};
  if (tensor == nullptr)
    return fail(error, MCC_INVALID_ARGUMENT, "input \"%.200s\": tensor is null", subject.name());
  mcc_status status = check_type(subject, *tensor, error);
  if (status != MCC_OK) return status;
  status = check_shape(subject, *tensor, error);
  if (status != MCC_OK) return status;
  uint64_t bytes = 0;
  if (!tensor_bytes(subject.value.dtype, tensor->dims, subject.value.rank, &bytes))
    return too_large(subject, error);
  status = check_memory(subject, *tensor, bytes, error);
  if (status != MCC_OK) return status;

  InputSlot& slot = session->inputs[index];
  const size_t dims_size = subject.value.rank * sizeof(int64_t);
  const bool has_same_shape = dims_size == 0 || std::memcmp(slot.dims, tensor->dims, dims_size) == 0;
  const bool has_moved = session->may_share_memory && slot.data != tensor->data;
  if (!slot.is_set || !has_same_shape || has_moved) session->needs_preparation = true;
  if (dims_size != 0) std::memcpy(slot.dims, tensor->dims, dims_size);
  slot.data = static_cast<uint8_t*>(tensor->data);
  slot.bytes = bytes;
  slot.is_set = true;
  if (session->device != nullptr) {
    status = set_device_input(session, index, error);
    slot.is_set = status == MCC_OK;
    return status == MCC_OK ? succeed(error) : status;
  }
  apply_patches(session, slot.patches_begin, slot.patches_end, slot.data);
  return succeed(error);
}

mcc_status mcc_session_set_inputs(mcc_session* session, const mcc_tensor* tensors, size_t count,
                                  mcc_error* error) {
  if (session == nullptr) return null_session(error);
  const uint64_t expected = session->inputs.size();
  if (count != expected) {
    fail(error, MCC_INVALID_ARGUMENT, "expected %llu input%s", static_cast<ull>(expected),
         expected == 1 ? "" : "s");
    for (uint64_t i = 0; i < expected && i < 8; ++i) {
      append_message(error, "%s\"%.64s\"", i == 0 ? " (" : ", ",
                     session->plan->text(session->plan->input(i).name));
    }
    append_message(error, "%s, got %llu",
                   expected == 0  ? ""
                   : expected > 8 ? ", ...)"
                                  : ")",
                   static_cast<ull>(count));
    return MCC_INVALID_ARGUMENT;
  }
  for (size_t i = 0; i < count; ++i) {
    const mcc_status status =
        mcc_session_set_input(session, i, tensors == nullptr ? nullptr : &tensors[i], error);
    if (status != MCC_OK) return status;
  }
  return succeed(error);
}

mcc_status mcc_session_set_output(mcc_session* session, size_t index, const mcc_tensor* tensor,
                                  mcc_error* error) {
  if (session == nullptr) return null_session(error);
  const Plan& plan = *session->plan;
  if (index >= session->outputs.size()) return no_output(*session, index, error);
  OutputSlot& slot = session->outputs[index];
  if (tensor == nullptr) {
    slot.is_callers = false;
    session->needs_preparation = true;
    session->has_run = false;
    if (session->device == nullptr || !slot.is_static) return succeed(error);
    const mcc_status status = set_device_output(session, index, error);
    return status == MCC_OK ? succeed(error) : status;
  }
  const Subject subject = {plan, plan.output(index), "output"};
  mcc_status status = check_type(subject, *tensor, error);
  if (status != MCC_OK) return status;
  // Memory alone is enough for a shape that is not known yet.
  const bool has_shape = slot.is_static || tensor->dims != nullptr || tensor->rank != 0;
  uint64_t bytes = 0;
  if (has_shape) {
    status = check_shape(subject, *tensor, error);
    if (status != MCC_OK) return status;
    if (!tensor_bytes(subject.value.dtype, tensor->dims, subject.value.rank, &bytes))
      return too_large(subject, error);
  }
  status = check_memory(subject, *tensor, has_shape ? bytes : tensor->size_bytes, error);
  if (status != MCC_OK) return status;

  slot.is_callers = true;
  slot.data = static_cast<uint8_t*>(tensor->data);
  slot.capacity = tensor->size_bytes != 0 ? tensor->size_bytes : bytes;
  session->has_run = false;
  // Whether it is enough depends on the inputs.
  if (!slot.is_static || session->may_share_memory) session->needs_preparation = true;
  if (session->device != nullptr) {
    status = slot.is_static ? set_device_output(session, index, error) : MCC_OK;
    return status == MCC_OK ? succeed(error) : status;
  }
  if (slot.is_direct) apply_patches(session, slot.patches_begin, slot.patches_end, slot.data);
  return succeed(error);
}

mcc_status mcc_session_next_output_shape(mcc_session* session, size_t index, int64_t* dims, int32_t* rank,
                                         mcc_error* error) {
  if (session == nullptr) return null_session(error);
  if (index >= session->outputs.size()) return no_output(*session, index, error);
  if (session->needs_preparation) {
    const mcc_status status = compute_sizes(session, error);
    if (status != MCC_OK) return status;
  }
  const mcc_plan_value& value = session->plan->output(index);
  for (uint32_t d = 0; d < value.rank && dims != nullptr; ++d) {
    const mcc_quantity dim = session->plan->dims_of(value)[d];
    dims[d] = follows_from_inputs(*session->plan, dim) ? evaluate(*session, dim) : -1;
  }
  if (rank != nullptr) *rank = static_cast<int32_t>(value.rank);
  return succeed(error);
}

mcc_status mcc_session_run(mcc_session* session, mcc_error* error) {
  if (session == nullptr) return null_session(error);
  session->has_run = false;
  if (session->device != nullptr) {
    mcc_status status = session->needs_preparation ? prepare_for_device(session, error) : MCC_OK;
    if (status == MCC_OK) status = run_device(session, error);
    session->has_run = status == MCC_OK;
    return status == MCC_OK ? succeed(error) : status;
  }
  if (session->needs_preparation) {
    const mcc_status status = prepare(session, error);
    if (status != MCC_OK) return status;
  }
  mcc_status status = run_model(session, error);
  if (status != MCC_OK) return status;
  for (uint64_t i = 0; i < session->outputs.size(); ++i) {
    status = deliver_output(session, i, error);
    if (status != MCC_OK) return status;
  }
  session->has_run = true;
  return succeed(error);
}

mcc_status mcc_session_output(mcc_session* session, size_t index, mcc_tensor* tensor, mcc_error* error) {
  if (session == nullptr) return null_session(error);
  if (index >= session->outputs.size() || tensor == nullptr) return no_output(*session, index, error);
  if (!session->has_run)
    return fail(error, MCC_INVALID_ARGUMENT, "the session has not run since it was changed");
  const OutputSlot& slot = session->outputs[index];
  const mcc_plan_value& value = session->plan->output(index);
  tensor->data = slot.data;
  tensor->size_bytes = slot.bytes;
  tensor->dtype = value.dtype;
  tensor->rank = value.rank;
  tensor->dims = slot.dims;
  return succeed(error);
}

}  // extern "C"
