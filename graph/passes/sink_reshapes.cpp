// Reshapes behind products and poolings sink below what is elementwise:
//   op(Reshape(x), y) = Reshape(op(x, Reshape(y)))
// so that op becomes a part of the product's kernel, whose result has another shape: exporters write a linear layer over [N, T, C] as
// Gemm between two Reshapes, and activation or residual behind them; a pooling of channels that are last stands between two.
//
// In front of a pooling a Reshape rises above a conversion to a wider type, which then is a part of the pooling's kernel:
//   Reshape(DequantizeLinear(x)) = DequantizeLinear(Reshape(x))
//
// What else op reads is seen in x's shape: values as large as the result, single elements, what varies along the last axes alone (a
// bias), and, where only axes of extent 1 come or go, anything.
#include <algorithm>
#include <map>
#include <optional>

#include "graph/passes/fuse.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Dims = std::vector<int64_t>;

Dims without_ones(const Dims& dims) {
  Dims out;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(out), [](int64_t d) { return d != 1; });
  return out;
}

// The shape of an operand that broadcasts to `from`, for results that have shape `to`; nothing where it has none.
std::optional<Dims> seen_in(const Dims& operand, const Dims& from, const Dims& to) {
  Dims whole = operand;
  whole.insert(whole.begin(), from.size() - operand.size(), 1);
  if (whole == from) return to;
  size_t same = 0;  // of the last axes
  while (same < from.size() && same < to.size() && from[from.size() - 1 - same] == to[to.size() - 1 - same])
    ++same;
  size_t leading = 0;  // axes of extent 1
  while (leading < operand.size() && operand[leading] == 1)
    ++leading;
  if (operand.size() - leading <= same) return Dims(operand.begin() + static_cast<std::ptrdiff_t>(leading), operand.end());
  if (without_ones(from) != without_ones(to)) return std::nullopt;
  Dims out;
  size_t axis = 0;  // of `from`
  for (int64_t extent : to) {
    while (extent != 1 && from[axis] == 1)
      ++axis;
    out.push_back(extent == 1 ? 1 : whole[axis++]);
  }
  return out;
}

