#include "tools/plan.h"

#include <algorithm>
#include <map>

#include "graph/elements.h"
#include "graph/op.h"
#include "graph/ops/control.h"
#include "graph/ops/mcc_text.h"
#include "graph/ops/random.h"
#include "graph/passes/aliases.h"
#include "graph/passes/regions.h"
#include "tensor/kernel_abi.h"
#include "tools/plan_device.h"
#include "tools/plan_text.h"
#include "tools/shape_program.h"

namespace mcc::tools {
namespace {

using codegen::PlanNode;
using codegen::PlanValue;
using codegen::Quantity;
using graph::Node;
using graph::Place;
using graph::ValueId;

static_assert(graph::kExecutionBits == MCC_DRAW_EXECUTION_BITS, "the interpreter draws as the runtime does");
static_assert(tensor::kBufferAlignment == MCC_BUFFER_ALIGNMENT, "what kernels assume is what the runtime keeps");

int64_t aligned(int64_t bytes) { return (bytes + MCC_BUFFER_ALIGNMENT - 1) / MCC_BUFFER_ALIGNMENT * MCC_BUFFER_ALIGNMENT; }

class PlanBuilder {
 public:
  PlanBuilder(codegen::ModelLibrary& library, const graph::Graph& g, const std::vector<graph::KernelGroup>& groups,
              const KernelSet& kernels, const graph::MemoryPlan& memory)
      : library_(library), plan_(library.plan), g_(g), groups_(groups), kernels_(kernels), memory_(memory),
        aliases_(g, groups), index_of_(g.values.size(), MCC_PLAN_NONE), shapes_(plan_, g, [this](ValueId v) { return value(v); }) {}

  void run() {
    plan_.graphs.resize(1);
    group_of_.resize(g_.nodes.size());
    for (size_t i = 0; i < groups_.size(); ++i)
      for (graph::NodeId n : groups_[i].nodes) group_of_[static_cast<size_t>(n)] = i;
    is_checked_.resize(g_.equalities.size());
    plan_.heap_count = static_cast<uint32_t>(memory_.blocks);
    for (const graph::Computed& c : memory_.computed) shapes_.define(c.name, c.value);
    plan_.arena_size = shapes_.quantity(memory_.arena_size);
    for (ValueId v : g_.inputs) plan_.graphs[0].inputs.push_back(value(v));
    const bool has_texts = std::any_of(groups_.begin(), groups_.end(), [&](const graph::KernelGroup& g) {
      return g.kind == graph::KernelGroup::Kind::host && graph::is_text_op(*g_.node(g.nodes[0]).op);
    });
    if (has_texts) nodes().push_back(text_table(g_.texts));
    add_region({});
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
      case Place::Kind::heap:
        out.storage = MCC_STORAGE_heap;
        out.index = static_cast<uint32_t>(place.index);
        out.offset = place.offset;
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

  uint32_t bytes_value(mcc_storage storage, int64_t index, Quantity offset, Quantity bytes) {
    PlanValue v;
    v.dtype = MCC_DTYPE_u8;
    v.dims = {bytes};
    v.storage = storage;
    v.index = static_cast<uint32_t>(index);
    v.offset = offset;
    return add(std::move(v));
  }

  void add_region(const graph::ControlRegion& region) {
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].region == region) {
        add_group(i);
        read_sizes(groups_[i]);
      }
    const graph::NodeId control = region.control;
    check_equalities(control < 0 ? groups_.size() : group_of_[static_cast<size_t>(control)], region);
    flush({});
  }

  // What the group makes that is a size is read at once: its memory may be another's later.
  void read_sizes(const graph::KernelGroup& group) {
    for (size_t i = 0; i < g_.dims.size(); ++i) {
      const graph::DimSource& source = g_.dim_sources[i];
      const bool is_its = source.kind == graph::DimSource::Kind::element && std::count(group.outputs.begin(), group.outputs.end(), source.value) != 0;
      if (is_its) shapes_.quantity(g_.dims[i]);
    }
  }

  // Adds a graph with what `fill` adds; its index.
  template <class F>
  uint32_t add_graph(const std::string& name, F fill) {
    const size_t outer = graph_;
    graph_ = plan_.graphs.size();
    plan_.graphs.emplace_back();
    plan_.graphs.back().name = name;
    shapes_.open_scope();
    const auto index = static_cast<uint32_t>(graph_);
    fill();
    shapes_.close_scope();
    graph_ = outer;
    return index;
  }

