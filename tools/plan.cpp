#include "tools/plan.h"

#include <algorithm>
#include <map>

#include "graph/elements.h"
#include "graph/op.h"
#include "tensor/kernel_abi.h"
#include "tools/shape_program.h"

namespace mcc::tools {
namespace {

using codegen::PlanNode;
using codegen::PlanValue;
using graph::Place;
using graph::ValueId;

static_assert(tensor::kBufferAlignment == MCC_BUFFER_ALIGNMENT, "what kernels assume is what the runtime keeps");

int64_t aligned(int64_t bytes) { return (bytes + MCC_BUFFER_ALIGNMENT - 1) / MCC_BUFFER_ALIGNMENT * MCC_BUFFER_ALIGNMENT; }

class PlanBuilder {
 public:
  PlanBuilder(codegen::ModelLibrary& library, const graph::Graph& g, const std::vector<graph::KernelGroup>& groups,
              const KernelSet& kernels, const graph::MemoryPlan& memory)
      : library_(library), plan_(library.plan), g_(g), groups_(groups), kernels_(kernels), memory_(memory),
        index_of_(g.values.size(), MCC_PLAN_NONE), shapes_(plan_, g) {}

  void run() {
    plan_.graphs.resize(1);
    for (const graph::Computed& c : memory_.computed) shapes_.define(c.name, c.value);
    plan_.arena_size = shapes_.quantity(memory_.arena_size);
    for (ValueId v : g_.inputs) plan_.graphs[0].inputs.push_back(value(v));
    for (size_t i = 0; i < groups_.size(); ++i) add_group(i);
    add_outputs();
    for (const Kernel& k : kernels_.kernels) {
      if (!k.device.empty()) continue;  // of a GPU: in the library's device code
      library_.kernels.push_back(k.symbol);
      library_.objects.push_back(k.object.bytes);
      plan_.scratch_per_thread =
          std::max(plan_.scratch_per_thread, static_cast<uint64_t>(k.memory.scratch_per_thread));
    }
    library_.weights_size = static_cast<uint64_t>(weights_size_);
  }

 private:
  // The plan's value for a value of the graph.
  uint32_t value(ValueId v) {
    uint32_t& index = index_of_[static_cast<size_t>(v)];
    if (index != MCC_PLAN_NONE) return index;
    const graph::Value& source = g_.value(v);
    PlanValue out;
    out.name = source.name;
    out.dtype = codegen::to_dtype(source.type.element);
    for (const tensor::Expr& d : source.type.shape) out.dims.push_back(shapes_.quantity(d));
    const Place& place = memory_.places[static_cast<size_t>(v)];
    switch (place.kind) {
      case Place::Kind::arena:
        out.storage = MCC_STORAGE_arena;
        out.offset = offset_of(place);
        break;
      case Place::Kind::input:
        out.storage = MCC_STORAGE_input;
        out.index = static_cast<uint32_t>(place.index);
        out.offset = place.offset;
        break;
      case Place::Kind::output:
        out.storage = MCC_STORAGE_output;
        out.index = static_cast<uint32_t>(place.index);
        out.offset = place.offset;
        break;
      case Place::Kind::constant:
        out.storage = MCC_STORAGE_weights;
        out.offset = weight(*g_.value(static_cast<ValueId>(place.index)).constant) + place.offset;
        break;
      case Place::Kind::none: MCC_UNREACHABLE("value ", source.name, " has no place");
    }
    index = add(std::move(out));
    return index;
  }

  uint32_t add(PlanValue v) {
    plan_.values.push_back(std::move(v));
    return static_cast<uint32_t>(plan_.values.size() - 1);
  }

  // Offset of the constant's bytes in the weights; constants that share bytes are stored once.
  int64_t weight(const graph::Constant& c) {
    auto [entry, is_new] = weights_.try_emplace(c.bytes().data(), weights_size_);
    if (is_new) {
      library_.weights.push_back({static_cast<uint64_t>(weights_size_), c.bytes()});
      weights_size_ = aligned(weights_size_ + std::max<int64_t>(1, static_cast<int64_t>(c.bytes().size())));
    }
    return entry->second;
  }

  codegen::Quantity offset_of(const Place& place) {
    if (!place.start.defined()) return place.index;
    return shapes_.quantity(place.index == 0 ? tensor::Expr(place.start) : place.start + place.index);
  }

  uint32_t bytes_value(mcc_storage storage, codegen::Quantity offset, codegen::Quantity bytes) {
    PlanValue v;
    v.dtype = MCC_DTYPE_u8;
    v.dims = {bytes};
    v.storage = storage;
    v.offset = offset;
    return add(std::move(v));
  }

  void add_group(size_t index) {
    const graph::KernelGroup& group = groups_[index];
    if (group.kind == graph::KernelGroup::Kind::view || group.kind == graph::KernelGroup::Kind::join) return;
    const Kernel& kernel = kernels_.kernels[static_cast<size_t>(kernels_.of_group[index])];
    PlanNode node;
    if (!kernel.device.empty()) node.kind = MCC_NODE_device;
    node.target = static_cast<uint32_t>(kernels_.of_group[index]);
    for (ValueId v : group.inputs) node.args.push_back(value(v));
    for (ValueId v : group.outputs) node.args.push_back(value(v));
    const auto& workspaces = memory_.workspaces[index];
    for (const graph::Workspace& w : workspaces)
      node.args.push_back(bytes_value(MCC_STORAGE_arena, offset_of(w.place), shapes_.quantity(w.bytes)));
    size_t written = group.outputs.size() + workspaces.size();
    if (kernel.memory.scratch_per_thread > 0) {
      node.args.push_back(bytes_value(MCC_STORAGE_scratch, 0, kernel.memory.scratch_per_thread));
      ++written;
    }
    node.output_count = static_cast<uint32_t>(written);
    for (const tensor::Var& d : kernel.func.dims) node.dims.push_back(shapes_.quantity(d));
    node.name = kernel.name;
    node.sources = origins(g_, group);
    node.schedule = provenance_text(kernel.id, kernel.schedules);
    const tensor::SymbolicWork work = kernel.func.dims.empty() ? tensor::SymbolicWork{kernel.work.flops, kernel.work.bytes}
                                                               : tensor::symbolic_work_of(kernel.func);
    node.flops = shapes_.quantity(work.flops);
    node.bytes = shapes_.quantity(work.bytes);
    plan_.graphs[0].nodes.push_back(std::move(node));
  }

  void add_outputs() {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      uint32_t index = value(g_.outputs[i]);
      // Each output has its own name, also where two are the same value.
      plan_.graphs[0].outputs.push_back(index);
    }
  }

  codegen::ModelLibrary& library_;
  codegen::PlanDesc& plan_;
  const graph::Graph& g_;
  const std::vector<graph::KernelGroup>& groups_;
  const KernelSet& kernels_;
  const graph::MemoryPlan& memory_;
  std::vector<uint32_t> index_of_;
  ShapeProgram shapes_;
  std::map<const std::byte*, int64_t> weights_;
  int64_t weights_size_ = 0;
};

}  // namespace

void fill_library(codegen::ModelLibrary& library, const graph::Graph& graph,
                  const std::vector<graph::KernelGroup>& groups, const KernelSet& kernels,
                  const graph::MemoryPlan& memory) {
  PlanBuilder(library, graph, groups, kernels, memory).run();
}

}  // namespace mcc::tools
