#include "codegen/plan_writer.h"

#include <cstring>
#include <limits>

#include "codegen/sections.h"
#include "support/check.h"

namespace mcc::codegen {

mcc_dtype to_dtype(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return MCC_DTYPE_bool;
    case ElementType::i2:
      return MCC_DTYPE_i2;
    case ElementType::i4:
      return MCC_DTYPE_i4;
    case ElementType::i8:
      return MCC_DTYPE_i8;
    case ElementType::i16:
      return MCC_DTYPE_i16;
    case ElementType::i32:
      return MCC_DTYPE_i32;
    case ElementType::i64:
      return MCC_DTYPE_i64;
    case ElementType::u2:
      return MCC_DTYPE_u2;
    case ElementType::u4:
      return MCC_DTYPE_u4;
    case ElementType::u8:
      return MCC_DTYPE_u8;
    case ElementType::u16:
      return MCC_DTYPE_u16;
    case ElementType::u32:
      return MCC_DTYPE_u32;
    case ElementType::u64:
      return MCC_DTYPE_u64;
    case ElementType::f4e2m1:
      return MCC_DTYPE_f4e2m1;
    case ElementType::f8e8m0:
      return MCC_DTYPE_f8e8m0;
    case ElementType::f8e4m3:
      return MCC_DTYPE_f8e4m3;
    case ElementType::f8e4m3fnuz:
      return MCC_DTYPE_f8e4m3fnuz;
    case ElementType::f8e5m2:
      return MCC_DTYPE_f8e5m2;
    case ElementType::f8e5m2fnuz:
      return MCC_DTYPE_f8e5m2fnuz;
    case ElementType::bf16:
      return MCC_DTYPE_bf16;
    case ElementType::f16:
      return MCC_DTYPE_f16;
    case ElementType::tf32:
      return MCC_DTYPE_f32;
    case ElementType::f32:
      return MCC_DTYPE_f32;
    case ElementType::f64:
      return MCC_DTYPE_f64;
    case ElementType::string:
      return MCC_DTYPE_string;
  }
  MCC_UNREACHABLE("unknown element type");
}

bool is_cpu_feature(std::string_view name) {
#define MCC_IS_FEATURE(feature) \
  if (name == feature) return true;
  MCC_CPU_FEATURES(MCC_IS_FEATURE)
#undef MCC_IS_FEATURE
  return false;
}

namespace {

uint32_t narrow(uint64_t count) {
  MCC_CHECK(count < MCC_PLAN_NONE, "the plan of the model is too large");
  return static_cast<uint32_t>(count);
}

// Collects the records of all sections, then lays them out.
class PlanWriter {
 public:
  explicit PlanWriter(const PlanDesc& plan) : plan_(plan) {}

  std::vector<std::byte> write() {
    add_facts();
    for (const PlanValue& value : plan_.values)
      add_value(value);
    for (const PlanGraph& graph : plan_.graphs)
      add_graph(graph);
    return lay_out();
  }

 private:
  mcc_plan_string add_text(const std::string& text) { return texts_.add(text, strings_); }

  void check_quantity(Quantity quantity) const {
    MCC_CHECK(quantity >= 0 || MCC_SLOT_OF_QUANTITY(quantity) < plan_.slot_count, "no slot for ", quantity);
  }

  mcc_plan_range add_quantities(const std::vector<Quantity>& list) {
    for (Quantity quantity : list)
      check_quantity(quantity);
    const mcc_plan_range range = {narrow(quantities_.size()), narrow(list.size())};
    quantities_.insert(quantities_.end(), list.begin(), list.end());
    return range;
  }

  mcc_plan_range add_indices(const std::vector<uint32_t>& list) {
    for (uint32_t index : list) {
      MCC_CHECK(index < plan_.values.size() || index == MCC_PLAN_NONE, "no value ", index);
    }
    const mcc_plan_range range = {narrow(indices_.size()), narrow(list.size())};
    indices_.insert(indices_.end(), list.begin(), list.end());
    return range;
  }

  mcc_plan_range add_names(const std::vector<std::string>& list) {
    const mcc_plan_range range = {narrow(names_.size()), narrow(list.size())};
    for (const std::string& name : list)
      names_.push_back(add_text(name));
    return range;
  }

  mcc_plan_range add_bytes(const std::string& bytes) {
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    const mcc_plan_range range = {narrow(bytes_.size()), narrow(bytes.size())};
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return range;
  }