  std::vector<PlanNode>& nodes() { return plan_.graphs[graph_].nodes; }

  // Behind the code that computes the sizes it needs.
  void add_node(PlanNode node) {
    flush(node.sources);
    nodes().push_back(std::move(node));
  }

  void flush(const std::vector<std::string>& sources) {
    PlanNode sizes;
    sizes.kind = MCC_NODE_shape;
    sizes.code = shapes_.take_pending();
    sizes.name = "sizes";
    sizes.sources = sources;
    if (!sizes.code.empty()) nodes().push_back(std::move(sizes));
  }

  // Makes room for a value that lies in a block.
  void grow_block(ValueId v) {
    const Place& place = memory_.places[static_cast<size_t>(v)];
    if (place.kind != Place::Kind::heap) return;
    const graph::TensorType& type = g_.value(v).type;
    shapes_.grow(static_cast<uint32_t>(place.index), shapes_.product(type.shape, byte_size(type.element)), g_.value(v).name);
  }

  // Nothing where both are the same memory.
  void add_copy(uint32_t from, uint32_t to, const Node& node) {
    const PlanValue &a = plan_.values[from], &b = plan_.values[to];
    if (a.storage == b.storage && a.index == b.index && a.offset == b.offset) return;
    PlanNode copy;
    copy.kind = MCC_NODE_copy;
    copy.args = {from, to};
    copy.output_count = 1;
    copy.name = "copy";
    copy.sources = node.origins;
    add_node(std::move(copy));
  }

  // ---- Control flow ----

  void add_control(const graph::KernelGroup& group) {
    const Node& node = g_.node(group.nodes[0]);
    if (node.op->control == graph::Control::choose) add_choice(node);
    if (node.op->control == graph::Control::loop_end) add_loop(node);
    // A loop's begin is done at its end.
  }

  void add_choice(const Node& node) {
    for (ValueId v : node.outputs) {
      declare_own_dims(v);
      value(v);
    }
    PlanNode choice;
    choice.kind = MCC_NODE_if;
    choice.args = {value(node.inputs[0])};
    choice.name = "if";
    choice.sources = node.origins;
    flush(node.origins);
    choice.target = add_branch(node, 0);
    choice.other = add_branch(node, 1);
    add_node(std::move(choice));
  }

  // Dimensions of its result that the node sets get a slot.
  void declare_own_dims(ValueId v) {
    for (size_t i = 0; i < g_.dims.size(); ++i) {
      const graph::DimSource& source = g_.dim_sources[i];
      if (source.kind == graph::DimSource::Kind::node && source.value == v) shapes_.declare(g_.dims[i]);
    }
  }

  uint32_t add_branch(const Node& node, int branch) {
    const size_t results = node.outputs.size();
    return add_graph(branch == 0 ? "then" : "else", [&] {
      add_region({node_of(node), branch});
      for (size_t i = 0; i < results; ++i) {
        const ValueId from = node.inputs[1 + i + (branch == 0 ? 0 : results)], to = node.outputs[i];
        const graph::Shape &shape = g_.value(to).type.shape, &taken = g_.value(from).type.shape;
        for (size_t d = 0; d < shape.size(); ++d)
          if (is_own_dim(to, shape[d])) shapes_.assign(shapes_.quantity(shape[d]), shapes_.quantity(taken[d]));
        grow_block(to);
        add_copy(value(from), value(to), node);
      }
      flush(node.origins);
    });
  }

  bool is_own_dim(ValueId v, const tensor::Expr& dim) const {
    for (size_t i = 0; i < g_.dims.size(); ++i)
      if (g_.dims[i].same_as(dim)) return g_.dim_sources[i].kind == graph::DimSource::Kind::node && g_.dim_sources[i].value == v;
    return false;
  }

  void add_loop(const Node& end) {
    const Node& begin = g_.node(begin_of_loop(g_, end));
    const size_t states = states_of(end);
    for (size_t i = 0; i < begin.outputs.size(); ++i) take_over_state(begin.inputs[i], begin.outputs[i], i > 0, begin);
    const std::optional<Quantity> trips = declare_trips(end, states);
    PlanNode loop;
    loop.kind = MCC_NODE_loop;
    loop.dims = {most_trips(end)};
    if (end.inputs[1] != graph::kNoValue) loop.args = {value(begin.outputs[0])};
    loop.name = "loop";
    loop.sources = end.origins;
    if (trips) clear_own_dims(end, states);
    flush(end.origins);
    Quantity number = 0;
    loop.target = add_graph("body", [&] {
      number = declare_iteration(begin);
      add_region({node_of(end), 0});
      collect(end, states, number);
      if (trips) shapes_.assign(*trips, shapes_.sum(number, 1));
      pass_on(end);
      flush(end.origins);
    });
    loop.other = static_cast<uint32_t>(MCC_SLOT_OF_QUANTITY(number));
    add_node(std::move(loop));
    for (size_t i = 0; i < states; ++i) take_over_state(begin.outputs[i + 1], end.outputs[i], true, end);
  }

