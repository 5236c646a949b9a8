#include "runtime/plan.h"

#include <cstdarg>
#include <cstdio>

#include "runtime/text.h"

namespace mcc::runtime {

const char* Plan::metadata_value(const char* key) const {
  for (uint64_t i = 0; i < metadata_count; ++i) {
    if (std::strcmp(text(metadata[i].key), key) == 0) return text(metadata[i].value);
  }
  return nullptr;
}

bool has_static_dims(const Plan& plan, const mcc_plan_value& value) {
  for (uint32_t i = 0; i < value.rank; ++i) {
    if (!is_static(plan.dims_of(value)[i])) return false;
  }
  return true;
}

namespace {

// Checks a plan whose header and section table are known to lie within its bytes. Every function
// returns false at the first fault, after saying what it is.
class Checker {
 public:
  Checker(const Plan& plan, const PlanTargets& targets, mcc_error* error)
      : plan_(plan), targets_(targets), error_(error) {}

  bool check() {
    return check_sizes() && check_texts() && check_quantities() && check_interface() && check_values() &&
           check_code() && check_nodes() && check_graphs() && check_text() && check_device();
  }

 private:
  __attribute__((format(printf, 2, 3))) bool fault(const char* format, ...) {
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fail(error_, MCC_BAD_MODEL, "the model's plan is damaged: %s", what);
    return false;
  }

  bool is_text(mcc_plan_string string) const {
    // One more byte than the text: its zero.
    return is_within(string.offset, uint64_t{string.size} + 1, plan_.strings_count) &&
           plan_.strings[uint64_t{string.offset} + string.size] == 0;
  }
  bool is_slot(uint64_t slot) const { return slot < plan_.header->slot_count; }
  bool is_quantity(mcc_quantity q) const { return is_static(q) || is_slot(MCC_SLOT_OF_QUANTITY(q)); }
  static bool is_range(mcc_plan_range range, uint64_t count) {
    return is_within(range.begin, range.count, count);
  }

  bool check_sizes() {
    const mcc_plan_header& header = *plan_.header;
    if (header.slot_count > MCC_PLAN_MAX_SLOTS || plan_.symbols_count > header.slot_count) {
      return fault("%u slots for %llu symbols", header.slot_count,
                   static_cast<unsigned long long>(plan_.symbols_count));
    }
    if (header.heap_count > MCC_PLAN_MAX_SLOTS) return fault("%u heap blocks", header.heap_count);
    if (!is_quantity(header.arena_size)) return fault("the size of the arena");
    if (header.scratch_per_thread % MCC_BUFFER_ALIGNMENT != 0 ||
        header.scratch_per_thread > INT64_MAX / MCC_MAX_THREADS) {
      return fault("the size of the scratch memory");
    }
    if (plan_.graphs_count == 0) return fault("no graph");
    return true;
  }

  bool check_texts() {
    for (uint64_t i = 0; i < plan_.names_count; ++i) {
      if (!is_text(plan_.names[i])) return fault("name %llu", static_cast<unsigned long long>(i));
    }
    for (uint64_t i = 0; i < plan_.metadata_count; ++i) {
      if (!is_text(plan_.metadata[i].key) || !is_text(plan_.metadata[i].value)) {
        return fault("metadata entry %llu", static_cast<unsigned long long>(i));
      }
    }
    for (uint64_t i = 0; i < plan_.features_count; ++i) {
      if (!is_text(plan_.features[i])) return fault("feature %llu", static_cast<unsigned long long>(i));
    }
    for (uint64_t i = 0; i < plan_.symbols_count; ++i) {
      const mcc_plan_symbol& symbol = plan_.symbols[i];
      if (!is_text(symbol.name) || symbol.min < 0 || symbol.max < symbol.min) {
        return fault("symbol %llu", static_cast<unsigned long long>(i));
      }
    }
    return true;
  }

  bool check_quantities() {
    for (uint64_t i = 0; i < plan_.quantities_count; ++i) {
      if (!is_quantity(plan_.quantities[i])) {
        return fault("quantity %llu", static_cast<unsigned long long>(i));
      }
    }
    return true;
  }

