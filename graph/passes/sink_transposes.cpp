// Transpositions sink towards the outputs:
//   op(T(x), T(y)) = T(op(x, y))
// for operators that do not care for the order of their axes, or whose attributes name the axes they care for (AxisUse).
// Two that meet become one or none. So a model that keeps its activations as [N, H, W, C] and transposes around each
// convolution, as exporters from TensorFlow write it, loses its transpositions.
//
// A MaxPool or AveragePool of channels that were last pools them where they are, in its laid out form (graph/ops/mcc_pool.cpp);
// GlobalAveragePool becomes a mean over axes that are named; DynamicQuantizeLinear finds the same range in any order.
//
// What else such an operator reads is transposed back: constants now, other operands only where they are smaller than what
// is saved. The result is kept if it moves fewer bytes than before.
#include <algorithm>

#include "graph/passes/convolution_cost.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Permutation = std::vector<int64_t>;

int64_t bytes_of(const TensorType& type) { return static_count(type.shape) * byte_size(type.element); }

Permutation inverse(const Permutation& perm) {
  Permutation out(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    out[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return out;
}

bool is_identity(const Permutation& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

class SinkTransposes {
 public:
  explicit SinkTransposes(Graph& g) : g_(g) {}

  void run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead || !merge(id)) sink(id);
    }
    eliminate_dead_code(g_);
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  size_t rank(ValueId v) const { return shape(v).size(); }

  // How the value is transposed, if it comes from a transposition of static shape.
  const Node* transposition(ValueId v) const {
    NodeId p = v == kNoValue ? -1 : g_.value(v).producer;
    if (p < 0 || !is_op(g_.node(p), "Transpose") || !is_static(shape(v))) return nullptr;
    return &g_.node(p);
  }
  Permutation permutation(const Node& node) const {
    return permutation_of(g_, node);
  }

  ValueId transpose(const std::string& name, ValueId x, const Permutation& perm) {
    Attributes a;
    a.set("perm", perm);
    return emit(g_, "", "Transpose", name, {x}, a);
  }

  // `value` takes over the name and the users of the node's output, and the origins of the node.
  void stand_for(NodeId id, ValueId output, ValueId value) {
    NodeId maker = g_.value(value).producer;
    if (maker >= 0) {
      g_.value(value).name = g_.value(output).name;
      add_origins(g_.node(maker), g_.node(id));
    }
    g_.replace_uses(output, value);
    g_.node(id).dead = true;
  }

  // T(T(x)) as one transposition, or none.
  bool merge(NodeId id) {
    const Node node = g_.node(id);
    if (!is_op(node, "Transpose")) return false;
    const Node* before = transposition(node.inputs[0]);
    if (!before) return false;
    const Node first = *before;
    Permutation perm = permutation(node), inner = permutation(first), both(perm.size());
    for (size_t i = 0; i < perm.size(); ++i)
      both[i] = inner[static_cast<size_t>(perm[i])];
    ValueId source = first.inputs[0], out = node.outputs[0];
    if (!is_identity(both)) {
      stand_for(id, out, transpose(node.name, source, both));
    } else if (!g_.is_output(out)) {
      g_.replace_uses(out, source);
      g_.node(id).dead = true;
    } else if (g_.value(source).producer >= 0 && !g_.is_output(source)) {
      stand_for(id, out, source);
    }
    return true;
  }

  // Inputs that the operator reads along its axes: not shapes, sizes and the like.
  bool is_data(const Node& node, size_t i) const {
    if (node.op->axis_use == AxisUse::first && i > 0) return false;
    return node.inputs[i] != kNoValue && (node.op->constant_inputs >> i & 1U) == 0;
  }

  static bool is_pointwise(const Node& node) {
    const AxisUse use = node.op->axis_use;
    return use == AxisUse::any || use == AxisUse::scalars || use == AxisUse::first;
  }
  bool is_one(ValueId v) const { return is_static(shape(v)) && static_count(shape(v)) == 1; }

  // [N, D..., C] as [N, C, D...]
  static bool takes_channels_from_last(const Permutation& perm) {
    const auto rank = static_cast<int64_t>(perm.size());
    for (int64_t d = 0; d < rank; ++d) {
      if (perm[static_cast<size_t>(d)] != (d == 0 ? 0 : d == 1 ? rank - 1 : d - 1)) return false;
    }
    return true;
  }

  // The channels stay last, as one block: [N, 1, D..., C], with a height where there is none.
  bool pool(NodeId id) {
    const Node node = g_.node(id);
    const Node* before = transposition(node.inputs[0]);
    if (!before || node.outputs.size() != 1 || !is_static(shape(node.outputs[0]))) return false;
    const Permutation perm = permutation(*before);
    if (!takes_channels_from_last(perm)) return false;
    const ValueId x = before->inputs[0];
    auto in_shape = [&](ValueId v, const std::vector<int64_t>& dims) {
      return reshaped(g_, node.name, v, dims);
    };
    const std::vector<int64_t> in = static_shape(shape(x)),
                               out = static_shape(shape(node.outputs[0]));
    std::vector<int64_t> one_block{in[0], 1}, result{out[0]};
    if (in.size() == 3) one_block.push_back(1);
    one_block.insert(one_block.end(), in.begin() + 1, in.end());
    result.insert(result.end(), out.begin() + 2, out.end());
    result.push_back(out[1]);
    const ValueId pooled =
        emit(g_, "mcc", node.op->name, node.name, {in_shape(x, one_block)}, laid_out_pooling(g_, node));
    g_.node(g_.value(pooled).producer).origins = node.origins;
    stand_for(id, node.outputs[0], transpose(node.name, in_shape(pooled, result), perm));
    return true;
  }

  // The least and the greatest element, from which scale and zero point follow, are the same in any order.
  bool quantize(NodeId id) {
    const Node node = g_.node(id);
    const Node* before = transposition(node.inputs[0]);
    if (!before) return false;
    const Permutation perm = permutation(*before);
    const ValueId first = emit(g_, "", node.op->name, node.name, {before->inputs[0]}, node.attributes,
                               static_cast<int>(node.outputs.size()));
    const NodeId made = g_.value(first).producer;
    g_.node(made).origins = node.origins;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      const ValueId result = g_.node(made).outputs[k];
      stand_for(id, node.outputs[k], k == 0 ? transpose(node.name, result, perm) : result);
    }
    return true;
  }

  // The same places of each channel, along axes that have kept their order: they are added up in it.
  bool global_mean(NodeId id) {
    const Node node = g_.node(id);
    const Node* before = transposition(node.inputs[0]);
    if (!before) return false;
    const Permutation perm = permutation(*before);
    const ValueId x = before->inputs[0];
    const std::vector<int64_t> axes(perm.begin() + 2, perm.end());
    if (axes.empty() || !std::is_sorted(axes.begin(), axes.end())) return false;
    Attributes a;
    a.set("keepdims", int64_t{1});
    const ValueId mean = emit(g_, "", "ReduceMean", node.name,
                              {x, g_.add_constant(node.name + ".axes", Constant::ints(axes))}, a);
    g_.node(g_.value(mean).producer).origins = node.origins;
    stand_for(id, node.outputs[0], transpose(node.name, mean, perm));
    return true;
  }

  void sink(NodeId id) {
    const Node node = g_.node(id);
    const bool is_of_onnx = node.op->domain.empty();
    if (is_of_onnx && node.op->layout == LayoutRole::pool && pool(id)) return;
    if (is_of_onnx && node.op->layout == LayoutRole::global_mean && global_mean(id)) return;
    if (is_of_onnx && is_op(node, "DynamicQuantizeLinear") && quantize(id)) return;
    if (node.op->axis_use == AxisUse::own) return;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node* before = is_data(node, i) ? transposition(node.inputs[i]) : nullptr;
      if (!before) continue;
      Permutation perm = permutation(*before);
      if (rewrite(id, perm)) return;
    }
  }

  bool rewrite(NodeId id, const Permutation& perm) {
    const Node node = g_.node(id);
    for (ValueId out : node.outputs) {
      if (out != kNoValue && (!is_static(shape(out)) || shape(out).empty())) return false;
    }
    Attributes attributes = node.attributes;
    std::vector<ValueId> inputs = node.inputs;
    Permutation after = perm;
    if (!saves(node, perm)) return false;
    switch (node.op->axis_use) {
      case AxisUse::own:
        return false;
      case AxisUse::first:
        break;
      case AxisUse::scalars:
        if (!std::all_of(inputs.begin() + 1, inputs.end(), [&](ValueId v) { return v == kNoValue || is_one(v); })) return false;
        break;
      case AxisUse::any:
        if (rank(node.outputs[0]) != perm.size()) return false;
        break;
      case AxisUse::one:
        if (!node.attributes.has("axis")) return false;
        attributes.set("axis", moved(node.attributes.integer("axis", 0), perm));
        break;
      case AxisUse::reduced:
        if (!move_axes(node, perm, &attributes, &inputs, &after)) return false;
        break;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_data(node, i)) inputs[i] = before(node, inputs[i], perm);
    }
    auto count = static_cast<int>(node.outputs.size());
    ValueId first = emit(g_, node.op->domain, node.op->name, node.name, inputs, attributes, count);
    NodeId made = g_.value(first).producer;
    g_.node(made).origins = node.origins;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      ValueId out = node.outputs[k];
      if (out == kNoValue) continue;
      stand_for(id, out, transpose(node.name, g_.node(made).outputs[k], after));
    }
    return true;
  }

  // The axis of x that is this axis of T(x).
  static int64_t moved(int64_t axis, const Permutation& perm) {
    return perm[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(perm.size()) : axis)];
  }

  bool move_axes(const Node& node, const Permutation& perm, Attributes* attributes,
                 std::vector<ValueId>* inputs, Permutation* after) {
    std::vector<int64_t> axes = node.attributes.integers("axes");
    bool is_input = node.inputs.size() > 1 && node.inputs[1] != kNoValue;
    if (is_input) {
      if (!g_.value(node.inputs[1]).constant) return false;
      axes = g_.value(node.inputs[1]).constant->to_ints();
    }
    if (axes.empty()) return false;  // all of them, or none
    std::vector<bool> is_reduced(perm.size(), false);
    for (int64_t& axis : axes) {
      axis = moved(axis, perm);
      is_reduced[static_cast<size_t>(axis)] = true;
    }
    std::sort(axes.begin(), axes.end());
    if (is_input) {
      (*inputs)[1] = g_.add_constant(node.name + ".axes", Constant::ints(axes));
    } else {
      attributes->set("axes", axes);
    }
    if (node.attributes.integer("keepdims", 1) != 0) return true;
    // The axes that stay, in the order in which T(x) has them, counted among those of x that stay.
    after->clear();
    for (int64_t axis : perm) {
      if (is_reduced[static_cast<size_t>(axis)]) continue;
      after->push_back(std::count(is_reduced.begin(), is_reduced.begin() + axis, false));
    }
    return true;
  }

  // Whether what is transposed back is less than what need not be transposed any more.
  bool saves(const Node& node, const Permutation& perm) const {
    int64_t saved = 0, spent = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!is_data(node, i)) continue;
      ValueId v = node.inputs[i];
      const Node* before = transposition(v);
      if (before && permutation(*before) == perm) {
        saved += bytes_of(g_.value(v).type);
      } else if (!is_static(shape(v)) || rank(v) > perm.size()) {
        return false;
      } else if (!g_.value(v).constant) {
        spent += bytes_of(g_.value(v).type);
      } else if (!is_pointwise(node) && rank(v) != perm.size()) {
        return false;
      }
    }
    return spent < saved;
  }

  // x, where the operand is T(x).
  ValueId before(const Node& node, ValueId v, const Permutation& perm) {
    const Node* t = transposition(v);
    if (t && permutation(*t) == perm) return t->inputs[0];
    if (is_one(v) && is_pointwise(node)) return v;
    if (rank(v) < perm.size()) {
      std::vector<int64_t> dims = static_shape(shape(v));
      dims.insert(dims.begin(), perm.size() - dims.size(), 1);
      v = reshaped(g_, node.name, v, dims);
    }
    return transpose(node.name, v, inverse(perm));
  }

  Graph& g_;
};

// Bytes that transpositions of variables write; those that only move dimensions of extent 1 write none.
int64_t transposed_bytes(const Graph& g) {
  std::vector<bool> is_known = known_values(g);
  int64_t bytes = 0;
  for (const Node& node : g.nodes) {
    if (!is_op(node, "Transpose") || is_known[static_cast<size_t>(node.outputs[0])]) continue;
    const TensorType& type = g.value(node.outputs[0]).type;
    if (!is_static(type.shape)) continue;
    std::vector<int64_t> in = static_shape(g.value(node.inputs[0]).type.shape),
                         out = static_shape(type.shape);
    int64_t last = -1;
    bool moves = false;
    for (int64_t p : permutation_of(g, node)) {
      if (in[static_cast<size_t>(p)] == 1) continue;
      moves |= p < last;
      last = p;
    }
    if (moves) bytes += bytes_of(type);
  }
  return bytes;
}

}  // namespace

void sink_transposes(Graph& graph) {
  int64_t before = transposed_bytes(graph);
  if (before == 0) return;
  Graph sunk = graph;
  SinkTransposes(sunk).run();
  if (transposed_bytes(sunk) < before) graph = std::move(sunk);
}

}  // namespace mcc::graph
