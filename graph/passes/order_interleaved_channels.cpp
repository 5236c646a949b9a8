// Channels that a DepthToSpace interleaves, in the order in which it takes neighbours:
//
//   y = DepthToSpace(f(Conv(x, w, b)), mode CRD)        becomes        y = DepthToSpace(f(Conv(x, w', b')), mode DCR)
//
// In mode CRD (PixelShuffle) what becomes a place's channels lies b * b channels apart, in DCR side by side: whole rows of memory move
// where channels are last, and whole blocks where they lie in blocks. Which output channel is which is for the constants w and b to say.
// f: elementwise operators of one operand, and of numbers.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// Channels [C, b * b] of a constant as [b * b, C].
ValueId reordered(Graph& g, NodeId user, ValueId v, int64_t places) {
  const std::string name = g.node(user).name + ".ordered";
  const std::vector<int64_t> dims = static_shape(g.value(v).type.shape);
  auto reshape = [&](ValueId from, const std::vector<int64_t>& to) { return reshaped(g, name, from, to); };
  std::vector<int64_t> apart{dims[0] / places, places}, perm{1, 0};
  for (size_t d = 1; d < dims.size(); ++d) {
    apart.push_back(dims[d]);
    perm.push_back(static_cast<int64_t>(d) + 1);
  }
  Attributes a;
  a.set("perm", perm);
  return reshape(emit(g, "", "Transpose", name, {reshape(v, apart)}, a), dims);
}

class OrderInterleavedChannels {
 public:
  explicit OrderInterleavedChannels(Graph& g) : g_(g), users_(g.users()) {}

  void run() {
    for (size_t n = 0, count = g_.nodes.size(); n < count; ++n) {
      const Node& node = g_.nodes[n];
      if (node.dead || !is_op(node, "DepthToSpace") || node.attributes.text("mode", "DCR") != "CRD") continue;
      const NodeId conv = convolution_before(static_cast<NodeId>(n));
      if (conv < 0) continue;
      const int64_t b = node.attributes.integer("blocksize", 1);  // emit() moves nodes
      g_.nodes[n].attributes.set("mode", std::string("DCR"));
      for (size_t i = 1; i < g_.node(conv).inputs.size(); ++i) {
        if (g_.node(conv).inputs[i] == kNoValue) continue;
        const ValueId constant = reordered(g_, conv, g_.node(conv).inputs[i], b * b);
        g_.node(conv).inputs[i] = constant;
      }
    }
    g_.compact();
  }

 private:
  // The convolution whose result this node moves, and nobody else reads; -1 where there is none, or its channels cannot be reordered.
  NodeId convolution_before(NodeId id) const {
    ValueId v = g_.node(id).inputs[0];
    for (;;) {
      const NodeId maker = g_.value(v).producer;
      if (maker < 0 || single_user(g_, users_, v) != id) return -1;
      const Node& node = g_.node(maker);
      if (is_op(node, "Conv") && node.op->domain.empty()) return can_reorder(node) ? maker : -1;
      v = operand(node);
      if (v == kNoValue) return -1;
      id = maker;
    }
  }

  // Of an elementwise operator all of whose other inputs are numbers.
  ValueId operand(const Node& node) const {
    if (node.op->fusion != FusionClass::elementwise || node.op->axis_use == AxisUse::own || node.outputs.size() != 1) return kNoValue;
    ValueId found = kNoValue;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      const Shape& shape = g_.value(v).type.shape;
      if (is_static(shape) && static_count(shape) == 1) continue;
      if (found != kNoValue || !same_shape(shape, g_.value(node.outputs[0]).type.shape)) return kNoValue;
      found = v;
    }
    return found;
  }

  bool can_reorder(const Node& conv) const {
    for (size_t i = 1; i < conv.inputs.size(); ++i) {
      if (conv.inputs[i] != kNoValue && !g_.value(conv.inputs[i]).constant) return false;
    }
    return conv.attributes.integer("group", 1) == 1;
  }

  Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
};

}  // namespace

void order_interleaved_channels(Graph& graph) { OrderInterleavedChannels(graph).run(); }

}  // namespace mcc::graph