  // The inputs and outputs of graph 0; check_values needs them.
  bool check_interface() {
    const mcc_plan_range inputs = plan_.inputs();
    const mcc_plan_range outputs = plan_.outputs();
    if (!is_range(inputs, plan_.indices_count) || !is_range(outputs, plan_.indices_count)) {
      return fault("the lists of inputs and outputs");
    }
    for (uint32_t i = 0; i < inputs.count; ++i) {
      const uint32_t index = plan_.indices[inputs.begin + i];
      if (index >= plan_.values_count || !is_value_header(plan_.values[index])) return fault("input %u", i);
      const mcc_plan_value& value = plan_.values[index];
      if (value.storage != MCC_STORAGE_input || value.index != i || value.offset != 0) {
        return fault("input %u", i);
      }
      for (uint32_t d = 0; d < value.rank; ++d) {
        const mcc_quantity dim = plan_.dims_of(value)[d];
        if (!is_static(dim) && MCC_SLOT_OF_QUANTITY(dim) >= plan_.symbols_count) {
          return fault("dimension %u of input %u", d, i);
        }
      }
    }
    for (uint32_t i = 0; i < outputs.count; ++i) {
      const uint32_t index = plan_.indices[outputs.begin + i];
      if (index >= plan_.values_count || !is_value_header(plan_.values[index])) return fault("output %u", i);
      const mcc_plan_value& value = plan_.values[index];
      if (value.storage == MCC_STORAGE_scratch ||
          (value.storage == MCC_STORAGE_output && value.offset != 0)) {
        return fault("output %u", i);
      }
    }
    return true;
  }

  // Everything but where its bytes are.
  bool is_value_header(const mcc_plan_value& value) const {
    return is_text(value.name) && dtype_bytes(value.dtype) != 0 && value.rank <= MCC_MAX_RANK &&
           is_within(value.dims, value.rank, plan_.quantities_count) && value.storage < MCC_STORAGE_COUNT &&
           is_quantity(value.offset);
  }

  // The size of the storage of `value` when it is known now; UINT64_MAX when only a run knows.
  // False when there is no such storage.
  bool storage_size(const mcc_plan_value& value, uint64_t* size) const {
    const mcc_plan_header& header = *plan_.header;
    *size = UINT64_MAX;
    switch (value.storage) {
      case MCC_STORAGE_arena:
        if (is_static(header.arena_size)) *size = static_cast<uint64_t>(header.arena_size);
        return true;
      case MCC_STORAGE_weights:
        *size = header.weights_size;
        return true;
      case MCC_STORAGE_scratch:
        *size = header.scratch_per_thread;
        return true;
      case MCC_STORAGE_heap:
        return value.index < header.heap_count;
      case MCC_STORAGE_input:
        if (value.index >= plan_.inputs().count) return false;
        return interface_size(plan_.input(value.index), size);
      case MCC_STORAGE_output: {
        if (value.index >= plan_.outputs().count) return false;
        // Only an output that lives in its own memory has any to share.
        const mcc_plan_value& output = plan_.output(value.index);
        if (output.storage != MCC_STORAGE_output || output.index != value.index) return false;
        return interface_size(output, size);
      }
    }
    return false;
  }

  bool interface_size(const mcc_plan_value& value, uint64_t* size) const {
    if (!has_static_dims(plan_, value)) return true;
    return tensor_bytes(value.dtype, plan_.dims_of(value), value.rank, size);
  }

  bool check_values() {
    for (uint64_t i = 0; i < plan_.values_count; ++i) {
      const mcc_plan_value& value = plan_.values[i];
      const auto number = static_cast<unsigned long long>(i);
      uint64_t size = 0;
      if (!is_value_header(value)) return fault("value %llu", number);
      if (!storage_size(value, &size)) return fault("the storage of value %llu", number);
      if (!has_static_dims(plan_, value)) continue;
      uint64_t bytes = 0;
      if (!tensor_bytes(value.dtype, plan_.dims_of(value), value.rank, &bytes)) {
        return fault("the size of value %llu", number);
      }
      if (size == UINT64_MAX || !is_static(value.offset)) continue;
      if (!is_within(static_cast<uint64_t>(value.offset), bytes, size)) {
        return fault("value %llu lies outside of its storage", number);
      }
    }
    return true;
  }

  bool check_code() {
    for (uint64_t i = 0; i < plan_.code_count; ++i) {
      if (!is_instruction(plan_.code[i])) {
        return fault("instruction %llu", static_cast<unsigned long long>(i));
      }
    }
    return true;
  }

