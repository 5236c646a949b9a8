// The part of a session that is on a GPU: memory, launches with their arguments, the CUDA graph of a run.
#pragma once

#include "runtime/device_model.h"
#include "runtime/session.h"

namespace mcc::runtime {

// An input or output. The kernels work on `address`: the caller's memory if that is on the GPU and aligned, else `own`.
struct DeviceTensor {
  mcc_cu_pointer address = 0;
  mcc_cu_pointer own = 0;
  uint64_t bytes = 0;
  void* pinned =
      nullptr;  // the host's side of copies to and from `own`; null: the driver copies from pageable memory
  bool is_on_device = false;                 // the caller's memory
  mcc_cu_context other = nullptr;            // the primary context of the other GPU that it is on, held as long as it is used
  mcc_cu_device other_device = 0;
  uint64_t own_bytes = 0;     // at `own`
  uint64_t pinned_bytes = 0;  // that have been asked for
};

// One launch, a call of a library, or a copy between two values (neither function nor call).
struct DeviceStep {
  uint32_t node = 0;
  uint32_t launch = 0;
  mcc_cu_function function = nullptr;
  uint64_t arguments = 0;  // the first in DeviceSession::addresses; of a copy: from, to
  uint64_t bytes = 0;      // of a copy
  uint64_t parameters = 0;  // the first in DeviceSession::parameters
  const mcc_device_product* call = nullptr;
  uint64_t product = 0;  // of a call: in DeviceSession::products
  bool is_early = false;  // may begin before the kernel ahead of it in the run has ended
  uint32_t grid[3] = {};  // with the present shapes; nothing is launched where one is 0
};

// A map of a matrix, and what it is of.
struct DeviceMap {
  const mcc_device_map* of = nullptr;
  uint32_t value = 0;                // the plan's
  mcc_cu_tensor_map memory[2] = {};  // room for one at a multiple of 64
  mcc_cu_tensor_map* map() {
    const uintptr_t at = (reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64;
    return reinterpret_cast<mcc_cu_tensor_map*>(at);
  }
};

// An argument that is a dimension.
struct DeviceDim {
  uint64_t argument = 0;
  mcc_quantity quantity = 0;
};

// A run's launches on one set of addresses of inputs and outputs, with one set of sizes.
struct DeviceGraph {
  mcc_cu_graph_exec exec = nullptr;  // null: launched one by one so far
  uint32_t runs = 0;
  uint64_t used = 0;  // when, as a number of uses; 0: never
};
inline constexpr uint64_t kMostGraphs = 4;
inline constexpr uint64_t kMostGraphsOfSizes = 16;  // of a model with open dimensions

struct DeviceSession {
  DeviceModel* on = nullptr;
  mcc_cu_stream stream = nullptr;  // that runs go to
  mcc_cu_stream own_stream = nullptr;
  bool is_callers_stream = false;
  mcc_cu_pointer arena = 0;
  uint64_t arena_bytes = 0;  // at `arena`
  bool is_being_captured =
      false;  // the caller makes a graph of what goes to its stream: there is no waiting then
  Array<DeviceTensor> inputs, outputs;
  Array<DeviceStep> steps;
  Array<uint32_t> values;           // the plan's value of each argument; none: it is a dimension
  Array<mcc_cu_pointer> addresses;  // of the arguments, launch by launch; numbers where they are dimensions
  Array<DeviceDim> dims;
  Array<DeviceMap> maps;
  Array<void*> parameters;          // where both are, as a launch takes them
  Array<LibraryProduct> products;
  bool is_stale = true;       // `addresses` and `maps` are not those of the present inputs and outputs
  Array<DeviceGraph> graphs;
  Array<mcc_cu_pointer> graph_addresses;  // of inputs and outputs, graph by graph
  Array<int64_t> graph_sizes;             // of the plan's symbols, graph by graph
  DeviceGraph* graph = nullptr;           // of the present inputs, outputs and sizes; null: not looked up yet
  uint64_t uses = 0;
  uint32_t graph_failures = 0;  // captures that came to nothing
  Array<mcc_cu_event> events;  // one more than nodes, when profiling has been on
};

// Fails naming what the memory is for; of no bytes there is none.
mcc_status allocate_on_device(const mcc_cuda_driver& cuda, uint64_t bytes, const char* what,
                              mcc_cu_pointer* memory, mcc_error* error);
// Whether the memory is a GPU's.
mcc_status find_memory(const mcc_cuda_driver& cuda, const void* memory, bool* is_on_device, mcc_error* error);
// The GPU that the device memory is on: `device`, too, where that may use it as it is since it is managed.
mcc_cu_device device_of(const mcc_cuda_driver& cuda, const void* memory, mcc_cu_device device);

inline bool is_empty(const DeviceStep& step) {
  return step.grid[0] == 0 || step.grid[1] == 0 || step.grid[2] == 0;
}

// Frees the graphs: what they work on is gone.
void drop_graphs(DeviceSession& device);

mcc_status set_up_device(mcc_session* session, const mcc_session_options& options, mcc_error* error);
void destroy_device(mcc_session* session);

// After an input or output has been given (or taken back).
mcc_status set_device_input(mcc_session* session, uint64_t index, mcc_error* error);
mcc_status set_device_output(mcc_session* session, uint64_t index, mcc_error* error);

// After shapes have changed: outputs measured, slots computed. Memory, grids and dimensions are those of the present shapes from then on.
mcc_status prepare_device(mcc_session* session, mcc_error* error);

mcc_status run_device(mcc_session* session, mcc_error* error);

}  // namespace mcc::runtime
