// Reshapes behind products and poolings sink below what is elementwise:
//   op(Reshape(x), y) = Reshape(op(x, Reshape(y)))
// so that op becomes a part of the product's kernel, whose result has another shape: exporters write a linear layer over [N, T, C] as
// Gemm between two Reshapes, and activation or residual behind them; a pooling of channels that are last stands between two.
//
// In front of a pooling a Reshape rises above a conversion to a wider type, which then is a part of the pooling's kernel:
//   Reshape(DequantizeLinear(x)) = DequantizeLinear(Reshape(x))
//
// What else op reads is seen in x's shape: values as large as the result, single elements, what varies along the last axes alone (a
// bias), and, where axes are cut into several, or such of extent 1 come or go, anything.
#include <algorithm>
#include <map>
#include <optional>

#include "graph/passes/fuse.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

bool are_same(const Expr& a, const Expr& b) { return same_shape({a}, {b}); }
bool is_one(const Expr& extent) { return tensor::is_int(extent, 1); }

// Into how many axes of `to`, from one of them on, an axis of this constant extent is cut; 0 where it is not.
size_t pieces(const Expr& extent, const Shape& to, size_t first) {
  int64_t whole = 0, product = 1, piece = 0;
  if (!tensor::as_int(extent, &whole)) return 0;
  for (size_t n = first; n < to.size() && tensor::as_int(to[n], &piece) && product < whole; ++n) {
    product *= piece;
    if (product == whole && piece != whole) return n - first + 1;
  }
  return 0;
}

