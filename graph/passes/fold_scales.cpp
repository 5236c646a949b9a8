// Folding of channel-wise scales and shifts into the weights of the convolution before them:
//   (conv(x, W) + b) * s + t = conv(x, W*s) + (b*s + t)      s, t constant along all but the channel axis
// BatchNormalization is such a pair: s = scale / sqrt(variance + epsilon), t = B - mean * s.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

bool is_constant(const Graph& g, ValueId v) { return v != kNoValue && g.value(v).constant.has_value(); }

struct Affine {
  ValueId scale = kNoValue, shift = kNoValue;  // rank 1, one element a channel; absent = 1 and 0
};

// scale / sqrt(variance + epsilon) and B - mean * that.
Affine batch_norm(Graph& g, const Node& bn) {
  const std::string& name = bn.name;
  ElementType element = g.value(bn.inputs[4]).type.element;
  double epsilon = bn.attributes.number("epsilon", 1e-5);
  ValueId eps = g.add_constant(name + ".epsilon", Constant::scalar(element, epsilon));
  ValueId deviation = emit(g, "", "Sqrt", name, {emit(g, "", "Add", name, {bn.inputs[4], eps})});
  ValueId scale = emit(g, "", "Div", name, {bn.inputs[1], deviation});
  ValueId shift = emit(g, "", "Sub", name, {bn.inputs[2], emit(g, "", "Mul", name, {bn.inputs[3], scale})});
  return {scale, shift};
}

// The channel extent when the constant varies along axis 1 of a tensor of the given rank only; 0 otherwise.
bool is_per_channel(const Constant& c, size_t rank, int64_t channels) {
  const std::vector<int64_t>& shape = c.shape();
  if (shape.size() > rank) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    size_t axis = rank - shape.size() + i;
    if (shape[i] != 1 && !(axis == 1 && shape[i] == channels)) return false;
  }
  return true;
}

// A constant operand as one element a channel.
ValueId per_channel(Graph& g, const std::string& name, ValueId v, int64_t channels) {
  if (g.value(v).constant->count() == channels) return reshaped(g, name, v, Shape{channels});
  ValueId flat = reshaped(g, name, v, Shape{1});
  return emit(g, "", "Expand", name, {flat, g.add_constant(name + ".shape", Constant::ints({channels}))});
}

// The affine map that this node applies to its input 0 (or 1), when it is one.
// The node comes as a copy: emit() moves the graph's nodes.
bool match_affine(Graph& g, const Node node, ValueId x, int64_t channels, Affine* affine) {
  if (is_op(node, "BatchNormalization")) {
    bool training = node.attributes.integer("training_mode", 0) != 0;
    for (size_t i = 1; i < 5; ++i) {
      if (!is_constant(g, node.inputs[i])) return false;
    }
    if (node.inputs[0] != x || training) return false;
    *affine = batch_norm(g, node);
    return true;
  }
  bool is_mul = is_op(node, "Mul"), is_add = is_op(node, "Add"), is_sub = is_op(node, "Sub");
  if (!is_mul && !is_add && !is_sub) return false;
  if (is_sub && node.inputs[0] != x) return false;
  ValueId other = node.inputs[0] == x ? node.inputs[1] : node.inputs[0];
  if (!is_constant(g, other) || g.value(other).type.element != g.value(x).type.element) return false;
  if (!is_per_channel(*g.value(other).constant, g.value(x).type.shape.size(), channels)) return false;
  ValueId vector = per_channel(g, node.name, other, channels);
  if (is_sub) vector = emit(g, "", "Neg", node.name, {vector});
  (is_mul ? affine->scale : affine->shift) = vector;
  return true;
}

void fold_into(Graph& g, NodeId conv_id, const Affine& affine, size_t channel_axis) {
  const Node conv = g.node(conv_id);
  ValueId weight = conv.inputs[1];
  ValueId bias = conv.inputs.size() > 2 ? conv.inputs[2] : kNoValue;
  const std::string& name = conv.name;
  if (affine.scale != kNoValue) {
    std::vector<int64_t> shape(g.value(weight).type.shape.size(), 1);
    shape[channel_axis] = -1;
    weight = emit(g, "", "Mul", name, {weight, reshaped(g, name, affine.scale, shape)});
    if (bias != kNoValue) bias = emit(g, "", "Mul", name, {bias, affine.scale});
  }
  if (affine.shift != kNoValue) {
    bias = bias == kNoValue ? affine.shift : emit(g, "", "Add", name, {bias, affine.shift});
  }
  std::vector<ValueId> inputs{conv.inputs[0], weight};
  if (bias != kNoValue) inputs.push_back(bias);
  g.node(conv_id).inputs = inputs;
}

// What is left of BatchNormalization: x * scale + shift.
void lower_batch_norm(Graph& g, NodeId id) {
  const Node node = g.node(id);
  if (node.attributes.integer("training_mode", 0) != 0) return;
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) return;
  }
  Affine affine = batch_norm(g, node);
  std::vector<int64_t> shape(g.value(node.inputs[0]).type.shape.size(), 1);
  if (shape.size() > 1) shape[1] = -1;
  ElementType element = g.value(node.inputs[0]).type.element;
  if (g.value(affine.scale).type.element != element) return;
  ValueId scaled =
      emit(g, "", "Mul", node.name, {node.inputs[0], reshaped(g, node.name, affine.scale, shape)});
  ValueId out = emit(g, "", "Add", node.name, {scaled, reshaped(g, node.name, affine.shift, shape)});
  g.node(g.value(scaled).producer).origins = node.origins;
  g.node(g.value(out).producer).origins = node.origins;
  g.value(out).name = g.value(node.outputs[0]).name;
  g.replace_uses(node.outputs[0], out);
  g.node(id).dead = true;
}

}  // namespace

void fold_scales(Graph& graph) {
  size_t count = graph.nodes.size();
  for (size_t n = 0; n < count; ++n) {
    auto id = static_cast<NodeId>(n);
    bool is_conv = is_op(graph.node(id), "Conv") && graph.node(id).op->domain.empty();
    bool is_transposed =
        is_op(graph.node(id), "ConvTranspose") && graph.node(id).attributes.integer("group", 1) == 1;
    if ((!is_conv && !is_transposed) || !is_constant(graph, graph.node(id).inputs[1])) continue;
    size_t channel_axis = is_conv ? 0 : 1;
    int64_t channels = 0;
    if (!tensor::as_int(graph.value(graph.node(id).inputs[1]).type.shape[channel_axis], &channels)) continue;
    for (;;) {
      ValueId out = graph.node(id).outputs[0];
      NodeId next = single_user(graph, graph.users(), out);
      if (next < 0) break;
      Affine affine;
      if (!match_affine(graph, graph.node(next), out, channels, &affine)) break;
      ValueId result = graph.node(next).outputs[0];
      if (!same_shape(graph.value(result).type.shape, graph.value(out).type.shape)) break;
      fold_into(graph, id, affine, channel_axis);
      // The convolution now makes what the absorbed node made, under its name.
      graph.node(id).outputs[0] = result;
      graph.value(result).producer = id;
      graph.node(next).outputs = {out};
      absorb(graph, next, id);
    }
  }
  for (size_t n = 0; n < count; ++n) {
    if (is_op(graph.nodes[n], "BatchNormalization")) lower_batch_norm(graph, static_cast<NodeId>(n));
  }
  eliminate_dead_code(graph);
}

}  // namespace mcc::graph
