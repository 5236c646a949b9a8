#include "graph/passes/fuse.h"

#include <algorithm>
#include <map>

#include "graph/op.h"
#include "graph/ops/common.h"
#include "graph/passes/aliases.h"
#include "graph/passes/regions.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// What goes out of the model has memory of its own.
bool is_view(const Graph& g, const Node& node) { return node.op->is_view && !g.is_output(node.outputs[0]); }

// Whether the node's results are pieces of its operand.
bool gives_pieces(const Graph& g, const Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
    return v == kNoValue || (!g.is_output(v) && piece_offset(g, v));
  });
}

// Functions on as many operands as a node has are so many binary ones.
size_t operations(const Node& node) { return std::max<size_t>(node.inputs.size(), 2) - 1; }

// A kernel may become one expression, which is walked recursively and whose compilation takes more than linear time. No network
// comes near. It bounds a kernel's operands as well: a GPU's has 4 KiB for its parameters.
constexpr size_t kMostOperations = 128;

// Whether runs have to know values: then they may as well leave out what is not asked for.
bool is_of_data(const Graph& g) {
  return g.has_data_dims() || std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
           return !n.dead && n.op->control == Control::loop_end;
         });
}

class Fuse {
 public:
  Fuse(const Graph& g, bool in_rows)
      : g_(g),
        in_rows_(in_rows),
        chooses_in_kernels_(in_rows && !is_of_data(g)),
        users_(g.users()),
        group_of_(g.nodes.size(), -1),
        promised_(g.nodes.size(), -1),
        waits_(g.nodes.size(), false),
        loops_(loops_of_nodes(g)) {}