// `whole`, of which each axis is as long as that of `from` or 1, in axes as `to` has them: those of `from`, some of which are cut into
// several, but for axes of extent 1.
std::optional<Shape> cut_as(const Shape& whole, const Shape& from, const Shape& to) {
  Shape out;
  size_t axis = 0;  // of `from`
  while (axis < from.size() || out.size() < to.size()) {
    const bool has_from = axis < from.size(), has_to = out.size() < to.size();
    if (has_from && has_to && are_same(from[axis], to[out.size()])) {
      out.push_back(whole[axis++]);
    } else if (has_to && is_one(to[out.size()])) {
      out.emplace_back(1);
    } else if (has_from && is_one(from[axis])) {
      ++axis;
    } else if (const size_t count = has_from && has_to ? pieces(from[axis], to, out.size()) : 0; count > 0) {
      for (size_t n = 0; n < count; ++n)
        out.push_back(is_one(whole[axis]) ? Expr(1) : to[out.size()]);
      ++axis;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// The shape of an operand that broadcasts to `from`, for results that have shape `to`; nothing where it has none.
std::optional<Shape> seen_in(const Shape& operand, const Shape& from, const Shape& to) {
  Shape whole = operand;
  whole.insert(whole.begin(), from.size() - operand.size(), Expr(1));
  if (same_shape(whole, from)) return to;
  size_t same = 0;  // of the last axes
  while (same < from.size() && same < to.size() &&
         are_same(from[from.size() - 1 - same], to[to.size() - 1 - same]))
    ++same;
  size_t leading = 0;  // axes of extent 1
  while (leading < operand.size() && is_one(operand[leading]))
    ++leading;
  if (operand.size() - leading <= same)
    return Shape(operand.begin() + static_cast<std::ptrdiff_t>(leading), operand.end());
  return cut_as(whole, from, to);
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
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  bool have_same_shape(ValueId a, ValueId b) const { return same_shape(shape(a), shape(b)); }

  // x, where the value is x in another shape; else kNoValue.
  ValueId reshaped(ValueId v) const {
    const NodeId p = g_.value(v).producer;
    if (p < 0) return kNoValue;
    const ValueId x = g_.node(p).inputs.empty() ? kNoValue : g_.node(p).inputs[0];
    return g_.node(p).op->is_view && x != kNoValue && !have_same_shape(x, v) ? x : kNoValue;
  }

  static bool is_pooling(const Node& node) { return is_op(node, "MaxPool") || is_op(node, "AveragePool"); }
  static bool begins_kernel(const Node& node) {
    return node.op->fusion == FusionClass::contraction || is_pooling(node);
  }

  // How many of the inputs are seen in the shape of the result; the others are numbers, which have none. 0: the axes matter.
  size_t inputs_in_shape(const Node& node) const {
    if (node.op->fusion != FusionClass::elementwise) return 0;
    if (node.op->axis_use == AxisUse::any) return node.inputs.size();
    if (node.op->axis_use == AxisUse::first) return 1;
    const bool are_numbers = node.op->axis_use == AxisUse::scalars &&
                             std::all_of(node.inputs.begin() + 1, node.inputs.end(), [&](ValueId v) {
                               return v == kNoValue || (is_static(shape(v)) && shape(v).size() <= 1 &&
                                                        static_count(shape(v)) == 1);
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
      is = std::any_of(inputs.begin(), inputs.end(),
                       [&](ValueId i) { return i != kNoValue && have_same_shape(i, v) && is_of_product(i); });
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
      return i != kNoValue && have_same_shape(i, operand) && is_joined(p, i);
    });
  }

  void sink(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || !is_pointwise(node) || node.outputs.size() != 1 || g_.is_output(node.outputs[0])) return;
    const std::vector<ValueId> in_shape_of_result(
        node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(inputs_in_shape(node)));
    if (std::count(in_shape_of_result.begin(), in_shape_of_result.end(), kNoValue) != 0) return;
    const Shape from = shape(node.outputs[0]);
    ValueId source = kNoValue;
    for (ValueId v : in_shape_of_result) {
      const ValueId x = reshaped(v);
      if (x != kNoValue && same_shape(shape(v), from) && is_of_product(x)) {
        source = x;
        break;
      }
    }
    if (source == kNoValue) return;
    const Shape to = shape(source);
    std::vector<std::optional<Shape>> seen;
    for (ValueId v : in_shape_of_result) {
      if (is_joined(id, v)) return;
      seen.push_back(seen_in(shape(v), from, to));
      if (!seen.back()) return;
    }
    std::vector<ValueId> inputs = node.inputs;
    for (size_t i = 0; i < seen.size(); ++i)
      inputs[i] = in_shape(node, inputs[i], *seen[i]);
    const ValueId made = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    g_.node(g_.value(made).producer).origins = node.origins;
    take_place(g_, node.outputs[0], graph::reshaped(g_, node.name, made, from));
    g_.node(id).dead = true;
  }

  void rise(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || !node.op->is_view) return;
    const NodeId user = single_user(g_, users_, node.outputs[0]), maker = g_.value(node.inputs[0]).producer;
    if (user < 0 || !is_pooling(g_.node(user)) || maker < 0) return;
    const Node conversion = g_.node(maker);
    if (conversion.dead || inputs_in_shape(conversion) == 0 ||
        widened_operand(g_, conversion) != conversion.inputs[0])
      return;
    std::vector<ValueId> inputs = conversion.inputs;
    inputs[0] = graph::reshaped(g_, node.name, inputs[0], shape(node.outputs[0]));
    const ValueId made =
        emit(g_, conversion.op->domain, conversion.op->name, conversion.name, inputs, conversion.attributes);
    g_.node(g_.value(made).producer).origins = conversion.origins;
    take_place(g_, node.outputs[0], made);
    g_.node(id).dead = true;
  }

  ValueId in_shape(const Node& node, ValueId v, const Shape& wanted) {
    if (same_shape(shape(v), wanted)) return v;
    const ValueId x = reshaped(v);
    return x != kNoValue && same_shape(shape(x), wanted) ? x : graph::reshaped(g_, node.name, v, wanted);
  }

  Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<ValueId, bool> is_of_product_;
};

}  // namespace

void sink_reshapes(Graph& graph) { SinkReshapes(graph).run(); }

}  // namespace mcc::graph