  bool is_instruction(const mcc_plan_instruction& instruction) const {
    if (instruction.op >= MCC_SHAPE_OP_COUNT || !is_text(instruction.message)) return false;
    if (!is_quantity(instruction.b) || !is_quantity(instruction.c)) return false;
    // Symbols belong to the inputs: code does not overwrite them.
    const bool writes = writes_slot(instruction.op);
    if (writes && (!is_slot(instruction.slot) || instruction.slot < plan_.symbols_count)) return false;
    if (instruction.op == MCC_SHAPE_grow)
      return instruction.a >= 0 && static_cast<uint64_t>(instruction.a) < plan_.header->heap_count;
    if (instruction.op == MCC_SHAPE_same) {
      return instruction.a >= 0 && static_cast<uint64_t>(instruction.a) < plan_.inputs().count &&
             instruction.b >= 0 && static_cast<uint64_t>(instruction.b) < plan_.outputs().count;
    }
    if (instruction.op != MCC_SHAPE_load) return is_quantity(instruction.a);
    if (instruction.a < 0 || static_cast<uint64_t>(instruction.a) >= plan_.values_count) return false;
    const mcc_plan_value& value = plan_.values[instruction.a];
    return is_loadable(value.dtype) && value.storage != MCC_STORAGE_scratch;
  }

  static bool is_loadable(uint32_t dtype) {
    switch (dtype) {
      case MCC_DTYPE_bool:
      case MCC_DTYPE_i8:
      case MCC_DTYPE_u8:
      case MCC_DTYPE_i16:
      case MCC_DTYPE_u16:
      case MCC_DTYPE_i32:
      case MCC_DTYPE_u32:
      case MCC_DTYPE_i64:
      case MCC_DTYPE_u64:
        return true;
    }
    return false;
  }

  bool check_nodes() {
    for (uint64_t i = 0; i < plan_.nodes_count; ++i) {
      const mcc_plan_node& node = plan_.nodes[i];
      const auto number = static_cast<unsigned long long>(i);
      if (!is_node_header(node)) return fault("node %llu", number);
      if (!has_good_arguments(node)) return fault("the arguments of node %llu", number);
      if (!has_good_target(node)) return fault("the target of node %llu", number);
    }
    return true;
  }

  bool is_node_header(const mcc_plan_node& node) const {
    return node.kind < MCC_NODE_COUNT && is_range(node.args, plan_.indices_count) &&
           is_range(node.dims, plan_.quantities_count) && is_range(node.code, plan_.code_count) &&
           is_range(node.attributes, plan_.bytes_count) && node.attributes.begin % 8 == 0 &&
           is_range(node.sources, plan_.names_count) && is_text(node.name) && is_text(node.schedule) &&
           is_quantity(node.flops) && is_quantity(node.bytes) && node.output_count <= node.args.count;
  }

  bool has_good_arguments(const mcc_plan_node& node) const {
    for (uint32_t a = 0; a < node.args.count; ++a) {
      const uint32_t index = plan_.indices[node.args.begin + a];
      const bool is_written = a >= node.args.count - node.output_count;
      const bool may_be_absent = node.kind == MCC_NODE_kernel || node.kind == MCC_NODE_host;
      if (index == MCC_PLAN_NONE) {
        if (is_written || !may_be_absent) return false;
        continue;
      }
      if (index >= plan_.values_count) return false;
      const uint32_t storage = plan_.values[index].storage;
      if (is_written && (storage == MCC_STORAGE_weights || storage == MCC_STORAGE_input)) return false;
      if (storage == MCC_STORAGE_scratch && node.kind != MCC_NODE_kernel) return false;
    }
    return true;
  }

  bool has_good_target(const mcc_plan_node& node) const {
    switch (node.kind) {
      case MCC_NODE_kernel:
        return node.target < targets_.kernels;
      case MCC_NODE_host:
        return node.target < targets_.host_functions;
      case MCC_NODE_copy:
        return node.args.count == 2 && node.output_count == 1;
      case MCC_NODE_shape:
        return node.args.count == 0;
      case MCC_NODE_if:
        return node.args.count == 1 && is_condition(node) && is_graph(node.target) &&
               (node.other == MCC_PLAN_NONE || is_graph(node.other));
      case MCC_NODE_loop:
        return node.args.count <= 1 && is_condition(node) && node.dims.count == 1 && is_graph(node.target) &&
               (node.other == MCC_PLAN_NONE || (is_slot(node.other) && node.other >= plan_.symbols_count));
      case MCC_NODE_device:
        return node.target < targets_.device_kernels;
      case MCC_NODE_text:
        return is_text_node(plan_, node);
      case MCC_NODE_draw:
        return is_draw(node);
    }
    return false;
  }

