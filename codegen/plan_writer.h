// The plan of a model as the compiler builds it, and its bytes (runtime/include/mcc/plan_format.h
// has the meaning of every field). Needs no LLVM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mcc/abi.h"
#include "mcc/plan_format.h"
#include "support/element_type.h"

namespace mcc::codegen {

// A number, or a slot that holds one at run time.
using Quantity = mcc_quantity;
inline Quantity slot_quantity(uint32_t slot) { return MCC_QUANTITY_OF_SLOT(slot); }

// tf32 is how f32 is computed with: in memory it is f32.
mcc_dtype to_dtype(ElementType type);

// Whether a model can ask for it (a feature of the target that is not known here changes no
// kernel's instructions).
bool is_cpu_feature(std::string_view name);

struct PlanSymbol {
  std::string name;
  int64_t min = 0;
  int64_t max = INT64_MAX;
};

struct PlanInstruction {
  mcc_shape_op op = MCC_SHAPE_move;
  uint32_t slot = MCC_PLAN_NONE;
  Quantity a = 0, b = 0, c = 0;
  std::string message;
};

struct PlanValue {
  std::string name;
  mcc_dtype dtype = MCC_DTYPE_f32;
  std::vector<Quantity> dims;
  mcc_storage storage = MCC_STORAGE_arena;
  uint32_t index = 0;
  Quantity offset = 0;
};

struct PlanNode {
  mcc_node_kind kind = MCC_NODE_kernel;
  uint32_t target = 0;
  uint32_t other = MCC_PLAN_NONE;
  std::vector<uint32_t> args;  // values; what is written comes last
  uint32_t output_count = 0;
  std::vector<Quantity> dims;
  std::vector<PlanInstruction> code;
  std::string attributes;
  std::vector<std::string> sources;
  std::string name;
  std::string schedule;
  Quantity flops = 0;
  Quantity bytes = 0;
};

struct PlanGraph {
  std::string name;
  std::vector<PlanNode> nodes;
  std::vector<PlanInstruction> code;
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;
};

struct PlanDesc {
  std::vector<PlanSymbol> symbols;  // symbol i is slot i
  uint32_t slot_count = 0;          // symbols included
  uint32_t heap_count = 0;
  std::vector<PlanValue> values;
  std::vector<PlanGraph> graphs;  // graphs[0] is the model
  Quantity arena_size = 0;
  uint64_t weights_size = 0;
  uint64_t scratch_per_thread = 0;  // rounded up to MCC_BUFFER_ALIGNMENT
  std::vector<std::string> features;
  std::map<std::string, std::string> metadata;
};

// Deterministic. An index out of range is a bug of the caller.
std::vector<std::byte> write_plan(const PlanDesc& plan);

}  // namespace mcc::codegen