  mcc_plan_range add_code(const std::vector<PlanInstruction>& code) {
    const mcc_plan_range range = {narrow(code_.size()), narrow(code.size())};
    for (const PlanInstruction& instruction : code) {
      const bool has_result = instruction.op != MCC_SHAPE_check && instruction.op != MCC_SHAPE_grow;
      MCC_CHECK(!has_result || instruction.slot < plan_.slot_count, "no slot ", instruction.slot);
      mcc_plan_instruction record = {};
      record.op = instruction.op;
      record.slot = instruction.slot;
      record.a = instruction.a;
      record.b = instruction.b;
      record.c = instruction.c;
      record.message = add_text(instruction.message);
      code_.push_back(record);
    }
    return range;
  }

  void add_facts() {
    // std::map gives the order that the format wants.
    for (const auto& [key, value] : plan_.metadata)
      metadata_.push_back({add_text(key), add_text(value)});
    for (const std::string& feature : plan_.features) {
      MCC_CHECK(is_cpu_feature(feature), "the runtime does not know the feature ", feature);
      features_.push_back(add_text(feature));
    }
    for (const PlanSymbol& symbol : plan_.symbols) {
      symbols_.push_back({add_text(symbol.name), symbol.min, symbol.max});
    }
  }

  void add_value(const PlanValue& value) {
    MCC_CHECK(value.dims.size() <= MCC_MAX_RANK, "value ", value.name, " has rank ", value.dims.size());
    check_quantity(value.offset);
    mcc_plan_value record = {};
    record.name = add_text(value.name);
    record.dtype = static_cast<uint16_t>(value.dtype);
    record.rank = static_cast<uint16_t>(value.dims.size());
    record.dims = add_quantities(value.dims).begin;
    record.storage = value.storage;
    record.index = value.index;
    record.offset = value.offset;
    values_.push_back(record);
  }

  void add_node(const PlanNode& node) {
    MCC_CHECK(node.output_count <= node.args.size(), "node ", node.name);
    check_quantity(node.flops);
    check_quantity(node.bytes);
    mcc_plan_node record = {};
    record.kind = node.kind;
    record.target = node.target;
    record.other = node.other;
    record.output_count = node.output_count;
    record.args = add_indices(node.args);
    record.dims = add_quantities(node.dims);
    record.code = add_code(node.code);
    record.attributes = add_bytes(node.attributes);
    record.sources = add_names(node.sources);
    record.name = add_text(node.name);
    record.schedule = add_text(node.schedule);
    record.flops = node.flops;
    record.bytes = node.bytes;
    nodes_.push_back(record);
  }

  void add_graph(const PlanGraph& graph) {
    mcc_plan_graph record = {};
    record.name = add_text(graph.name);
    record.nodes = {narrow(nodes_.size()), narrow(graph.nodes.size())};
    for (const PlanNode& node : graph.nodes)
      add_node(node);
    record.code = add_code(graph.code);
    record.inputs = add_indices(graph.inputs);
    record.outputs = add_indices(graph.outputs);
    graphs_.push_back(record);
  }

  std::vector<std::byte> lay_out() {
    mcc_plan_header header = {};
    std::memcpy(header.magic, MCC_PLAN_MAGIC, sizeof header.magic);
    header.version = MCC_PLAN_VERSION;
    header.header_size = sizeof header;
    check_quantity(plan_.arena_size);
    header.arena_size = plan_.arena_size;
    header.weights_size = plan_.weights_size;
    header.scratch_per_thread =
        (plan_.scratch_per_thread + MCC_BUFFER_ALIGNMENT - 1) / MCC_BUFFER_ALIGNMENT * MCC_BUFFER_ALIGNMENT;
    header.slot_count = plan_.slot_count;
    header.heap_count = plan_.heap_count;

    std::vector<std::byte> out(sizeof header);
#define MCC_PLACE(name, type) place_section(header, MCC_PLAN_SECTION_##name, name##_, 8, out);
    MCC_PLAN_SECTIONS(MCC_PLACE)
#undef MCC_PLACE
    seal(header, MCC_PLAN_CHECKED_FROM, out);
    return out;
  }

  const PlanDesc& plan_;
  TextTable texts_;
#define MCC_SECTION_FIELD(name, type) std::vector<type> name##_;
  MCC_PLAN_SECTIONS(MCC_SECTION_FIELD)
#undef MCC_SECTION_FIELD
};

}  // namespace

std::vector<std::byte> write_plan(const PlanDesc& plan) {
  MCC_CHECK(!plan.graphs.empty(), "a plan without a graph");
  MCC_CHECK(plan.slot_count >= plan.symbols.size(), "fewer slots than symbols");
  return PlanWriter(plan).write();
}

}  // namespace mcc::codegen
