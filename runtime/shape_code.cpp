#include "runtime/device_session.h"
#include "runtime/session.h"

namespace mcc::runtime {

bool evaluate_bytes(const mcc_session& session, const mcc_plan_value& value, uint64_t* bytes) {
  int64_t dims[MCC_MAX_RANK];
  const mcc_quantity* quantities = session.plan->dims_of(value);
  for (uint32_t i = 0; i < value.rank; ++i)
    dims[i] = evaluate(session, quantities[i]);
  return tensor_bytes(value.dtype, dims, value.rank, bytes);
}

namespace {

struct Storage {
  uint8_t* base;
  uint64_t size;
};

Storage storage_of(const mcc_session& session, const mcc_plan_value& value) {
  switch (value.storage) {
    case MCC_STORAGE_arena:
      return {session.arena, session.arena_size};
    // Nothing writes there: the checks of the plan refuse a node that would.
    case MCC_STORAGE_weights:
      return {const_cast<uint8_t*>(session.model->weights), session.plan->header->weights_size};
    case MCC_STORAGE_input:
      return {session.inputs[value.index].data, session.inputs[value.index].bytes};
    case MCC_STORAGE_output:
      return {session.outputs[value.index].data, session.outputs[value.index].capacity};
    case MCC_STORAGE_scratch:
      return {session.scratch.data(), session.plan->header->scratch_per_thread};
    case MCC_STORAGE_heap:
      return {session.heap[value.index].data(), session.heap[value.index].capacity()};
  }
  return {nullptr, 0};
}

}  // namespace

bool resolve(const mcc_session& session, const mcc_plan_value& value, void** address, uint64_t* bytes) {
  const Storage storage = storage_of(session, value);
  const int64_t offset = evaluate(session, value.offset);
  uint64_t size = 0;
  if (offset < 0 || !evaluate_bytes(session, value, &size) ||
      !is_within(static_cast<uint64_t>(offset), size, storage.size)) {
    return false;
  }
  *address = storage.base == nullptr ? nullptr : storage.base + offset;
  if (bytes != nullptr) *bytes = size;
  return true;
}

const char* why_outside(const mcc_session& session, const mcc_plan_value& value) {
  const mcc_quantity* dims = session.plan->dims_of(value);
  for (uint32_t i = 0; i < value.rank; ++i)
    if (evaluate(session, dims[i]) < 0)
      return "a dimension of a tensor would be negative: an input is too small";
  return "a tensor does not fit into its memory";
}

namespace {

// How an instruction ends.
enum class Outcome { done, overflow, division_by_zero, outside, check_failed, out_of_memory };

int64_t read_integer(const void* data, uint32_t dtype, uint64_t index) {
  const auto at = [&](auto zero) {
    std::memcpy(&zero, static_cast<const uint8_t*>(data) + index * sizeof zero, sizeof zero);
    return static_cast<int64_t>(zero);
  };
  switch (dtype) {
    case MCC_DTYPE_bool:
      return at(uint8_t{}) != 0;
    case MCC_DTYPE_i8:
      return at(int8_t{});
    case MCC_DTYPE_u8:
      return at(uint8_t{});
    case MCC_DTYPE_i16:
      return at(int16_t{});
    case MCC_DTYPE_u16:
      return at(uint16_t{});
    case MCC_DTYPE_i32:
      return at(int32_t{});
    case MCC_DTYPE_u32:
      return at(uint32_t{});
    case MCC_DTYPE_i64:
      return at(int64_t{});
    case MCC_DTYPE_u64:
      return at(uint64_t{});
  }
  return 0;
}

Outcome load_element(const mcc_session& session, const mcc_plan_instruction& instruction, int64_t* result) {
  const mcc_plan_value& value = session.plan->values[instruction.a];
  if (DeviceSession* device = session.device; device != nullptr) {
    *result = read_integer(device->fetched + device->next_fetched++, value.dtype, 0);
    return Outcome::done;
  }
  const int64_t index = evaluate(session, instruction.b);
  void* data = nullptr;
  uint64_t bytes = 0;
  if (!resolve(session, value, &data, &bytes) || data == nullptr || index < 0 ||
      static_cast<uint64_t>(index) >= bytes / dtype_bytes(value.dtype)) {
    return Outcome::outside;
  }
  *result = read_integer(data, value.dtype, static_cast<uint64_t>(index));
  return Outcome::done;
}

bool is_same_memory(const mcc_session& session, uint64_t input, uint64_t output) {
  const OutputSlot& to = session.outputs[output];
  const InputSlot& from = session.inputs[input];
  uint64_t bytes = 0;
  if (!to.is_callers || !evaluate_bytes(session, session.plan->output(output), &bytes) || bytes != from.bytes)
    return false;
  // Where the kernels work on copies, these are not the same.
  if (session.device != nullptr) {
    return session.device->inputs[input].address ==
               static_cast<mcc_cu_pointer>(reinterpret_cast<uintptr_t>(to.data)) &&
           to.is_direct;
  }
  return to.is_direct && from.data == to.data;
}

Outcome divide(uint32_t op, int64_t a, int64_t b, int64_t* result) {
  if (b == 0) return Outcome::division_by_zero;
  if (a == INT64_MIN && b == -1) {
    *result = 0;
    return op == MCC_SHAPE_mod ? Outcome::done : Outcome::overflow;
  }
  const int64_t quotient = a / b;
  const int64_t rest = a % b;
  const bool has_rest = rest != 0;
  const bool is_negative = (a < 0) != (b < 0);
  if (op == MCC_SHAPE_floordiv) *result = quotient - (has_rest && is_negative ? 1 : 0);
  if (op == MCC_SHAPE_ceildiv) *result = quotient + (has_rest && !is_negative ? 1 : 0);
  if (op == MCC_SHAPE_mod) *result = has_rest && is_negative ? rest + b : rest;
  return Outcome::done;
}

Outcome grow(mcc_session* session, const mcc_plan_instruction& instruction) {
  const int64_t bytes = evaluate(*session, instruction.b), kept = evaluate(*session, instruction.c);
  if (bytes < 0 || kept < 0) return Outcome::overflow;
  Block& block = session->heap[static_cast<uint64_t>(instruction.a)];
  const bool is_grown = block.grow(static_cast<uint64_t>(bytes), static_cast<uint64_t>(kept));
  return is_grown ? Outcome::done : Outcome::out_of_memory;
}

Outcome execute(const mcc_session& session, const mcc_plan_instruction& instruction, int64_t* result) {
  if (instruction.op == MCC_SHAPE_load) return load_element(session, instruction, result);
  if (instruction.op == MCC_SHAPE_same) {
    *result =
        is_same_memory(session, static_cast<uint64_t>(instruction.a), static_cast<uint64_t>(instruction.b));
    return Outcome::done;
  }
  const int64_t a = evaluate(session, instruction.a);
  const int64_t b = evaluate(session, instruction.b);
  const auto checked = [](bool overflow) { return overflow ? Outcome::overflow : Outcome::done; };
  switch (instruction.op) {
    case MCC_SHAPE_move:
      *result = a;
      break;
    case MCC_SHAPE_add:
      return checked(__builtin_add_overflow(a, b, result));
    case MCC_SHAPE_sub:
      return checked(__builtin_sub_overflow(a, b, result));
    case MCC_SHAPE_mul:
      return checked(__builtin_mul_overflow(a, b, result));
    case MCC_SHAPE_floordiv:
    case MCC_SHAPE_ceildiv:
    case MCC_SHAPE_mod:
      return divide(instruction.op, a, b, result);
    case MCC_SHAPE_min:
      *result = a < b ? a : b;
      break;
    case MCC_SHAPE_max:
      *result = a < b ? b : a;
      break;
    case MCC_SHAPE_equal:
      *result = a == b;
      break;
    case MCC_SHAPE_less:
      *result = a < b;
      break;
    case MCC_SHAPE_less_equal:
      *result = a <= b;
      break;
    case MCC_SHAPE_and:
      *result = a != 0 && b != 0;
      break;
    case MCC_SHAPE_or:
      *result = a != 0 || b != 0;
      break;
    case MCC_SHAPE_not:
      *result = a == 0;
      break;
    case MCC_SHAPE_select:
      *result = a != 0 ? b : evaluate(session, instruction.c);
      break;
    case MCC_SHAPE_threads:
      *result = session.executor->num_threads;
      break;
    case MCC_SHAPE_check:
      return a != 0 ? Outcome::done : Outcome::check_failed;
  }
  return Outcome::done;
}

mcc_status report(const mcc_session& session, const mcc_plan_instruction& instruction, Outcome outcome,
                  mcc_error* error) {
  const char* message = session.plan->text(instruction.message);
  const char* what = "";
  switch (outcome) {
    case Outcome::done:
      return MCC_OK;
    case Outcome::overflow:
      what = "a shape is too large";
      break;
    case Outcome::division_by_zero:
      what = "a shape is divided by zero";
      break;
    case Outcome::outside:
      what = "a shape reads outside of a tensor";
      break;
    case Outcome::check_failed:
      return fail(error, MCC_INVALID_ARGUMENT, "%s", message);
    case Outcome::out_of_memory:
      return fail(error, MCC_OUT_OF_MEMORY, "out of memory: %s", message);
  }
  return fail(error, MCC_INVALID_ARGUMENT, "%s%s%s", what, message[0] == 0 ? "" : ": ", message);
}

}  // namespace

namespace {

mcc_status grow_on_device(mcc_session* session, const mcc_plan_instruction& instruction, mcc_error* error) {
  const int64_t bytes = evaluate(*session, instruction.b), kept = evaluate(*session, instruction.c);
  if (bytes < 0 || kept < 0) return report(*session, instruction, Outcome::overflow, error);
  return grow_block(session, static_cast<uint64_t>(instruction.a), static_cast<uint64_t>(bytes),
                    static_cast<uint64_t>(kept), session->plan->text(instruction.message), error);
}

}  // namespace

mcc_status run_code(mcc_session* session, mcc_plan_range range, mcc_error* error) {
  for (uint32_t i = 0; i < range.count; ++i) {
    const mcc_plan_instruction& instruction = session->plan->code[range.begin + i];
    int64_t result = 0;
    if (instruction.op == MCC_SHAPE_grow && session->device != nullptr) {
      const mcc_status status = grow_on_device(session, instruction, error);
      if (status != MCC_OK) return status;
      continue;
    }
    const Outcome outcome =
        instruction.op == MCC_SHAPE_grow ? grow(session, instruction) : execute(*session, instruction, &result);
    if (outcome != Outcome::done) return report(*session, instruction, outcome, error);
    if (writes_slot(instruction.op)) session->slots[instruction.slot] = result;
  }
  if (range.count != 0) ++session->generation;
  return MCC_OK;
}

}  // namespace mcc::runtime
