// What only moves elements, or chooses among them, does so in quantised form:
//   move(DequantizeLinear(x)) = DequantizeLinear(move(x))
//   QuantizeLinear(move(x)) = move(QuantizeLinear(x))
//   DynamicQuantizeLinear(repeat(x)) = repeat(DynamicQuantizeLinear(x))      x known
// So products find what they read dequantised directly before them and quantised directly behind, QuantizeLinear meets the
// DequantizeLinear that undoes it (graph/passes/simplify_algebra.cpp), and a quarter of the bytes is moved. MaxPool and Resize to the
// nearest are among these operators: with one positive scale for the tensor, both conversions keep the order of elements. A window
// of padding alone has a maximum of minus infinity, which no integer stands for: such poolings stay.
//
// Nothing moves to where it would do more. DequantizeLinear passes an operator for a consumer that profits; QuantizeLinear passes one
// whose operands are computed for it alone.
#include <algorithm>
#include <cmath>
#include <map>

#include "graph/ops/window.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// Of a QuantizeLinear or a DequantizeLinear.
struct Quantization {
  ValueId value = kNoValue;  // what it reads
  ValueId scale = kNoValue, zero = kNoValue;
  Attributes attributes;
  bool is_whole = true;  // one scale, positive, for the tensor; else one for each position of an axis
};

class MoveQuantization {
 public:
  explicit MoveQuantization(Graph& g) : g_(g), users_(g.users()), is_known_(known_values(g)) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      sink_dequantization(static_cast<NodeId>(n));
    eliminate_dead_code(g_);
    g_.compact();
    hoist_quantizations();
    eliminate_dead_code(g_);
    g_.compact();
    quantize_known();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  const Constant* constant(ValueId v) const {
    return g_.value(v).constant ? &*g_.value(v).constant : nullptr;
  }
  bool is_quantized(ValueId v) const { return is_int(type(v).element) && bit_width(type(v).element) <= 16; }

  // Between integers and f32, by constants.
  std::optional<Quantization> quantization(const Node& node, std::string_view op) const {
    if (!is_op(node, op) || !node.op->domain.empty() || node.attributes.integer("block_size", 0) != 0)
      return std::nullopt;
    const bool is_forward = op == "QuantizeLinear";
    const ValueId x = node.inputs[0], y = node.outputs[0];
    if (!is_quantized(is_forward ? y : x) || type(is_forward ? x : y).element != ElementType::f32)
      return std::nullopt;
    const Constant* scale = constant(node.inputs[1]);
    Quantization q{x, node.inputs[1], node.inputs.size() > 2 ? node.inputs[2] : kNoValue, node.attributes,
                   true};
    if (!scale || scale->element() != ElementType::f32 || (q.zero != kNoValue && !constant(q.zero)))
      return std::nullopt;
    q.is_whole = scale->count() == 1;
    if (q.is_whole && (!(scale->number_at(0) > 0) || !std::isfinite(scale->number_at(0))))
      return std::nullopt;
    return q;
  }
  std::optional<Quantization> dequantization(ValueId v) const {
    const NodeId maker = v == kNoValue ? -1 : g_.value(v).producer;
    return maker < 0 ? std::nullopt : quantization(g_.node(maker), "DequantizeLinear");
  }

  bool are_equal(const Quantization& a, const Quantization& b) const {
    auto zero_of = [&](const Quantization& q) {
      return q.zero == kNoValue ? 0 : constant(q.zero)->number_at(0);
    };
    return a.is_whole && b.is_whole && constant(a.scale)->number_at(0) == constant(b.scale)->number_at(0) &&
           zero_of(a) == zero_of(b) && type(a.value).element == type(b.value).element;
  }

  // ---- Operators that move or choose ----

  // How many of the inputs hold what is moved; 0 for other operators.
  size_t moved(const Node& node) const {
    if (is_op(node, "Gather") && node.op->domain.empty()) return 1;
    if (node.op->updates_first_input)
      return 0;  // there may be zeros in its result, which are other numbers where they are quantised
    if (is_op(node, "MaxPool") && !has_tap_in_each_window(node)) return 0;
    return moved_inputs(node);
  }