  std::vector<KernelGroup> run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (!g_.nodes[n].dead) place(static_cast<NodeId>(n));
    }
    return collect();
  }

 private:
  struct Group {
    std::vector<NodeId> nodes;
    size_t operations = 0;
    NodeId anchor = -1;
    bool closed = false;  // nothing may join
    bool is_view = false;
  };

  const Node& node(NodeId id) const { return g_.node(id); }
  const TensorType& type(ValueId v) const { return g_.value(v).type; }

  void place(NodeId id) {
    const Node& n = node(id);
    FusionClass fusion = n.op->fusion;
    bool open = fusion != FusionClass::opaque && fusion != FusionClass::host && !is_view(g_, n);
    int joined = promised_[static_cast<size_t>(id)];
    if (joined < 0 && waits_for_user(id)) {
      waits_[static_cast<size_t>(id)] = true;
      return;
    }
    const bool takes_producers = joined < 0 && open && fusion != FusionClass::contraction;
    if (takes_producers) joined = best_producer_group(id);
    if (place_waiting(id, joined) && takes_producers && joined < 0) joined = best_producer_group(id);
    if (joined < 0 && fusion == FusionClass::elementwise) joined = open_diamond(id);
    if (joined < 0) {
      joined = new_group();
      Group& group = groups_.back();
      group.is_view = is_view(g_, n) || gives_pieces(g_, n) || gives_row_parts(n);
      group.closed = !open || group.is_view;
    }
    join(id, joined);
    Group& group = groups_[static_cast<size_t>(joined)];
    if (fusion == FusionClass::contraction || fusion == FusionClass::reduction ||
        fusion == FusionClass::opaque) {
      group.anchor = id;
    }
    if (fusion == FusionClass::elementwise || fusion == FusionClass::injective) absorb_siblings(id, joined);
  }

  int new_group() {
    groups_.push_back({});
    return static_cast<int>(groups_.size()) - 1;
  }

  void join(NodeId id, int index) {
    Group& group = groups_[static_cast<size_t>(index)];
    group.nodes.push_back(id);
    if (promised_[static_cast<size_t>(id)] < 0) group.operations += operations(node(id));
    group_of_[static_cast<size_t>(id)] = index;
  }

  // ---- Conversions to a wider type ----

  // Whether the node, a conversion to a wider type, is better at the beginning of its user's kernel than at the end of the one that
  // makes what it converts: the narrower tensor goes to memory then. Which of them the user joins is seen when its turn comes.
  bool waits_for_user(NodeId id) const {
    const ValueId x = widened_operand(g_, node(id));
    const NodeId maker = x == kNoValue ? -1 : g_.value(x).producer;
    if (maker < 0) return false;
    const int index = group_of_[static_cast<size_t>(maker)];
    if (groups_[static_cast<size_t>(index)].anchor < 0 || !may_join(id, x, index)) return false;
    const NodeId user = single_user(g_, users_, node(id).outputs[0]);
    return user >= 0 && reads_elements_once(user);
  }

  // And takes what makes its operand into its kernel.
  bool reads_elements_once(NodeId id) const {
    const Node& n = node(id);
    if (is_view(g_, n) || gives_pieces(g_, n) || gives_row_parts(n) || joins_pieces(g_, n) ||
        (in_rows_ && joins_rows(g_, n)))
      return false;
    return graph::reads_elements_once(*n.op);
  }

  // Places the node's operands that wait for it: where it joins the group that one converts the result of, that one goes before it,
  // others begin groups of their own. Whether there are such.
  bool place_waiting(NodeId id, int joined) {
    bool any = false;
    for (ValueId v : node(id).inputs) {
      const NodeId p = v == kNoValue ? -1 : g_.value(v).producer;
      if (p < 0 || !waits_[static_cast<size_t>(p)]) continue;
      waits_[static_cast<size_t>(p)] = false;
      const int before = group_before(p);
      join(p, before == joined ? joined : new_group());
      any |= before != joined;
    }
    return any;
  }

  // Of what makes the operand of a waiting node.
  int group_before(NodeId waiting) const {
    return group_of_[static_cast<size_t>(g_.value(widened_operand(g_, node(waiting))).producer)];
  }

  // ---- Groups that make the operands ----

  // The group among those that make the node's inputs which it joins; anchored groups first (their result never goes
  // to memory then), later ones first.
  int best_producer_group(NodeId id) {
    int best = -1;
    for (ValueId v : node(id).inputs) {
      NodeId p = v == kNoValue ? -1 : g_.value(v).producer;
      if (p < 0) continue;
      const bool waits = waits_[static_cast<size_t>(p)];
      int candidate = waits ? group_before(p) : group_of_[static_cast<size_t>(p)];
      if (candidate == best || !(waits ? may_join_behind(id, p, candidate) : may_join(id, v, candidate)))
        continue;
      if (best < 0 || rank(candidate) > rank(best)) best = candidate;
    }
    return best;
  }

  std::pair<bool, int> rank(int group) const {
    return {groups_[static_cast<size_t>(group)].anchor >= 0, group};
  }

  bool may_join(NodeId id, ValueId through, int index) const {
    const Group& group = groups_[static_cast<size_t>(index)];
    if (group.closed || group.nodes.back() != g_.value(through).producer) return false;
    if (group.operations + operations(node(id)) > kMostOperations) return false;
    // The group's results so far are used by this node alone: then no other group can stand between.
    for (NodeId member : group.nodes) {
      for (ValueId out : node(member).outputs) {
        if (out == kNoValue) continue;
        if (g_.is_output(out)) return false;
        for (NodeId user : users_[static_cast<size_t>(out)]) {
          if (user != id && group_of_[static_cast<size_t>(user)] != index) return false;
        }
      }
    }
    return has_form_for(id, through, group);
  }

  // The same behind a waiting node, which joins first.
  bool may_join_behind(NodeId id, NodeId waiting, int index) const {
    const Group& group = groups_[static_cast<size_t>(index)];
    return may_join(waiting, widened_operand(g_, node(waiting)), index) &&
           group.operations + operations(node(waiting)) + operations(node(id)) <= kMostOperations &&
           has_form_for(id, node(waiting).outputs[0], group);
  }

  bool has_form_for(NodeId id, ValueId through, const Group& group) const {
    const Node& n = node(id);
    FusionClass fusion = n.op->fusion;
    // What iterations of a loop do not change is not computed in each of them.
    if (group.anchor >= 0 && loops_[static_cast<size_t>(id)] != loops_[static_cast<size_t>(group.anchor)]) return false;
    if (group.anchor < 0) {
      // Injective so far. A reduction takes it as prologue when it reads it in its own shape.
      return fusion != FusionClass::reduction || is_cheap(group);
    }
    if (fusion != FusionClass::elementwise || n.outputs.size() != 1) return false;
    const TensorType& tail = type(through);
    return same_shape(tail.shape, type(n.outputs[0]).shape);
  }

  // Whether nothing outside of the group but the nodes of `inside` uses the node's results.
  bool is_enclosed(NodeId id, int index, const std::vector<NodeId>& inside) const {
    for (ValueId out : node(id).outputs) {
      if (out == kNoValue) continue;
      if (g_.is_output(out)) return false;
      for (NodeId user : users_[static_cast<size_t>(out)]) {
        bool in_group = group_of_[static_cast<size_t>(user)] == index;
        if (!in_group && std::find(inside.begin(), inside.end(), user) == inside.end()) return false;
      }
    }
    return true;
  }

  // x * sigmoid(x) and its like: paths that part at the tail of an anchored group and meet again. When all nodes
  // between are elementwise and of the tail's shape, they join together; the group that id and they join, or -1.
  int open_diamond(NodeId id) {
    for (ValueId v : node(id).inputs) {
      NodeId tail = v == kNoValue ? -1 : g_.value(v).producer;
      if (tail < 0) continue;
      int index = group_of_[static_cast<size_t>(tail)];
      Group& group = groups_[static_cast<size_t>(index)];
      if (group.closed || group.anchor < 0 || group.nodes.back() != tail) continue;
      if (loops_[static_cast<size_t>(id)] != loops_[static_cast<size_t>(tail)]) continue;
      std::vector<NodeId> members = diamond_below(id, index, type(v).shape);
      size_t together = group.operations;
      for (NodeId member : members)
        together += operations(node(member));
      if (together > kMostOperations) continue;
      for (NodeId member : members)
        promised_[static_cast<size_t>(member)] = index;
      group.operations = together;
      if (!members.empty()) return index;
    }
    return -1;
  }

  // The nodes from id on, in order, up to the one through which everything goes that the group's values reach.
  std::vector<NodeId> diamond_below(NodeId id, int index, const Shape& shape) const {
    std::vector<NodeId> inside;
    std::vector<NodeId> waiting{id};
    auto await_users = [&](NodeId of) {
      for (ValueId out : node(of).outputs) {
        if (out == kNoValue) continue;
        for (NodeId user : users_[static_cast<size_t>(out)]) {
          bool known = group_of_[static_cast<size_t>(user)] == index ||
                       std::find(waiting.begin(), waiting.end(), user) != waiting.end();
          if (!known) waiting.push_back(user);
        }
      }
    };
    const std::vector<NodeId>& above = groups_[static_cast<size_t>(index)].nodes;
    for (NodeId member : above)
      await_users(member);
    while (!waiting.empty() && inside.size() < kDiamondNodes) {
      auto first = std::min_element(waiting.begin(), waiting.end());
      NodeId next = *first;
      waiting.erase(first);
      const Node& n = node(next);
      bool fits = n.op->fusion == FusionClass::elementwise && n.outputs.size() == 1 &&
                  group_of_[static_cast<size_t>(next)] < 0 && promised_[static_cast<size_t>(next)] < 0 &&
                  loops_[static_cast<size_t>(next)] == loops_[static_cast<size_t>(id)] &&
                  same_shape(shape, type(n.outputs[0]).shape);
      if (!fits) return {};
      inside.push_back(next);
      auto enclosed = [&](NodeId m) { return is_enclosed(m, index, inside); };
      if (std::all_of(above.begin(), above.end(), enclosed) &&
          std::all_of(inside.begin(), inside.end() - 1, enclosed)) {
        return inside;
      }
      await_users(next);
    }
    return {};
  }

  // A prologue of a reduction is computed once where the reduction keeps it; long chains stay kernels of their own.
  bool is_cheap(const Group& group) const { return group.nodes.size() <= 4; }

  // An elementwise node with two injective-only producers takes both.
  void absorb_siblings(NodeId id, int into) {
    for (ValueId v : node(id).inputs) {
      NodeId p = v == kNoValue ? -1 : g_.value(v).producer;
      if (p < 0) continue;
      int other = group_of_[static_cast<size_t>(p)];
      if (other == into) continue;
      Group& source = groups_[static_cast<size_t>(other)];
      if (source.anchor >= 0 || !may_join(id, v, other) || !is_small_sibling(source, id)) continue;
      Group& target = groups_[static_cast<size_t>(into)];
      if (target.operations + source.operations > kMostOperations) continue;
      target.operations += source.operations;
      target.nodes.insert(target.nodes.end(), source.nodes.begin(), source.nodes.end());
      for (NodeId moved : source.nodes)
        group_of_[static_cast<size_t>(moved)] = into;
      source.nodes.clear();
      source.closed = true;
      std::sort(target.nodes.begin(), target.nodes.end());
    }
  }

  // Inlined into an anchored group's epilogue it must only be elementwise or a broadcast, so that the tile reads it
  // along its own axes; among injective nodes anything goes.
  bool is_small_sibling(const Group& source, NodeId id) const {
    if (groups_[static_cast<size_t>(group_of_[static_cast<size_t>(id)])].anchor < 0) return true;
    return std::all_of(source.nodes.begin(), source.nodes.end(),
                       [&](NodeId n) { return node(n).op->fusion == FusionClass::elementwise; });
  }

  std::vector<KernelGroup> collect() {
    // A group runs when its last node's place comes: all inputs of all its nodes are there by then.
    std::vector<int> order;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (!groups_[i].nodes.empty()) order.push_back(static_cast<int>(i));
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return groups_[static_cast<size_t>(a)].nodes.back() < groups_[static_cast<size_t>(b)].nodes.back();
    });
    std::vector<KernelGroup> result;
    for (int index : order)
      result.push_back(describe(groups_[static_cast<size_t>(index)], index));
    find_joins(result);
    return result;
  }

  // Whose memory is whose is known only now.
  void find_joins(std::vector<KernelGroup>& groups) const {
    Aliases aliases(g_, groups);
    for (KernelGroup& group : groups) {
      const bool is_single = group.kind == KernelGroup::Kind::kernel && group.nodes.size() == 1;
      if (!is_single) continue;
      const bool is_join = aliases.add_join(group.nodes[0]) || (in_rows_ && aliases.add_row_join(group.nodes[0]));
      if (is_join) group.kind = KernelGroup::Kind::join;
    }
    for (KernelGroup& group : groups) {
      if (group.kind != KernelGroup::Kind::kernel) continue;
      for (const std::vector<ValueId>* values : {&group.inputs, &group.outputs}) {
        for (ValueId v : *values) {
          if (const RowPart rows = aliases.of(v).rows; rows.pitch != 0) group.rows[v] = rows;
        }
      }
    }
  }

  KernelGroup describe(const Group& group, int index) {
    KernelGroup out;
    out.nodes = group.nodes;
    out.anchor = group.anchor;
    const Node& first = node(group.nodes[0]);
    if (group.is_view && group.nodes.size() == 1) out.kind = KernelGroup::Kind::view;
    if (first.op->fusion == FusionClass::host) out.kind = KernelGroup::Kind::host;
    const bool is_kernel = first.op->control == Control::choose && chooses_in_kernels_;
    if (first.op->control != Control::none && !is_kernel) out.kind = KernelGroup::Kind::control;
    for (NodeId id : group.nodes) {
      const Node& n = node(id);
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        ValueId v = n.inputs[i];
        if (v == kNoValue || is_embedded(g_, n, static_cast<int>(i))) continue;
        NodeId p = g_.value(v).producer;
        if (p >= 0 && group_of_[static_cast<size_t>(p)] == index) continue;
        if (std::find(out.inputs.begin(), out.inputs.end(), v) == out.inputs.end()) out.inputs.push_back(v);
      }
      for (ValueId v : n.outputs) {
        if (v == kNoValue) continue;
        bool outside = g_.is_output(v) || out.kind == KernelGroup::Kind::control;
        for (NodeId user : users_[static_cast<size_t>(v)]) {
          outside |= group_of_[static_cast<size_t>(user)] != index;
        }
        if (outside) out.outputs.push_back(v);
      }
    }
    return out;
  }

  static constexpr size_t kDiamondNodes = 16;

  // The same of parts of its operand's rows, which kernels read there.
  bool gives_row_parts(const Node& node) const {
    return in_rows_ && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
      return v == kNoValue || (row_part(g_, v) && may_lie_in_rows(g_, v, users_[static_cast<size_t>(v)]));
    });
  }

  const Graph& g_;
  const bool in_rows_;
  const bool chooses_in_kernels_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> group_of_;
  std::vector<int> promised_;  // the group that a node will join because another node of its diamond has
  std::vector<bool> waits_;    // nodes without a group until their only user has one
  std::vector<std::set<NodeId>> loops_;  // on whose iterations each node depends
  std::vector<Group> groups_;
};

}  // namespace