  bool is_draw(const mcc_plan_node& node) const {
    if (node.args.count != 1 || node.output_count != 1 || node.attributes.count != sizeof(mcc_plan_draw))
      return false;
    const mcc_plan_value& value = plan_.values[plan_.indices[node.args.begin]];
    return value.dtype == MCC_DTYPE_i64 && value.rank == 1 && plan_.dims_of(value)[0] == 2;
  }

  bool is_graph(uint32_t graph) const { return graph < plan_.graphs_count; }

  // The arguments of an if or a loop: nothing but a single bool.
  bool is_condition(const mcc_plan_node& node) const {
    if (node.output_count != 0) return false;
    if (node.args.count == 0) return true;
    const mcc_plan_value& value = plan_.values[plan_.indices[node.args.begin]];
    if (value.dtype != MCC_DTYPE_bool) return false;
    for (uint32_t d = 0; d < value.rank; ++d) {
      if (plan_.dims_of(value)[d] != 1) return false;
    }
    return true;
  }

  // Texts stand in the table before a node asks for them.
  bool check_text() {
    bool has_table = false;
    for (uint64_t i = 0; i < plan_.nodes_count; ++i) {
      const mcc_plan_node& node = plan_.nodes[i];
      if (node.kind != MCC_NODE_text) continue;
      const bool is_first = plan_.graphs[0].nodes.count != 0 && i == plan_.graphs[0].nodes.begin;
      if (node.target == MCC_TEXT_table && !is_first)
        return fault("node %llu is a second table of strings", static_cast<unsigned long long>(i));
      has_table |= node.target == MCC_TEXT_table;
    }
    for (uint64_t i = 0; i < plan_.nodes_count && !has_table; ++i)
      if (plan_.nodes[i].kind == MCC_NODE_text) return fault("its table of strings");
    return true;
  }

  bool check_graphs() {
    Array<uint32_t> depth;
    if (!depth.allocate(plan_.graphs_count)) {
      fail(error_, MCC_OUT_OF_MEMORY, "out of memory");
      return false;
    }
    for (uint64_t g = 0; g < plan_.graphs_count; ++g) {
      const mcc_plan_graph& graph = plan_.graphs[g];
      const auto number = static_cast<unsigned long long>(g);
      if (!is_text(graph.name) || !is_range(graph.nodes, plan_.nodes_count) ||
          !is_range(graph.code, plan_.code_count) || !is_value_list(graph.inputs) ||
          !is_value_list(graph.outputs)) {
        return fault("graph %llu", number);
      }
      for (uint32_t n = 0; n < graph.nodes.count; ++n) {
        const mcc_plan_node& node = plan_.nodes[graph.nodes.begin + n];
        if (node.kind != MCC_NODE_if && node.kind != MCC_NODE_loop) continue;
        if (!deepen(node.target, g, depth)) return fault("the sub-graphs of graph %llu", number);
        if (node.kind == MCC_NODE_if && node.other != MCC_PLAN_NONE && !deepen(node.other, g, depth)) {
          return fault("the sub-graphs of graph %llu", number);
        }
      }
    }
    return true;
  }

  // Graphs are visited in the order of their index and only run later ones, so depth[parent] is
  // final here.
  static bool deepen(uint32_t graph, uint64_t parent, Array<uint32_t>& depth) {
    if (graph <= parent) return false;
    if (depth[graph] < depth[parent] + 1) depth[graph] = depth[parent] + 1;
    return depth[graph] <= MCC_PLAN_MAX_GRAPH_DEPTH;
  }

  // Everything is in the GPU's memory. What is read of it, nodes read.
  bool check_device() {
    if (!has_device_nodes(plan_) && !targets_.is_for_gpu) return true;
    for (uint64_t g = 0; g < plan_.graphs_count; ++g) {
      const mcc_plan_range code = plan_.graphs[g].code;
      for (uint32_t i = code.begin; i < code.begin + code.count; ++i)
        if (plan_.code[i].op == MCC_SHAPE_load || plan_.code[i].op == MCC_SHAPE_grow)
          return fault("its shape code for a GPU");
    }
    for (uint64_t i = 0; i < plan_.code_count; ++i)
      if (plan_.code[i].op == MCC_SHAPE_load && !is_static(plan_.code[i].b))
        return fault("its shape code for a GPU");
    for (uint64_t i = 0; i < plan_.nodes_count; ++i) {
      const uint32_t kind = plan_.nodes[i].kind;
      if (kind == MCC_NODE_kernel || kind == MCC_NODE_host || kind == MCC_NODE_text)
        return fault("node %llu among those for a GPU", static_cast<unsigned long long>(i));
    }
    const bool has_blocks = is_walked(plan_);
    for (uint64_t i = 0; i < plan_.values_count; ++i) {
      const mcc_plan_value& value = plan_.values[i];
      if (value.storage == MCC_STORAGE_scratch || (value.storage == MCC_STORAGE_heap && !has_blocks))
        return fault("value %llu for a GPU", static_cast<unsigned long long>(i));
    }
    return true;
  }