  // Of a pooling: whether each window meets the input.
  bool has_tap_in_each_window(const Node& node) const {
    const Shape &in = type(node.inputs[0]).shape, &out = type(node.outputs[0]).shape;
    if (!is_static(in) || !is_static(out)) return false;
    const Window w = window_of(node.attributes, node.attributes.integers("kernel_shape"), spatial_dims(in));
    for (size_t k = 0; k < w.rank(); ++k) {
      const int64_t extent = static_shape(in)[kFirstSpatial + k],
                    windows = static_shape(out)[kFirstSpatial + k];
      for (int64_t o = 0; o < windows; ++o) {
        bool meets = false;
        for (int64_t tap = 0; tap < w.kernel[k] && !meets; ++tap) {
          const int64_t at = o * w.stride[k] - w.begin[k] + tap * w.dilation[k];
          meets = at >= 0 && at < extent;
        }
        if (!meets) return false;
      }
    }
    return true;
  }

  // The same operator on other operands.
  NodeId moved_alike(const Node& node, const std::vector<ValueId>& inputs) {
    const ValueId first = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes,
                               static_cast<int>(node.outputs.size()));
    const NodeId made = g_.value(first).producer;
    g_.node(made).origins = node.origins;
    return made;
  }

  ValueId convert(std::string_view op, const Node& like, ValueId x, const Quantization& q) {
    std::vector<ValueId> inputs{x, q.scale};
    if (q.zero != kNoValue) inputs.push_back(q.zero);
    const ValueId y = emit(g_, "", op, like.name, inputs, q.attributes);
    g_.node(g_.value(y).producer).origins = like.origins;
    return y;
  }

  // ---- DequantizeLinear, towards the outputs ----

  void sink_dequantization(NodeId id) {
    const Node node = g_.node(id);
    const size_t operands = node.dead ? 0 : moved(node);
    if (operands == 0 || !profits(node)) return;
    std::optional<Quantization> q = dequantization(node.inputs[0]);
    if (!q || (!q->is_whole && !follow_axis(node, &*q))) return;
    std::vector<ValueId> inputs = node.inputs;
    for (size_t i = 0; i < operands; ++i) {
      const std::optional<Quantization> other = dequantization(node.inputs[i]);
      if (!other || (operands > 1 && !are_equal(*q, *other))) return;
      inputs[i] = other->value;
    }
    const Node before = g_.node(g_.value(node.inputs[0]).producer);
    const NodeId made = moved_alike(node, inputs);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      const ValueId y = convert("DequantizeLinear", before, g_.node(made).outputs[k], *q);
      take_place(g_, node.outputs[k], y);
    }
    g_.node(id).dead = true;
  }

  // Scales along an axis go with it, through a transposition.
  bool follow_axis(const Node& node, Quantization* q) const {
    if (!is_op(node, "Transpose") || constant(q->scale)->shape().size() != 1) return false;
    const std::vector<int64_t> perm = permutation_of(g_, node);
    const auto rank = static_cast<int64_t>(perm.size());
    const int64_t axis = q->attributes.integer("axis", 1), place = axis < 0 ? axis + rank : axis;
    q->attributes.set("axis",
                      static_cast<int64_t>(std::find(perm.begin(), perm.end(), place) - perm.begin()));
    return true;
  }

  // Whether less is to do where the operator works on integers: windows read each element several times, tables are fetched from
  // memory, and others are for what is quantised again or multiplied as bytes.
  bool profits(const Node& node) {
    if (is_op(node, "MaxPool") || is_op(node, "Gather")) return true;
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId v) { return v != kNoValue && is_wanted_quantized(v); });
  }

  bool is_wanted_quantized(ValueId v) {
    const auto [at, is_new] = wanted_.try_emplace(v, false);
    if (!is_new) return at->second;
    const std::vector<NodeId> users = users_[static_cast<size_t>(v)];
    const bool is_wanted = std::any_of(users.begin(), users.end(), [&](NodeId user) {
      const Node& node = g_.node(user);
      if (is_op(node, "QuantizeLinear")) return node.inputs[0] == v;
      const size_t operands = std::min(moved(node), node.inputs.size());
      const auto end = node.inputs.begin() + static_cast<std::ptrdiff_t>(operands);
      return std::find(node.inputs.begin(), end, v) != end ? profits(node) : multiplies_by_weights(node);
    });
    return wanted_[v] = is_wanted;
  }

  bool multiplies_by_weights(const Node& node) const {
    const bool is_product = is_op(node, "Conv") || is_op(node, "MatMul") || is_op(node, "Gemm");
    auto is_known = [&](size_t i) {
      return static_cast<bool>(is_known_[static_cast<size_t>(node.inputs[i])]);
    };
    return is_product && node.op->domain.empty() && is_known(0) != is_known(1);
  }

  // ---- QuantizeLinear, towards the inputs ----

  void hoist_quantizations() {
    users_ = g_.users();
    std::vector<NodeId> waiting;
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      if (is_op(g_.nodes[n], "QuantizeLinear")) waiting.push_back(static_cast<NodeId>(n));
    }
    while (!waiting.empty()) {
      const NodeId id = waiting.back();
      waiting.pop_back();
      const std::vector<NodeId> made = hoist_quantization(id);
      if (made.empty()) continue;
      users_ = g_.users();
      waiting.insert(waiting.end(), made.begin(), made.end());
    }
  }

  // Those in its place; none where it stays.
  std::vector<NodeId> hoist_quantization(NodeId id) {
    const Node node = g_.node(id);
    const std::optional<Quantization> q = quantization(node, "QuantizeLinear");
    if (!q || !q->is_whole || !is_computed_for(q->value, id)) return {};
    const NodeId mover = g_.value(q->value).producer;
    const Node before = g_.node(mover);
    const size_t operands = moved(before);
    if (operands == 0 || before.outputs.size() != 1 || leaves_out(before)) return {};
    for (size_t i = 0; i < operands; ++i) {
      if (!is_computed_for(before.inputs[i], mover)) return {};
    }
    std::vector<ValueId> inputs = before.inputs;
    std::vector<NodeId> made;
    for (size_t i = 0; i < operands; ++i) {
      inputs[i] = convert("QuantizeLinear", node, before.inputs[i], *q);
      made.push_back(g_.value(inputs[i]).producer);
    }
    take_place(g_, node.outputs[0], g_.node(moved_alike(before, inputs)).outputs[0]);
    g_.node(id).dead = g_.node(mover).dead = true;
    return made;
  }

  // ---- DynamicQuantizeLinear of what is known but for how often it stands there (tables of positions, for each of a batch) ----

  void quantize_known() {
    const std::vector<bool> is_known = known_values(g_);
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const Node node = g_.nodes[n];
      const auto is_result = [&](ValueId v) { return v == kNoValue || g_.is_output(v); };
      if (node.dead || !is_op(node, "DynamicQuantizeLinear") ||
          std::any_of(node.outputs.begin(), node.outputs.end(), is_result))
        continue;
      std::vector<Node> movers;
      ValueId x = node.inputs[0];
      while (!is_known[static_cast<size_t>(x)] && g_.value(x).producer >= 0 &&
             keeps_elements(g_.node(g_.value(x).producer))) {
        movers.push_back(g_.node(g_.value(x).producer));
        x = movers.back().inputs[0];
      }
      if (movers.empty() || !is_known[static_cast<size_t>(x)]) continue;
      const ValueId bytes = emit(g_, "", "DynamicQuantizeLinear", node.name, {x}, {}, 3);
      const Node made = g_.node(g_.value(bytes).producer);
      g_.node(g_.value(bytes).producer).origins = node.origins;
      ValueId moved = bytes;
      while (!movers.empty()) {
        std::vector<ValueId> inputs = movers.back().inputs;
        inputs[0] = moved;
        moved = g_.node(moved_alike(movers.back(), inputs)).outputs[0];
        movers.pop_back();
      }
      take_place(g_, node.outputs[0], moved);
      for (size_t k = 1; k < node.outputs.size(); ++k)
        g_.replace_uses(node.outputs[k], made.outputs[k]);
      g_.nodes[n].dead = true;
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

  // Whether every element of the input stands in the result, and nothing else does: their least and largest are the same.
  static bool keeps_elements(const Node& node) {
    return node.op->is_view || is_op(node, "Transpose") || is_op(node, "Tile") || is_op(node, "Expand");
  }

  // Whether there are elements that it does not give on, and that would be quantised for nothing. A pooling's are compared in any case.
  bool leaves_out(const Node& node) const {
    if (is_op(node, "MaxPool") || is_op(node, "Concat") || node.op->is_view) return false;
    const Shape &in = type(node.inputs[0]).shape, &out = type(node.outputs[0]).shape;
    return !is_static(in) || !is_static(out) || static_count(out) < static_count(in);
  }

  // By a kernel that can quantise it, as nobody else reads it.
  bool is_computed_for(ValueId v, NodeId user) const {
    const NodeId maker = g_.value(v).producer;
    if (maker < 0 || single_user(g_, users_, v) != user) return false;
    const Node& node = g_.node(maker);
    return is_op(node, "DequantizeLinear") ? is_computed_for(node.inputs[0], maker) : true;
  }

  Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> is_known_;
  std::map<ValueId, bool> wanted_;
};

}  // namespace

void move_quantization(Graph& graph) { MoveQuantization(graph).run(); }

}  // namespace mcc::graph
