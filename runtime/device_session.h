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

// Memory of tensors whose sizes data decides.
struct DeviceBlock {
  mcc_cu_pointer address = 0;
  uint64_t bytes = 0;
};

// One launch, a call of a library, or a copy between two values (neither function nor call).
struct DeviceStep {
  uint32_t node = 0;
  uint32_t launch = 0;
  mcc_cu_function function = nullptr;
  uint64_t arguments = 0, argument_count = 0;  // in DeviceSession::addresses; of a copy: from, to
  uint64_t dims = 0, dim_count = 0;            // in DeviceSession::dims
  uint64_t maps = 0, map_count = 0;            // in DeviceSession::maps
  uint64_t bytes = 0;      // of a copy
  uint64_t parameters = 0;  // the first in DeviceSession::parameters
  const mcc_device_product* call = nullptr;
  uint64_t product = 0;  // of a call: in DeviceSession::products
  bool is_early = false;  // may begin before the kernel ahead of it in the run has ended
  uint32_t grid[3] = {};  // with the present shapes; nothing is launched where one is 0
  uint32_t loop_steps = 0;  // of the body of a loop that begins here; 0: none does
  bool is_in_loop = false;  // around it one began before: what carries that out launches it
  int64_t turns = 1;        // of the loop that it is in, with the present shapes
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

// An argument that is a dimension, or the iteration of the loop around.
struct DeviceDim {
  uint64_t argument = 0;
  mcc_quantity quantity = 0;
  bool is_turn = false;
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
  Array<uint64_t> first_steps;      // of each node, and the number of all
  uint64_t leading_nodes = 0;       // of the model's graph, launches and copies in front of what data decides
  Array<uint32_t> values;           // the plan's value of each argument; none: it is a dimension or a number
  Array<mcc_cu_pointer> addresses;  // of the arguments, launch by launch; numbers where they are such
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
  Array<mcc_cu_event> events;   // when profiling has been on: one more than nodes, two of a walk

  // Where the run is a walk over the nodes (device_walk.cpp).
  bool is_walked = false;
  Array<DeviceBlock> heap;
  uint64_t* fetched =
      nullptr;                // elements that the shape code at hand loads, each at the beginning of its own
  uint64_t next_fetched = 0;  // that it takes next
  void* pinned = nullptr;     // where they are; null: at `pageable`
  Array<uint64_t> pageable;
  const DeviceStep* before = nullptr;  // the last thing in the stream; null: something else, or nothing
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

// Where the value is with the present shapes, and whether that is memory that it may use.
mcc_cu_pointer address_of(const mcc_session& session, const mcc_plan_value& value);
bool is_within_storage(const mcc_session& session, const mcc_plan_value& value);

// A call fails: either it cannot be done, or the context has been lost to something before it, which may be another's.
mcc_status fail_here(const DeviceSession& device, mcc_cu_result code, const char* what, mcc_error* error);

// The steps of all nodes, in their order.
mcc_status set_up_steps(mcc_session* session, mcc_error* error);
// With the present shapes: the grid, the bytes of a copy, and dimensions that the kernel takes. before: the step that runs ahead of it, if
// it is a step.
mcc_status size_step(mcc_session* session, DeviceStep* step, const DeviceStep* before, mcc_error* error);
// And what it takes of tensors.
mcc_status resolve_step(mcc_session* session, const DeviceStep& step, mcc_error* error);
// Starts the step, which has both; of a loop, where its first one is, all of it.
mcc_status carry_out(const mcc_session& session, const DeviceStep& step, mcc_cu_stream stream,
                     mcc_error* error);

// At least `bytes` at *memory, of which there are *capacity. What was there before is lost, and so are its contents.
mcc_status grow_on_device(DeviceSession& device, uint64_t bytes, const char* what, mcc_cu_pointer* memory,
                          uint64_t* capacity, mcc_error* error);
// As much as was there and half of that again, where memory grows again and again.
uint64_t grown(uint64_t from, uint64_t needed);

// Runs whose sizes or course data decides. A walk goes over all nodes of the model's graph, or over those behind the leading ones.
mcc_status set_up_walk(mcc_session* session, mcc_error* error);
mcc_status walk_model(mcc_session* session, uint64_t from, mcc_error* error);
// The block has room for so many bytes, and holds its first `kept` ones still.
mcc_status grow_block(mcc_session* session, uint64_t index, uint64_t bytes, uint64_t kept, const char* what,
                      mcc_error* error);
// Whether the output's shape is known, and its place found, when the walk is over.
inline bool is_late(const mcc_session& session, uint64_t output) {
  return session.device->is_walked && !session.outputs[output].is_static &&
         !session.outputs[output].is_direct;
}

// The steps of the leading nodes, which follow from the shapes of the inputs: those of a CUDA graph.
struct DeviceSteps {
  DeviceStep *first, *last;
  DeviceStep* begin() const { return first; }
  DeviceStep* end() const { return last; }
};
inline DeviceSteps leading_steps(const mcc_session& session) {
  DeviceSession& device = *session.device;
  const uint64_t node = session.plan->graphs[0].nodes.begin;
  return {device.steps.data() + device.first_steps[node],
          device.steps.data() + device.first_steps[node + device.leading_nodes]};
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