  // A state with those of its dimensions that change: into the loop, and out of it.
  void take_over_state(ValueId from, ValueId to, bool has_own_dims, const Node& node) {
    if (has_own_dims) declare_own_dims(to);
    const graph::Shape &before = g_.value(from).type.shape, &shape = g_.value(to).type.shape;
    for (size_t d = 0; has_own_dims && d < shape.size(); ++d)
      if (is_own_dim(to, shape[d])) shapes_.assign(shapes_.quantity(shape[d]), shapes_.quantity(before[d]));
    const uint32_t target = value(to);
    // What is computed here of dimensions that change is not known behind it.
    shapes_.open_scope();
    grow_block(to);
    add_copy(value(from), target, node);
    shapes_.close_scope();
  }

  Quantity most_trips(const Node& end) {
    const ValueId v = end.inputs[0];
    if (v == graph::kNoValue) return INT64_MAX;
    const graph::Value& most = g_.value(v);
    return most.constant ? std::max<int64_t>(most.constant->int_at(0), 0) : shapes_.quantity(most.elements[0]);
  }

  // Where there is no iteration.
  void clear_own_dims(const Node& end, size_t states) {
    for (size_t i = states; i < end.outputs.size(); ++i)
      for (const tensor::Expr& d : g_.value(end.outputs[i]).type.shape)
        if (is_own_dim(end.outputs[i], d)) shapes_.assign(shapes_.quantity(d), 0);
  }

  // The slot for the number of all iterations, if there are tensors of all of them.
  std::optional<Quantity> declare_trips(const Node& end, size_t states) {
    if (end.outputs.size() == states) return std::nullopt;
    for (size_t i = states; i < end.outputs.size(); ++i) {
      declare_own_dims(end.outputs[i]);
      value(end.outputs[i]);
    }
    return shapes_.quantity(g_.value(end.outputs[states]).type.shape[0]);
  }

  Quantity declare_iteration(const Node& begin) {
    for (size_t i = 0; i < g_.dims.size(); ++i) {
      const graph::DimSource& source = g_.dim_sources[i];
      if (source.kind == graph::DimSource::Kind::node && source.value == begin.outputs[0]) return shapes_.declare(g_.dims[i]);
    }
    return codegen::slot_quantity(plan_.slot_count++);  // nobody asks for it
  }

  // Copies what is collected of an iteration behind that of those before it.
  void collect(const Node& end, size_t states, Quantity number) {
    for (size_t i = states; i < end.outputs.size(); ++i) {
      const ValueId from = end.inputs[2 + i], to = end.outputs[i];
      const graph::TensorType& type = g_.value(from).type;
      for (size_t d = 0; d < type.shape.size(); ++d) {
        const tensor::Expr& collected = g_.value(to).type.shape[d + 1];
        if (!is_own_dim(to, collected)) continue;
        const Quantity slot = shapes_.quantity(collected), now = shapes_.quantity(type.shape[d]);
        shapes_.check_unchanged(number, slot, now, text("loop ", end.name, ": dimension ", d, " of ", g_.value(to).name, " is not the same in all iterations"));
        shapes_.assign(slot, now);
      }
      const uint32_t source = value(from);
      const Place& place = memory_.places[static_cast<size_t>(to)];
      const Quantity bytes = shapes_.product(type.shape, byte_size(type.element));
      PlanValue part = plan_.values[source];
      part.storage = MCC_STORAGE_heap;
      part.index = static_cast<uint32_t>(place.index);
      part.offset = shapes_.multiply(number, bytes);
      shapes_.grow(part.index, shapes_.sum(part.offset, bytes), g_.value(to).name, part.offset);
      add_copy(source, add(std::move(part)), end);
    }
  }

