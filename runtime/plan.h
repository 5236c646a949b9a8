// The plan of a model, checked once and then read in place.
#pragma once

#include "mcc/plan_format.h"
#include "runtime/base.h"

namespace mcc::runtime {

// Typed views of the sections. Valid as long as the plan's bytes are.
struct Plan {
  const mcc_plan_header* header = nullptr;
#define MCC_PLAN_FIELD(name, type) \
  const type* name = nullptr;      \
  uint64_t name##_count = 0;
  MCC_PLAN_SECTIONS(MCC_PLAN_FIELD)
#undef MCC_PLAN_FIELD

  const char* text(mcc_plan_string string) const { return strings + string.offset; }
  const int64_t* dims_of(const mcc_plan_value& value) const { return quantities + value.dims; }
  mcc_plan_range inputs() const { return graphs[0].inputs; }
  mcc_plan_range outputs() const { return graphs[0].outputs; }
  const mcc_plan_value& input(uint64_t i) const { return values[indices[inputs().begin + i]]; }
  const mcc_plan_value& output(uint64_t i) const { return values[indices[outputs().begin + i]]; }
  const char* metadata_value(const char* key) const;  // null when absent
};

inline bool is_static(mcc_quantity quantity) { return quantity >= 0; }
bool has_static_dims(const Plan& plan, const mcc_plan_value& value);

// Whether an instruction of shape code has a result.
inline bool writes_slot(uint32_t op) { return op != MCC_SHAPE_check && op != MCC_SHAPE_grow; }

// What the nodes of a plan may refer to.
struct PlanTargets {
  uint64_t kernels = 0, host_functions = 0, device_kernels = 0;
  bool is_for_gpu = false;
};

// Whether the model runs on a GPU.
bool has_device_nodes(const Plan& plan);
// Of such a model: whether data decides sizes or the course of runs, so that they walk over the nodes.
bool is_walked(const Plan& plan);

// Checks the bytes and sets up the views. `plan` is only valid after MCC_OK.
mcc_status open_plan(const void* bytes, uint64_t size, const PlanTargets& targets, Plan* plan, mcc_error* error);

}  // namespace mcc::runtime
