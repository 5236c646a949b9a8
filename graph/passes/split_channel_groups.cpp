// Normalisation of groups of channels, on tensors whose groups have an axis of their own.
//
//   GroupNormalization(x [N, C, H, W])        becomes   y [N, G, C / G, H, W] = InstanceNormalization(Reshape(x)), times and plus
//   InstanceNormalization(x [N, G, C / G H W])          what is given for each channel, [G, C / G, 1, 1]; Reshape(y)
//
// The second is how exporters write the first, with reshapes around it and the factors behind these. What is reduced are whole rows
// of memory then, and elementwise operators behind it, which go along, have its shape: one kernel, where a group's index would
// be a quotient, or reshapes stood between. Reshapes are views.
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

class SplitChannelGroups {
 public:
  explicit SplitChannelGroups(Graph& g) : g_(g), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead) continue;
      if (is_op(g_.node(id), "GroupNormalization")) split_group_norm(id);
      if (is_op(g_.node(id), "InstanceNormalization")) split_instance_norm(id);
      if (g_.node(id).op->fusion == FusionClass::elementwise) follow(id);
    }
    restore();
    g_.compact();
  }

 private:
  // A value that is there with its groups apart.
  struct Split {
    ValueId value;  // [N, G, C / G, ...]
    int64_t groups;
  };

  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  Ints dims(ValueId v) const { return static_shape(type(v).shape); }

  ValueId reshape(const std::string& name, ValueId v, const Ints& dims) {
    return emit(g_, "", "Reshape", name, {v, g_.add_constant(name + ".shape", Constant::ints(dims))});
  }

  static Ints split_dims(const Ints& whole, int64_t groups) {
    Ints result{whole[0], groups, whole[1] / groups};
    result.insert(result.end(), whole.begin() + 2, whole.end());
    return result;
  }

  // What broadcasts to [N, C, ...] and differs from channel to channel alone, or not at all, for the split form. Nothing otherwise.
  std::optional<ValueId> split_vector(const std::string& name, ValueId v, const Ints& whole, int64_t groups) {
    if (!is_static(type(v).shape)) return std::nullopt;
    const Ints own = dims(v);
    if (static_count(type(v).shape) == 1) return own.size() <= 1 ? v : reshape(name, v, {1});
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t axis = whole.size() - own.size() + i;
      if (own[i] != 1 && (axis != 1 || own[i] != whole[1])) return std::nullopt;
    }
    return reshape(name, v, vector_dims(whole, groups));
  }

  static Ints vector_dims(const Ints& whole, int64_t groups) {
    Ints apart(whole.size(), 1);
    apart[0] = groups;
    apart[1] = whole[1] / groups;
    return apart;
  }

  // Of x in the type of scale and bias.
  ValueId normalized(const Node& node, ValueId x, const Ints& whole, int64_t groups, ValueId scale, ValueId bias) {
    Attributes a;
    a.set("epsilon", node.attributes.number("epsilon", 1e-5));
    const ValueId split = converted(g_, node.name, reshape(node.name, x, split_dims(whole, groups)), type(scale).element);
    return emit(g_, "", "InstanceNormalization", node.name, {split, scale, bias}, a);
  }

  void split_group_norm(NodeId id) {
    const Node node = g_.node(id);
    const TensorType in = type(node.inputs[0]);  // emit() moves values
    if (!is_static(in.shape) || static_count(in.shape) == 0) return;
    const Ints whole = dims(node.inputs[0]);
    const int64_t groups = node.attributes.integer("num_groups", 1);
    // Factors are applied before the result is rounded.
    const ElementType wide = in.element == ElementType::f64 ? in.element : ElementType::f32;
    auto constants = [&](const char* what, float value) {
      const Constant all = Constant::of(ElementType::f32, {groups}, std::vector<float>(static_cast<size_t>(groups), value));
      return converted(g_, node.name, g_.add_constant(node.name + what, all), wide);
    };
    ValueId y = normalized(node, node.inputs[0], whole, groups, constants(".ones", 1), constants(".zeros", 0));
    for (size_t i : {1, 2}) {
      const ValueId of_channels = reshape(node.name, converted(g_, node.name, node.inputs[i], wide), vector_dims(whole, groups));
      y = emit(g_, "", i == 1 ? "Mul" : "Add", node.name, {y, of_channels});
    }
    set(id, converted(g_, node.name, y, in.element), groups);
  }

  void split_instance_norm(NodeId id) {
    const Node node = g_.node(id);
    const NodeId before = g_.value(node.inputs[0]).producer, after = single_user(g_, users_, node.outputs[0]);
    if (before < 0 || !is_op(g_.node(before), "Reshape") || single_user(g_, users_, node.inputs[0]) != id) return;
    if (after < 0 || !is_op(g_.node(after), "Reshape")) return;
    const ValueId x = g_.node(before).inputs[0], y = g_.node(after).outputs[0];
    if (!is_static(type(x).shape) || !is_static(type(y).shape) || !is_static(type(node.inputs[0]).shape)) return;
    const Ints whole = dims(x), rows = dims(node.inputs[0]);
    const bool is_same = dims(y) == whole && whole.size() >= 3 && rows.size() == 3 && rows[0] == whole[0];
    if (!is_same || static_count(type(x).shape) == 0 || whole[1] % rows[1] != 0) return;
    const ValueId split = normalized(node, x, whole, rows[1], node.inputs[1], node.inputs[2]);
    const NodeId maker = g_.value(split).producer;
    absorb(g_, before, maker);
    absorb(g_, id, maker);
    set(after, split, rows[1]);
  }

  // An elementwise operator of split values and of what is given for channels.
  void follow(NodeId id) {
    const Node node = g_.node(id);
    if (node.op->axis_use != AxisUse::any || node.outputs.size() != 1) return;
    const Split* first = nullptr;
    for (ValueId v : node.inputs) {
      auto it = split_.find(v);
      if (it != split_.end()) first = &it->second;
    }
    if (!first) return;
    const int64_t groups = first->groups;
    const Ints whole = dims(node.outputs[0]);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      auto it = v == kNoValue ? split_.end() : split_.find(v);
      std::optional<ValueId> operand = v;
      if (it != split_.end()) {
        if (it->second.groups != groups || dims(v) != whole) return;
        operand = it->second.value;
      } else if (v != kNoValue) {
        operand = split_vector(node.name, v, whole, groups);
      }
      if (!operand) return;
      inputs.push_back(*operand);
    }
    set(id, emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes), groups);
  }

  // The node's result is there split.
  void set(NodeId id, ValueId split, int64_t groups) {
    const ValueId v = g_.node(id).outputs[0];
    absorb(g_, id, g_.value(split).producer);
    split_[v] = {split, groups};
  }

  // Values that somebody reads whole.
  void restore() {
    users_ = g_.users();
    for (const auto& [v, split] : split_) {
      if (users_[static_cast<size_t>(v)].empty() && !g_.is_output(v)) continue;
      take_place(g_, v, reshape(g_.value(v).name, split.value, dims(v)));
    }
  }

  Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  std::map<ValueId, Split> split_;
};

}  // namespace

void split_channel_groups(Graph& graph) { SplitChannelGroups(graph).run(); }

}  // namespace mcc::graph