  // What an iteration hands on to the next one. States that trade places go by way of a workspace.
  void pass_on(const Node& end) {
    std::vector<graph::StateCopy> copies = graph::state_copies(g_, aliases_, end);
    const auto& rooms = memory_.workspaces[group_of_[static_cast<size_t>(node_of(end))]];
    std::vector<uint32_t> from;
    size_t next = 0;
    for (const graph::StateCopy& copy : copies) {
      from.push_back(value(copy.from));
      if (!copy.is_traded) continue;
      PlanValue room = plan_.values[from.back()];
      const PlanValue& place = plan_.values[workspace(rooms[next++])];
      room.storage = place.storage;
      room.index = place.index;
      room.offset = place.offset;
      const uint32_t way = add(std::move(room));
      add_copy(from.back(), way, end);
      from.back() = way;
    }
    const std::vector<NewSize> sizes = sizes_of_states(copies);
    for (size_t i = 0; i < copies.size(); ++i) add_copy(from[i], room_of_state(from[i], copies[i]), end);
    for (const NewSize& size : sizes) shapes_.assign(size.slot, size.now);
  }

  struct NewSize {
    Quantity slot, now;
  };

  // Of dimensions that change; some may be those of others before.
  std::vector<NewSize> sizes_of_states(const std::vector<graph::StateCopy>& copies) {
    std::vector<NewSize> sizes;
    for (const graph::StateCopy& copy : copies) {
      const graph::Shape &shape = g_.value(copy.to).type.shape, &now = g_.value(copy.from).type.shape;
      for (size_t d = 0; d < shape.size(); ++d)
        if (is_own_dim(copy.to, shape[d])) sizes.push_back({shapes_.quantity(shape[d]), shapes_.sum(shapes_.quantity(now[d]), 0)});
    }
    return sizes;
  }

  // Where the state lies, with the dimensions of what it becomes.
  uint32_t room_of_state(uint32_t from, const graph::StateCopy& copy) {
    const uint32_t to = value(copy.to);
    const Place& place = memory_.places[static_cast<size_t>(copy.to)];
    if (place.kind != Place::Kind::heap) return to;
    const PlanValue state = plan_.values[to];
    PlanValue room = plan_.values[from];
    if (room.storage == state.storage && room.index == state.index && room.offset == state.offset) return from;
    room.storage = state.storage;
    room.index = state.index;
    room.offset = state.offset;
    const graph::TensorType& type = g_.value(copy.from).type;
    shapes_.grow(room.index, shapes_.product(type.shape, byte_size(type.element)), g_.value(copy.to).name);
    return add(std::move(room));
  }

  graph::NodeId node_of(const Node& node) const { return static_cast<graph::NodeId>(&node - g_.nodes.data()); }

  uint32_t workspace(const graph::Workspace& w) {
    const Quantity bytes = shapes_.quantity(w.bytes);
    if (w.place.kind == Place::Kind::arena) return bytes_value(MCC_STORAGE_arena, 0, offset_of(w.place), bytes);
    shapes_.grow(static_cast<uint32_t>(w.place.index), bytes, "a workspace");
    return bytes_value(MCC_STORAGE_heap, w.place.index, 0, bytes);
  }

