// Normalisation of groups of channels, on tensors whose groups have an axis of their own.
//
//   GroupNormalization(x [N, C, H, W])        becomes   y [N, G, C / G, H, W] = InstanceNormalization(Reshape(x)), times and plus
//   InstanceNormalization(x [N, G, C / G H W])          what is given for each channel, [G, C / G, 1, 1]; Reshape(y)
//
// The second is how exporters write the first, with reshapes around it and the factors behind these. What is reduced are whole rows
// of memory then, and elementwise operators behind it, which go along, have its shape: one kernel, where a group's index would
// be a quotient, or reshapes stood between. Reshapes are views.
#include <algorithm>
#include <map>

#include "graph/ops/common.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

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
  const Shape& shape(ValueId v) const { return type(v).shape; }
  static int64_t channels(const Shape& whole) { return *static_dim(whole[1]); }

  static bool has_known_channels(const Shape& whole) {
    const bool is_empty =
        std::any_of(whole.begin(), whole.end(), [](const Expr& extent) { return tensor::is_int(extent, 0); });
    return whole.size() >= 2 && static_dim(whole[1]) && !is_empty;
  }

  static Shape split_shape(const Shape& whole, int64_t groups) {
    Shape result{whole[0], groups, channels(whole) / groups};
    result.insert(result.end(), whole.begin() + 2, whole.end());
    return result;
  }

  // What broadcasts to [N, C, ...] and differs from channel to channel alone, or not at all, for the split form. Nothing otherwise.
  std::optional<ValueId> split_vector(const std::string& name, ValueId v, const Shape& whole,
                                      int64_t groups) {
    if (!is_static(shape(v))) return std::nullopt;
    const std::vector<int64_t> own = static_shape(shape(v));
    if (static_count(shape(v)) == 1) return own.size() <= 1 ? v : reshaped(g_, name, v, {Expr(1)});
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t axis = whole.size() - own.size() + i;
      if (own[i] != 1 && (axis != 1 || own[i] != channels(whole))) return std::nullopt;
    }
    return reshaped(g_, name, v, vector_shape(whole, groups));
  }

  static Shape vector_shape(const Shape& whole, int64_t groups) {
    Shape apart(whole.size(), Expr(1));
    apart[0] = groups;
    apart[1] = channels(whole) / groups;
    return apart;
  }

  // Of x in the type of scale and bias.
  ValueId normalized(const Node& node, ValueId x, const Shape& whole, int64_t groups, ValueId scale,
                     ValueId bias) {
    Attributes a;
    a.set("epsilon", node.attributes.number("epsilon", 1e-5));
    const ValueId split =
        converted(g_, node.name, reshaped(g_, node.name, x, split_shape(whole, groups)), type(scale).element);
    return emit(g_, "", "InstanceNormalization", node.name, {split, scale, bias}, a);
  }

  void split_group_norm(NodeId id) {
    const Node node = g_.node(id);
    const TensorType in = type(node.inputs[0]);  // emit() moves values
    const Shape& whole = in.shape;
    if (!has_known_channels(whole)) return;
    const int64_t groups = node.attributes.integer("num_groups", 1);
    // Factors are applied before the result is rounded.
    const ElementType wide = in.element == ElementType::f64 ? in.element : ElementType::f32;
    auto constants = [&](const char* what, float value) {
      const Constant all = Constant::of(ElementType::f32, {groups}, std::vector<float>(static_cast<size_t>(groups), value));
      return converted(g_, node.name, g_.add_constant(node.name + what, all), wide);
    };
    ValueId y = normalized(node, node.inputs[0], whole, groups, constants(".ones", 1), constants(".zeros", 0));
    for (size_t i : {1, 2}) {
      const ValueId of_channels = reshaped(g_, node.name, converted(g_, node.name, node.inputs[i], wide),
                                           vector_shape(whole, groups));
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
    const Shape whole = shape(x), rows = shape(node.inputs[0]);
    if (whole.size() < 3 || rows.size() != 3 || !same_shape(shape(y), whole) ||
        !same_shape({rows[0]}, {whole[0]}))
      return;
    const std::optional<int64_t> groups = static_dim(rows[1]);
    if (!has_known_channels(whole) || !groups || channels(whole) % *groups != 0) return;
    const ValueId split = normalized(node, x, whole, *groups, node.inputs[1], node.inputs[2]);
    const NodeId maker = g_.value(split).producer;
    absorb(g_, before, maker);
    absorb(g_, id, maker);
    set(after, split, *groups);
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
    const Shape whole = shape(node.outputs[0]);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      auto it = v == kNoValue ? split_.end() : split_.find(v);
      std::optional<ValueId> operand = v;
      if (it != split_.end()) {
        if (it->second.groups != groups || !same_shape(shape(v), whole)) return;
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
      take_place(g_, v, reshaped(g_, g_.value(v).name, split.value, shape(v)));
    }
  }

  Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  std::map<ValueId, Split> split_;
};

}  // namespace

void split_channel_groups(Graph& graph) { SplitChannelGroups(graph).run(); }

}  // namespace mcc::graph