ValueId widened_operand(const Graph& graph, const Node& node) {
  if (node.op->fusion != FusionClass::elementwise || node.outputs.size() != 1) return kNoValue;
  ValueId x = kNoValue;
  for (ValueId v : node.inputs) {
    if (v == kNoValue || graph.value(v).constant) continue;
    if (x != kNoValue) return kNoValue;
    x = v;
  }
  if (x == kNoValue) return kNoValue;
  const TensorType &from = graph.value(x).type, &to = graph.value(node.outputs[0]).type;
  return same_shape(from.shape, to.shape) && is_wider(to.element, from.element) ? x : kNoValue;
}

bool reads_elements_once(const OpDef& op) {
  return op.fusion == FusionClass::elementwise || op.fusion == FusionClass::injective ||
         (op.fusion == FusionClass::reduction && op.layout != LayoutRole::pool);
}

std::vector<KernelGroup> fuse(const Graph& graph, bool in_rows) { return divide_into_regions(graph, Fuse(graph, in_rows).run()); }

namespace {

// The shape of the wider tensor.
std::vector<Expr> in_rows(std::vector<Expr> shape, const RowPart& rows) {
  shape.back() = Expr(rows.pitch);
  return shape;
}

// The place in it of an element.
std::vector<Expr> in_rows(tensor::Axes at, const RowPart& rows) {
  std::vector<Expr> place(at.begin(), at.end());
  place.back() = place.back() + Expr(rows.first);
  return place;
}

// A tensor whose rows hold those of the buffer; what else they hold stays as it is.
tensor::Buffer written_in_rows(tensor::FuncBuilder& builder, const tensor::Buffer& part, const RowPart& rows) {
  const tensor::Buffer whole = builder.new_buffer("rows", part.element(), in_rows(part.shape(), rows));
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t d = 0; d < part.shape().size(); ++d)
    axes.push_back({text("i", d), part.shape()[d]});
  builder.block("place", axes, [&](tensor::Axes at) {
    return tensor::Store::make(whole, in_rows(at, rows), load(part, {at.begin(), at.end()}));
  });
  return whole;
}