  void add_group(size_t index) {
    const graph::KernelGroup& group = groups_[index];
    check_equalities(index, group.region);
    if (group.kind == graph::KernelGroup::Kind::control) return add_control(group);
    if (group.kind == graph::KernelGroup::Kind::view || group.kind == graph::KernelGroup::Kind::join) {
      // Their sizes are known from here on, not only where they are read first.
      for (ValueId v : group.outputs)
        if (g_.depends_on_data(g_.value(v).type.shape)) value(v);
      return;
    }
    if (group.kind == graph::KernelGroup::Kind::host)
      return graph::is_draw(*g_.node(group.nodes[0]).op) ? add_draw(group) : add_text(group);
    const Kernel& kernel = kernels_.kernels[static_cast<size_t>(kernels_.of_group[index])];
    PlanNode node;
    if (!kernel.device.empty()) node.kind = MCC_NODE_device;
    node.target = static_cast<uint32_t>(kernels_.of_group[index]);
    for (ValueId v : group.outputs) grow_block(v);
    for (ValueId v : group.inputs) node.args.push_back(value(v));
    for (ValueId v : group.outputs) node.args.push_back(value(v));
    const auto& workspaces = memory_.workspaces[index];
    for (const graph::Workspace& w : workspaces) node.args.push_back(workspace(w));
    size_t written = group.outputs.size() + workspaces.size();
    if (kernel.memory.scratch_per_thread > 0) {
      node.args.push_back(bytes_value(MCC_STORAGE_scratch, 0, 0, kernel.memory.scratch_per_thread));
      ++written;
    }
    node.output_count = static_cast<uint32_t>(written);
    for (const tensor::Var& d : kernel.func.dims) node.dims.push_back(shapes_.quantity(d));
    tensor::VarMap own;
    if (const std::optional<SharedMemory> shared = shared_memory(kernel, group)) {
      // Several nodes may have the kernel.
      const tensor::Var flag(text("in_place of ", g_.value(shared->output).name));
      shapes_.define_same_memory(flag, shared->input, shared->output);
      own.emplace(kernel.in_place->flag.get(), flag);
      node.dims.push_back(shapes_.quantity(flag));
    }
    for (const tensor::Expr& blocks : open_grid_sizes(kernel))
      node.dims.push_back(shapes_.quantity(tensor::substitute(blocks, own)));
    node.name = kernel.name;
    node.sources = origins(g_, group);
    node.schedule = provenance_text(kernel.id, kernel.schedules);
    const tensor::SymbolicWork work = kernel.func.dims.empty() ? tensor::SymbolicWork{kernel.work.flops, kernel.work.bytes}
                                                               : tensor::symbolic_work_of(kernel.func);
    // Not worth computing again in each run.
    if (!g_.depends_on_data(work.flops)) node.flops = shapes_.quantity(work.flops);
    if (!g_.depends_on_data(work.bytes)) node.bytes = shapes_.quantity(work.bytes);
    add_node(std::move(node));
  }

  void add_draw(const graph::KernelGroup& group) {
    const Node& source = g_.node(group.nodes[0]);
    const graph::Attributes& a = source.attributes;
    const mcc_plan_draw draw{static_cast<uint64_t>(a.integer("seed", 0)), a.has("seed") ? 1u : 0u,
                             static_cast<uint32_t>(a.integer("stream", 0))};
    PlanNode node;
    node.kind = MCC_NODE_draw;
    node.name = "draw";
    node.sources = source.origins;
    node.attributes.assign(reinterpret_cast<const char*>(&draw), sizeof draw);
    node.args = {value(source.outputs[0])};
    node.output_count = 1;
    add_node(std::move(node));
  }

  // Other operators without a kernel do not get here.
  void add_text(const graph::KernelGroup& group) {
    const Node& source = g_.node(group.nodes[0]);
    PlanNode node = text_node(source);
    std::vector<ValueId> outputs = source.outputs;
    std::erase(outputs, graph::kNoValue);
    for (ValueId v : outputs)
      grow_block(v);
    for (size_t i = 0; i < source.inputs.size(); ++i)
      if (!graph::is_embedded(g_, source, static_cast<int>(i))) node.args.push_back(value(source.inputs[i]));
    for (ValueId v : outputs)
      node.args.push_back(value(v));
    node.output_count = static_cast<uint32_t>(outputs.size());
    add_node(std::move(node));
  }

  // Those of dimensions that groups in front of this one make known, in a region that it is part of.
  void check_equalities(size_t index, const graph::ControlRegion& region) {
    for (size_t i = 0; i < g_.equalities.size(); ++i) {
      const graph::DimEquality& equality = g_.equalities[i];
      if (is_checked_[i] || !are_known(equality.a, index, region) || !are_known(equality.b, index, region)) continue;
      is_checked_[i] = true;
      shapes_.check_equal(equality.a, equality.b, equality.where);
    }
  }

  bool are_known(const tensor::Expr& e, size_t index, const graph::ControlRegion& region) const {
    const std::vector<ValueId> sources = g_.dim_operands(e);
    return std::all_of(sources.begin(), sources.end(), [&](ValueId v) {
      const graph::NodeId producer = g_.value(v).producer;
      if (producer < 0) return true;
      const size_t maker = group_of_[static_cast<size_t>(producer)];
      return maker < index && encloses(groups_[maker].region, region);
    });
  }

  bool encloses(const graph::ControlRegion& outer, graph::ControlRegion inner) const {
    while (inner != outer && inner.control >= 0) inner = groups_[group_of_[static_cast<size_t>(inner.control)]].region;
    return inner == outer;
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
  const graph::Aliases aliases_;
  std::vector<uint32_t> index_of_;
  std::vector<size_t> group_of_;  // of each node
  std::vector<bool> is_checked_;  // of each equality
  size_t graph_ = 0;              // that nodes are added to
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
