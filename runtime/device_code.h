// A model's code for GPUs, checked once and then read in place.
#pragma once

#include "mcc/device_format.h"
#include "runtime/plan.h"

namespace mcc::runtime {

// Typed views of the sections. Valid as long as the bytes are.
struct DeviceCode {
  const mcc_device_header* header = nullptr;  // null: the model has none
#define MCC_DEVICE_FIELD(name, type) \
  const type* name = nullptr;        \
  uint64_t name##_count = 0;
  MCC_DEVICE_SECTIONS(MCC_DEVICE_FIELD)
#undef MCC_DEVICE_FIELD

  const char* text(mcc_plan_string string) const { return strings + string.offset; }
};

// Checks the bytes and sets up the views. `code` is only valid after MCC_OK.
mcc_status open_device_code(const void* bytes, uint64_t size, DeviceCode* code, mcc_error* error);

// Whether the device nodes of the plan have the arguments that their launches take.
mcc_status check_device_nodes(const Plan& plan, const DeviceCode& code, mcc_error* error);

// How well an image suits a GPU of compute capability sm / 10 . sm % 10: 0 not at all; machine code is better than PTX, and of
// each that of the closest architecture.
uint32_t image_rank(const mcc_device_image& image, uint32_t sm);

}  // namespace mcc::runtime