  bool is_value_list(mcc_plan_range range) const {
    if (!is_range(range, plan_.indices_count)) return false;
    for (uint32_t i = 0; i < range.count; ++i) {
      if (plan_.indices[range.begin + i] >= plan_.values_count) return false;
    }
    return true;
  }

  const Plan& plan_;
  const PlanTargets targets_;
  mcc_error* const error_;
};

mcc_status check_header(const void* bytes, uint64_t size, mcc_error* error) {
  if (bytes == nullptr || size < sizeof(mcc_plan_header)) {
    return fail(error, MCC_BAD_MODEL, "the model has no plan");
  }
  if (reinterpret_cast<uintptr_t>(bytes) % 8 != 0) {
    return fail(error, MCC_BAD_MODEL, "the model's plan is not aligned");
  }
  const auto& header = *static_cast<const mcc_plan_header*>(bytes);
  if (std::memcmp(header.magic, MCC_PLAN_MAGIC, sizeof header.magic) != 0) {
    return fail(error, MCC_BAD_MODEL, "the model's plan does not start as one");
  }
  if (header.version != MCC_PLAN_VERSION) {
    return fail(error, MCC_BAD_MODEL, "the model's plan has version %u, this runtime reads version %u",
                header.version, MCC_PLAN_VERSION);
  }
  if (header.header_size != sizeof(mcc_plan_header) || header.total_size != size) {
    return fail(error, MCC_BAD_MODEL, "the model's plan is damaged: its size");
  }
  const auto* raw = static_cast<const unsigned char*>(bytes);
  if (mcc_plan_checksum(raw + MCC_PLAN_CHECKED_FROM, size - MCC_PLAN_CHECKED_FROM) != header.checksum) {
    return fail(error, MCC_BAD_MODEL, "the model's plan is damaged: its checksum");
  }
  return MCC_OK;
}

// Sets `records` and `count` from the table; false when the section is not within the plan.
template <typename T>
bool open_section(const mcc_plan_header* header, uint64_t section, const T** records, uint64_t* count) {
  const mcc_plan_section& entry = header->sections[section];
  uint64_t bytes = 0;
  if (entry.offset % 8 != 0 || __builtin_mul_overflow(entry.count, sizeof(T), &bytes) ||
      !is_within(entry.offset, bytes, header->total_size)) {
    return false;
  }
  *records = reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(header) + entry.offset);
  *count = entry.count;
  return true;
}

}  // namespace

bool is_walked(const Plan& plan) {
  for (uint64_t i = 0; i < plan.nodes_count; ++i)
    if (plan.nodes[i].kind != MCC_NODE_device && plan.nodes[i].kind != MCC_NODE_copy) return true;
  return false;
}

bool has_device_nodes(const Plan& plan) {
  for (uint64_t i = 0; i < plan.nodes_count; ++i)
    if (plan.nodes[i].kind == MCC_NODE_device) return true;
  return false;
}

mcc_status open_plan(const void* bytes, uint64_t size, const PlanTargets& targets, Plan* plan, mcc_error* error) {
  const mcc_status status = check_header(bytes, size, error);
  if (status != MCC_OK) return status;
  plan->header = static_cast<const mcc_plan_header*>(bytes);
#define MCC_OPEN(name, type)                                                                    \
  if (!open_section(plan->header, MCC_PLAN_SECTION_##name, &plan->name, &plan->name##_count)) { \
    return fail(error, MCC_BAD_MODEL, "the model's plan is damaged: the place of its " #name);  \
  }
  MCC_PLAN_SECTIONS(MCC_OPEN)
#undef MCC_OPEN
  mcc_error reason;
  if (!Checker(*plan, targets, &reason).check()) {
    return fail(error, reason.status, "%s", reason.message);
  }
  return MCC_OK;
}

}  // namespace mcc::runtime
