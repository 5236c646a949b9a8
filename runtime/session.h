// A session: the memory, threads and precomputed argument lists of one model, for one thread at a
// time.
#pragma once

#include "runtime/model.h"
#include "runtime/text.h"
#include "runtime/thread_pool.h"

namespace mcc::runtime {

// What the walk over the nodes reads. Addresses and dimensions that can be known before a run are
// filled in when the session is created (or, for inputs and outputs, when they are set); a node
// with any other is `is_dynamic`, and is resolved again whenever the session's generation has moved
// on.
struct Step {
  mcc_kernel_fn kernel;
  void** args;
  int64_t* dims;
  uint64_t generation;
  uint32_t kind;
  bool is_dynamic;
};

// An argument whose address is that of an input or output plus an offset known in advance.
struct Patch {
  void** argument;
  int64_t offset;
};

struct InputSlot {
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
  bool is_set = false;
  int64_t dims[MCC_MAX_RANK] = {};
  uint64_t patches_begin = 0, patches_end = 0;  // in mcc_session::patches
};

struct OutputSlot {
  uint8_t* data = nullptr;  // where the output is (after a run), or will be written
  uint64_t capacity = 0;    // bytes at data
  Block own;                // memory of the session, when the caller gives none
  bool is_callers = false;  // data was given by mcc_session_set_output
  bool is_direct = false;   // kernels write it; else it is copied from another storage after the run
  bool is_static = false;   // the shape is known in advance
  uint64_t bytes = 0;       // of the shape
  int64_t dims[MCC_MAX_RANK] = {};
  uint64_t patches_begin = 0, patches_end = 0;
};

struct HostArguments {
  mcc_host_tensor* tensors;
  int64_t* dims;  // MCC_MAX_RANK for each tensor
};

struct NodeTimes {
  uint64_t executions, total_ns, min_ns;
};

struct DeviceSession;  // device_session.h

}  // namespace mcc::runtime

struct mcc_session {
  mcc_model* model = nullptr;
  const mcc::runtime::Plan* plan = nullptr;
  mcc_executor inline_executor = {};
  mcc::runtime::ThreadPool pool;
  bool has_pool = false;
  mcc_executor* executor = nullptr;

  // Memory.
  uint8_t* arena = nullptr;
  uint64_t arena_size = 0;  // as planned for the present shapes
  uint64_t arena_capacity = 0;
  bool is_callers_arena = false;
  mcc::runtime::Block arena_block;
  mcc::runtime::Block scratch;
  mcc::runtime::Array<mcc::runtime::Block> heap;

  // Arguments.
  mcc::runtime::Array<mcc::runtime::Step> steps;  // one a node
  mcc::runtime::Array<void*> args;
  mcc::runtime::Array<int64_t> dims;
  mcc::runtime::Array<mcc::runtime::Patch> patches;
  mcc::runtime::Array<mcc::runtime::InputSlot> inputs;
  mcc::runtime::Array<mcc::runtime::OutputSlot> outputs;
  mcc::runtime::Array<mcc::runtime::HostArguments> host_arguments;  // one a node; null but for host nodes
  mcc::runtime::Array<mcc_host_tensor> host_tensors;
  mcc::runtime::Array<int64_t> host_dims;

  // Shapes.
  mcc::runtime::Array<int64_t> slots;
  uint64_t generation = 1;
  bool needs_preparation = true;  // before the next run: shapes or memory have changed
  bool may_share_memory = false;  // an output may be in the memory of an input, which shape code looks at
  bool has_run = false;

  mcc::runtime::TextTable texts;  // what ids of strings stand for

  // Of random numbers.
  uint64_t seed = 0;
  mcc::runtime::Array<uint64_t> draws;  // how often each node has been executed; empty where none draws

  // Of a model for GPUs; of memory and arguments above nothing is used then but the arena's size.
  mcc::runtime::DeviceSession* device = nullptr;

  // Profile.
  bool is_profiling = false;
  mcc::runtime::Array<mcc::runtime::NodeTimes> times;
};

namespace mcc::runtime {

// The number that a quantity has at the moment. May be negative when it comes from shape code.
inline int64_t evaluate(const mcc_session& session, mcc_quantity quantity) {
  return is_static(quantity) ? quantity : session.slots[MCC_SLOT_OF_QUANTITY(quantity)];
}

// The bytes of a value with the present slots; false when a dimension is negative or the size
// overflows.
bool evaluate_bytes(const mcc_session& session, const mcc_plan_value& value, uint64_t* bytes);

// The address of a value with the present slots, and its size (unless `bytes` is null); false when
// it does not lie within its storage.
bool resolve(const mcc_session& session, const mcc_plan_value& value, void** address, uint64_t* bytes);

// Why a value does not lie within its storage, for a person: what to put behind the name of the node that has it.
const char* why_outside(const mcc_session& session, const mcc_plan_value& value);

// Executes shape code.
mcc_status run_code(mcc_session* session, mcc_plan_range range, mcc_error* error);

// Says at which node, by its name and the ONNX nodes it came from: `node "conv_relu" (Conv_3, Relu_4): what`.
mcc_status fail_at(const mcc_session& session, uint64_t node, mcc_status status, const char* what, mcc_error* error);

// The shape of the output with the present slots, if it is not known in advance, and whether its memory is enough.
mcc_status measure_output(mcc_session* session, uint64_t index, mcc_error* error);
mcc_status check_capacity(mcc_session* session, uint64_t index, mcc_error* error);

// Executes graph 0 with everything in place: inputs set, arena and outputs sized.
mcc_status run_model(mcc_session* session, mcc_error* error);

// Of nodes of kind MCC_NODE_text: the model's strings (when the session is made), and one operation.
mcc_status set_up_texts(mcc_session* session, mcc_error* error);
mcc_status run_text(mcc_session* session, uint64_t node, mcc_error* error);

// Of nodes of kind MCC_NODE_draw: the session's seed, and what the next execution gives.
mcc_status set_up_draws(mcc_session* session, const mcc_session_options& options, mcc_error* error);
struct DrawnWords {
  uint64_t key, position;
};
DrawnWords draw(mcc_session* session, uint64_t node);

uint64_t clock_ns();

}  // namespace mcc::runtime