class SinkReshapes {
 public:
  explicit SinkReshapes(Graph& g) : g_(g), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      sink(static_cast<NodeId>(n));
      rise(static_cast<NodeId>(n));
    }
    eliminate_dead_code(g_);
  }

 private:
  Dims dims(ValueId v) const { return static_shape(g_.value(v).type.shape); }
  bool is_static_value(ValueId v) const { return v != kNoValue && is_static(g_.value(v).type.shape); }

  // x, where the value is x in another shape; else kNoValue.
  ValueId reshaped(ValueId v) const {
    const NodeId p = g_.value(v).producer;
    if (p < 0) return kNoValue;
    const ValueId x = g_.node(p).inputs.empty() ? kNoValue : g_.node(p).inputs[0];
    return g_.node(p).op->is_view && is_static_value(x) && dims(x) != dims(v) ? x : kNoValue;
  }

  static bool is_pooling(const Node& node) { return is_op(node, "MaxPool") || is_op(node, "AveragePool"); }
  static bool begins_kernel(const Node& node) {
    return node.op->fusion == FusionClass::contraction || is_pooling(node);
  }

  // How many of the inputs are seen in the shape of the result; the others are numbers, which have none. 0: the axes matter.
  size_t inputs_in_shape(const Node& node) const {
    if (node.op->fusion != FusionClass::elementwise) return 0;
    if (node.op->axis_use == AxisUse::any) return node.inputs.size();
    const bool are_numbers = node.op->axis_use == AxisUse::scalars &&
                             std::all_of(node.inputs.begin() + 1, node.inputs.end(), [&](ValueId v) {
                               return v == kNoValue || (is_static_value(v) && dims(v).size() <= 1 &&
                                                        static_count(g_.value(v).type.shape) == 1);
                             });
    return are_numbers ? 1 : 0;
  }
  bool is_pointwise(const Node& node) const { return inputs_in_shape(node) > 0; }

  // Whether the value is the result of a product or a pooling, or what elementwise operators make of one.
  bool is_of_product(ValueId v) {
    if (auto it = is_of_product_.find(v); it != is_of_product_.end()) return it->second;
    const NodeId p = g_.value(v).producer;
    bool is = p >= 0 && begins_kernel(g_.node(p));
    if (p >= 0 && is_pointwise(g_.node(p))) {
      const std::vector<ValueId>& inputs = g_.node(p).inputs;
      is = std::any_of(inputs.begin(), inputs.end(), [&](ValueId i) {
        return is_static_value(i) && dims(i) == dims(v) && is_of_product(i);
      });
    }
    is_of_product_[v] = is;
    return is;
  }

  // Whether the node joins the kernel of this operand as it is: a product or pooling with nothing but elementwise operators behind it.
  bool is_joined(NodeId id, ValueId operand) const {
    if (static_cast<size_t>(operand) >= users_.size() || single_user(g_, users_, operand) != id) return false;
    const NodeId p = g_.value(operand).producer;
    if (p < 0 || !is_pointwise(g_.node(p))) return p >= 0 && begins_kernel(g_.node(p));
    const std::vector<ValueId>& inputs = g_.node(p).inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](ValueId i) {
      return is_static_value(i) && dims(i) == dims(operand) && is_joined(p, i);
    });
  }

  void sink(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || !is_pointwise(node) || node.outputs.size() != 1 || !is_static_value(node.outputs[0]) ||
        g_.is_output(node.outputs[0]))
      return;
    const std::vector<ValueId> in_shape_of_result(
        node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(inputs_in_shape(node)));
    if (!std::all_of(in_shape_of_result.begin(), in_shape_of_result.end(),
                     [&](ValueId v) { return is_static_value(v); }))
      return;
    const Dims from = dims(node.outputs[0]);
    ValueId source = kNoValue;
    for (ValueId v : in_shape_of_result) {
      const ValueId x = reshaped(v);
      if (x != kNoValue && dims(v) == from && is_of_product(x)) {
        source = x;
        break;
      }
    }
    if (source == kNoValue) return;
    const Dims to = dims(source);
    std::vector<std::optional<Dims>> seen;
    for (ValueId v : in_shape_of_result) {
      if (is_joined(id, v)) return;
      seen.push_back(seen_in(dims(v), from, to));
      if (!seen.back()) return;
    }
    std::vector<ValueId> inputs = node.inputs;
    for (size_t i = 0; i < seen.size(); ++i)
      inputs[i] = in_shape(node, inputs[i], *seen[i]);
    const ValueId made = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    g_.node(g_.value(made).producer).origins = node.origins;
    take_place(g_, node.outputs[0], reshape(node.name, made, from));
    g_.node(id).dead = true;
  }

  void rise(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || !node.op->is_view || !is_static_value(node.outputs[0])) return;
    const NodeId user = single_user(g_, users_, node.outputs[0]), maker = g_.value(node.inputs[0]).producer;
    if (user < 0 || !is_pooling(g_.node(user)) || maker < 0) return;
    const Node conversion = g_.node(maker);
    if (conversion.dead || inputs_in_shape(conversion) == 0 ||
        widened_operand(g_, conversion) != conversion.inputs[0])
      return;
    std::vector<ValueId> inputs = conversion.inputs;
    inputs[0] = reshape(node.name, inputs[0], dims(node.outputs[0]));
    const ValueId made =
        emit(g_, conversion.op->domain, conversion.op->name, conversion.name, inputs, conversion.attributes);
    g_.node(g_.value(made).producer).origins = conversion.origins;
    take_place(g_, node.outputs[0], made);
    g_.node(id).dead = true;
  }

  ValueId in_shape(const Node& node, ValueId v, const Dims& shape) {
    if (dims(v) == shape) return v;
    const ValueId x = reshaped(v);
    return x != kNoValue && dims(x) == shape ? x : reshape(node.name, v, shape);
  }

  ValueId reshape(const std::string& name, ValueId x, const Dims& shape) {
    return emit(g_, "", "Reshape", name, {x, g_.add_constant(name + ".shape", Constant::ints(shape))});
  }

  Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<ValueId, bool> is_of_product_;
};

}  // namespace

void sink_reshapes(Graph& graph) { SinkReshapes(graph).run(); }

}  // namespace mcc::graph