// other: attributes of one of the nodes, instead of its own.
tensor::Func build(const Graph& graph, const KernelGroup& group, NodeId other_node, const Attributes& other) {
  tensor::FuncBuilder builder("kernel");
  std::map<ValueId, tensor::Buffer> buffers;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const ValueId v = group.inputs[i];
    const TensorType& type = graph.value(v).type;
    auto rows = group.rows.find(v);
    if (rows == group.rows.end()) {
      buffers[v] = builder.input(text("x", i), type.element, type.shape);
      continue;
    }
    const tensor::Buffer whole = builder.input(text("x", i), type.element, in_rows(type.shape, rows->second));
    buffers[v] = builder.compute("part", type.element, type.shape,
                                 [&](tensor::Axes at) { return load(whole, in_rows(at, rows->second)); });
  }
  for (NodeId id : group.nodes) {
    Node changed;
    if (id == other_node) {
      changed = graph.node(id);
      changed.attributes = other;
    }
    const Node& node = id == other_node ? changed : graph.node(id);
    std::vector<tensor::Buffer> inputs(node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId v = node.inputs[i];
      if (v != kNoValue && !is_embedded(graph, node, static_cast<int>(i))) inputs[i] = buffers.at(v);
    }
    ComputeContext context(builder, graph, node, std::move(inputs));
    node.op->compute(context);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) buffers[node.outputs[i]] = context.outputs()[i];
    }
  }
  std::vector<tensor::Buffer> outputs;
  for (ValueId v : group.outputs) {
    auto rows = group.rows.find(v);
    outputs.push_back(rows == group.rows.end() ? buffers.at(v) : written_in_rows(builder, buffers.at(v), rows->second));
  }
  tensor::Func func = builder.finish(outputs);
  set_dims(graph, func);
  return func;
}

}  // namespace

tensor::Func build_kernel(const Graph& graph, const KernelGroup& group) {
  return build(graph, group, -1, {});
}

tensor::Func build_in_place(const Graph& graph, const KernelGroup& group, NodeId node) {
  Attributes attributes = graph.node(node).attributes;
  attributes.set("in_place", int64_t{1});
  return build(graph, group, node, attributes);
}

std::vector<OtherKernel> build_other_kernels(const Graph& graph, const KernelGroup& group) {
  std::vector<OtherKernel> kernels;
  for (NodeId id : group.nodes) {
    const Node& node = graph.node(id);
    if (node.op->other_run == nullptr) continue;
    if (const std::optional<OtherRun> run = node.op->other_run(graph, node))
      kernels.push_back({run->dim == Expr(run->size),
                         tensor::with_size(build(graph, group, id, run->attributes), run->dim, run->size)});
  }
  return kernels;
}

std::vector<std::string> origins(const Graph& graph, const KernelGroup& group) {
  std::vector<std::string> names;
  for (NodeId id : group.nodes) {
    for (const std::string& name : graph.node(id).origins) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

}  // namespace mcc::graph
