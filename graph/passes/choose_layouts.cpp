// Layout choice. Activations of 2-D convolutions go blocked, [N, C/c, H, W, c] with c the vector length, from the
// first convolution on; everything that can follow in that layout does, and a change of layout stands only where a
// blocked tensor meets an operator that wants a plain one. Constant operands of matrix products and convolutions
// are packed at compile time in the order in which the kernels read them.
#include <algorithm>
#include <map>

#include "graph/passes/choose_winograd.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using tensor::as_int;
using tensor::is_int;

class ChooseLayouts {
 public:
  ChooseLayouts(Graph& graph, const tensor::Target& target, bool strict)
      : g_(graph), t_(target), strict_(strict), lanes_(target.lanes(32)), weight_bytes_(weight_bytes(graph)) {}

  void run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead) continue;
      // A consumer that stays plain reads through Unpack; one that follows takes the blocked value itself.
      if (!take_blocked(id)) restore_inputs(id);
    }
    for (ValueId& out : g_.outputs)
      out = plain(out);
    eliminate_dead_code(g_);
  }

 private:
  struct Blocked {
    ValueId value;     // [N, C/c, H, W, c]
    int64_t channels;  // C
  };

  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  bool is_constant(ValueId v) const { return v != kNoValue && g_.value(v).constant.has_value(); }
  bool is_blocked(ValueId v) const { return v != kNoValue && blocked_.count(v) != 0; }

  bool take_blocked(NodeId id) {
    const Node node = g_.node(id);
    switch (node.op->layout) {
      case LayoutRole::matmul:
        return pack_matmul(id);
      case LayoutRole::gemm:
        return pack_gemm(id);
      case LayoutRole::convolution:
        return block_conv(id);
      case LayoutRole::pool:
        return block_pool(id);
      case LayoutRole::global_mean:
        return block_global_pool(id);
      case LayoutRole::mean:
        return block_reduce_mean(id);
      case LayoutRole::concat:
        return block_concat(id);
      case LayoutRole::recurrent:
        transpose_recurrent(id);
        return false;
      case LayoutRole::none:
        break;
    }
    if (node.op->fusion == FusionClass::elementwise && node.outputs.size() == 1) return follow(id);
    return false;
  }

  // ---- Plain and blocked forms of a value ----

  // The plain form; made once, when first asked for. It takes the value's own id, so that users need no change.
  ValueId plain(ValueId v) {
    auto it = blocked_.find(v);
    if (it == blocked_.end()) return v;
    if (auto made = unpacked_.find(v); made != unpacked_.end()) return made->second;
    Attributes a;
    a.set("block", lanes_);
    a.set("channels", it->second.channels);
    ValueId x = emit(g_, "mcc", "Unpack", g_.value(v).name, {it->second.value}, a);
    g_.value(x).name = g_.value(v).name;
    return unpacked_[v] = x;
  }

  void restore_inputs(NodeId id) {
    for (size_t i = 0; i < g_.node(id).inputs.size(); ++i) {
      ValueId v = g_.node(id).inputs[i];
      if (v == kNoValue || !is_blocked(v)) continue;
      ValueId restored = plain(v);
      g_.node(id).inputs[i] = restored;
    }
  }

  // The blocked form of a rank-4 value.
  ValueId blocked(ValueId v) {
    if (auto it = blocked_.find(v); it != blocked_.end()) return it->second.value;
    if (auto it = packed_.find(v); it != packed_.end()) return it->second;
    Attributes a;
    a.set("block", lanes_);
    return packed_[v] = emit(g_, "mcc", "Pack", g_.value(v).name, {v}, a);
  }

  // The node's result is from now on this blocked value.
  void set_result(NodeId id, ValueId value, int64_t channels) {
    Node& node = g_.node(id);
    blocked_[node.outputs[0]] = {value, channels};
    NodeId maker = g_.value(value).producer;
    g_.node(maker).name = node.name;
    for (const std::string& origin : node.origins)
      g_.node(maker).origins.push_back(origin);
    // The node itself stays until dead code goes: nothing uses it, as every user takes plain() or the blocked form.
  }

  // ---- Matrix products ----

  ValueId pack_matrix(const std::string& name, ValueId w, bool transposed) {
    Attributes a;
    a.set("block", panel_width(static_shape(shape(w))[transposed ? 0 : 1]));
    a.set("transposed", int64_t{transposed});
    return emit(g_, "mcc", "PackMatrix", name + ".packed", {w}, a);
  }

  // As wide as the register tile. With 32 registers 8 x 3 vectors read the fewest operands and no more rows at once than
  // the first-level cache has ways; the last panel may be narrower, which pays when there are many others. Else two vectors:
  // 6 x 2 with 16 registers, 12 x 2 with 32.
  int64_t panel_width(int64_t columns) const {
    int64_t vectors = (columns + lanes_ - 1) / lanes_;
    bool wide = t_.vector_registers >= 32 && (vectors % 3 == 0 || vectors >= 24);
    return (wide ? 3 : 2) * lanes_;
  }

  bool is_packable(ValueId w) const {
    return is_constant(w) && shape(w).size() == 2 && is_float(g_.value(w).type.element) &&
           is_static(shape(w));
  }

  ValueId emit_matmul(const Node& node, ValueId x, ValueId w, bool transposed) {
    int64_t columns = static_shape(shape(w))[transposed ? 0 : 1];
    Attributes a;
    a.set("columns", columns);
    return emit(g_, "mcc", "MatMul", node.name, {x, pack_matrix(node.name, w, transposed)}, a);
  }

  void replace(NodeId id, ValueId with) {
    const Node node = g_.node(id);
    NodeId maker = g_.value(with).producer;
    g_.node(maker).origins = node.origins;
    // The new value takes the place of the old one, name, uses and all.
    g_.node(maker).outputs[0] = node.outputs[0];
    g_.value(node.outputs[0]).producer = maker;
    g_.node(id).dead = true;
  }

  bool pack_matmul(NodeId id) {
    const Node node = g_.node(id);
    if (!is_packable(node.inputs[1]) || shape(node.inputs[0]).size() < 2) return false;
    replace(id, emit_matmul(node, plain(node.inputs[0]), node.inputs[1], false));
    return true;
  }

  bool pack_gemm(NodeId id) {
    const Node node = g_.node(id);
    const Attributes& a = node.attributes;
    if (!is_packable(node.inputs[1]) || a.integer("transA", 0) != 0 || a.number("alpha", 1) != 1)
      return false;
    bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (has_bias && a.number("beta", 1) != 1) return false;
    ValueId y = emit_matmul(node, plain(node.inputs[0]), node.inputs[1], a.integer("transB", 0) != 0);
    if (has_bias) {
      g_.node(g_.value(y).producer).origins = node.origins;
      y = emit(g_, "", "Add", node.name, {y, plain(node.inputs[2])});
    }
    replace(id, y);
    return true;
  }

  // Constant weights of a recurrent layer with the gates' rows side by side, as vectors read them.
  void transpose_recurrent(NodeId id) {
    if (g_.node(id).attributes.integer("mcc_transposed_weights", 0) != 0) return;
    if (!is_constant(g_.node(id).inputs[1]) || !is_constant(g_.node(id).inputs[2])) return;
    for (size_t i : {1, 2}) {
      Attributes a;
      a.set("perm", std::vector<int64_t>{0, 2, 1});
      const std::string name = g_.node(id).name + ".packed";
      ValueId packed = emit(g_, "", "Transpose", name, {g_.node(id).inputs[i]}, a);
      g_.node(id).inputs[i] = packed;
    }
    g_.node(id).attributes.set("mcc_transposed_weights", int64_t{1});
  }

  // ---- Convolutions ----

  // The explicit padding (top, left, bottom, right) whatever auto_pad says.
  std::vector<int64_t> padding(const Node& node, const std::vector<int64_t>& kernel,
                               const std::vector<int64_t>& strides,
                               const std::vector<int64_t>& dilations) const {
    std::string mode = node.attributes.text("auto_pad", "NOTSET");
    std::vector<int64_t> pads = node.attributes.integers("pads", {0, 0, 0, 0});
    if (mode == "NOTSET") return pads;
    if (mode == "VALID") return {0, 0, 0, 0};
    for (size_t d = 0; d < 2; ++d) {
      int64_t in = static_shape(shape(node.inputs[0]))[2 + d];
      int64_t out = (in + strides[d] - 1) / strides[d];
      int64_t total = std::max<int64_t>(0, (out - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - in);
      int64_t less = total / 2;
      pads[d] = mode == "SAME_UPPER" ? less : total - less;
      pads[d + 2] = total - pads[d];
    }
    return pads;
  }

  bool block_conv(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0], w = node.inputs[1];
    if (!is_constant(w) || shape(w).size() != 4 || !is_static(shape(x)) ||
        !is_float(g_.value(x).type.element)) {
      return false;
    }
    ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (bias != kNoValue && !is_constant(bias)) return false;
    std::vector<int64_t> ws = static_shape(shape(w));
    int64_t group = node.attributes.integer("group", 1), in = ws[1] * group, out = ws[0];
    bool is_depthwise = group == in && out == in && group > 1;
    bool is_grouped = group > 1 && !is_depthwise;
    if (is_grouped && (ws[1] % lanes_ != 0 || (out / group) % lanes_ != 0)) return false;
    std::vector<int64_t> kernel{ws[2], ws[3]};
    std::vector<int64_t> strides = node.attributes.integers("strides", {1, 1});
    std::vector<int64_t> dilations = node.attributes.integers("dilations", {1, 1});

    // A few plain channels (an image) are read where they are: blocking them would multiply the work.
    bool plain_input = !is_depthwise && !is_blocked(x) && in < lanes_ / 2;
    Attributes a;
    a.set("block", lanes_);
    a.set("strides", strides);
    a.set("dilations", dilations);
    a.set("pads", padding(node, kernel, strides, dilations));
    a.set("group", is_depthwise ? int64_t{1} : group);
    a.set("in_block", plain_input ? 0 : lanes_);
    Attributes pack;
    pack.set("block", lanes_);
    pack.set("in_block", plain_input ? 0 : lanes_);
    if (int64_t tile = winograd_tile(id, a, ws); tile != 0 && !is_depthwise && !plain_input) {
      return winograd_conv(id, tile, a.integers("pads"));
    }
    std::string_view pack_op = is_depthwise ? "PackDepthwise" : "PackConvWeight";
    ValueId packed = emit(g_, "mcc", pack_op, node.name + ".packed", {w}, pack);
    std::vector<ValueId> inputs{plain_input ? x : blocked(x), packed};
    if (bias != kNoValue) inputs.push_back(pack_vector(node.name, bias, out));
    ValueId y = emit(g_, "mcc", is_depthwise ? "Depthwise" : "Conv", node.name, inputs, a);
    set_result(id, y, out);
    return true;
  }

  // The tile of Winograd's algorithm for a convolution with these attributes and this shape of weights; 0: direct.
  int64_t winograd_tile(NodeId id, const Attributes& a, const std::vector<int64_t>& weight) const {
    const std::vector<int64_t> ones{1, 1};
    const Node& node = g_.node(id);
    if (strict_ || g_.value(node.inputs[0]).type.element != ElementType::f32 || weight[2] != 3 || weight[3] != 3 ||
        a.integer("group", 1) != 1 || a.integers("strides") != ones || a.integers("dilations") != ones) {
      return 0;
    }
    std::vector<int64_t> y = static_shape(shape(node.outputs[0]));
    auto whole = [&](int64_t channels) { return (channels + lanes_ - 1) / lanes_ * lanes_; };
    return choose_winograd_tile({y[0], whole(weight[1]), whole(weight[0]), y[2], y[3]}, t_, weight_bytes_);
  }

  bool winograd_conv(NodeId id, int64_t tile, const std::vector<int64_t>& pads) {
    const Node node = g_.node(id);
    int64_t out = static_shape(shape(node.inputs[1]))[0];
    Attributes pack, a;
    pack.set("tile", tile);
    pack.set("block", lanes_);
    pack.set("panel", 2 * lanes_);
    a.set("tile", tile);
    a.set("pads", pads);
    a.set("channels", (out + lanes_ - 1) / lanes_);
    ValueId packed = emit(g_, "mcc", "WinogradWeight", node.name + ".packed", {node.inputs[1]}, pack);
    std::vector<ValueId> inputs{blocked(node.inputs[0]), packed};
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      inputs.push_back(pack_vector(node.name, node.inputs[2], out));
    }
    set_result(id, emit(g_, "mcc", "Winograd", node.name, inputs, a), out);
    return true;
  }

  ValueId reshape(const std::string& name, ValueId x, const std::vector<int64_t>& dims) {
    return emit(g_, "", "Reshape", name, {x, g_.add_constant(name + ".shape", Constant::ints(dims))});
  }

  // [C] -> [C/c, c]
  ValueId pack_vector(const std::string& name, ValueId v, int64_t channels) {
    int64_t blocks = (channels + lanes_ - 1) / lanes_;
    Attributes a;
    a.set("block", lanes_);
    ValueId packed = emit(g_, "mcc", "Pack", name + ".bias", {reshape(name, v, {1, channels})}, a);
    return reshape(name, packed, {blocks, lanes_});
  }

  // ---- Followers ----

  bool block_pool(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0];
    if (!is_blocked(x) || node.outputs.size() > 1) return false;
    const Attributes& old = node.attributes;
    std::vector<int64_t> kernel = old.integers("kernel_shape");
    std::vector<int64_t> strides = old.integers("strides", {1, 1}),
                         dilations = old.integers("dilations", {1, 1});
    std::vector<int64_t> out = static_shape(shape(node.outputs[0]));
    Attributes a;
    a.set("kernel", kernel);
    a.set("strides", strides);
    a.set("dilations", dilations);
    a.set("pads", padding(node, kernel, strides, dilations));
    a.set("extent", std::vector<int64_t>{out[2], out[3]});
    a.set("count_include_pad", old.integer("count_include_pad", 0));
    if (is_op(node, "AveragePool") && (dilations[0] != 1 || dilations[1] != 1)) return false;
    ValueId y = emit(g_, "mcc", node.op->name, node.name, {blocked(x)}, a);
    set_result(id, y, out[1]);
    return true;
  }

  bool reduce_mean(NodeId id) {
    const Node node = g_.node(id);
    Attributes a;
    a.set("keepdims", int64_t{1});
    ValueId axes = g_.add_constant(node.name + ".axes", Constant::ints({2, 3}));
    ValueId y = emit(g_, "", "ReduceMean", node.name, {blocked(node.inputs[0]), axes}, a);
    set_result(id, y, static_shape(shape(node.outputs[0]))[1]);
    return true;
  }

  bool block_global_pool(NodeId id) { return is_blocked(g_.node(id).inputs[0]) && reduce_mean(id); }

  // Over H and W, keeping them: the squeeze of a squeeze-and-excitation.
  bool block_reduce_mean(NodeId id) {
    const Node& node = g_.node(id);
    if (!is_blocked(node.inputs[0]) || node.attributes.integer("keepdims", 1) == 0) return false;
    std::vector<int64_t> axes = node.attributes.integers("axes");
    if (node.inputs.size() > 1 && is_constant(node.inputs[1]))
      axes = g_.value(node.inputs[1]).constant->to_ints();
    for (int64_t& axis : axes)
      axis = axis < 0 ? axis + 4 : axis;
    std::sort(axes.begin(), axes.end());
    return axes == std::vector<int64_t>{2, 3} && reduce_mean(id);
  }

  bool block_concat(NodeId id) {
    const Node node = g_.node(id);
    int64_t axis = node.attributes.integer("axis", 0), channels = 0;
    if (axis < 0) axis += 4;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId v = node.inputs[i];
      if (!is_blocked(v)) return false;
      int64_t c = blocked_.at(v).channels;
      // Along the channels, only the last part may end inside a block.
      if (axis == 1 && i + 1 < node.inputs.size() && c % lanes_ != 0) return false;
      channels += c;
    }
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(blocked(v));
    Attributes a;
    a.set("axis", axis);
    ValueId y = emit(g_, "", "Concat", node.name, inputs, a);
    set_result(id, y, axis == 1 ? channels : blocked_.at(node.inputs[0]).channels);
    return true;
  }

  // Elementwise operators: as soon as one full-size operand is blocked, the others follow.
  bool follow(NodeId id) {
    const Node node = g_.node(id);
    const Shape& out = shape(node.outputs[0]);
    if (out.size() != 4 || !is_static(out)) return false;
    int64_t channels = static_shape(out)[1];
    // Lanes past the last channel hold 0 and what operators make of it; where that could be infinite or NaN, it would
    // spread through the next convolution's zero weights.
    if (channels % lanes_ != 0 && !node.op->layout_agnostic) return false;
    bool any = false;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      if (is_blocked(v)) {
        any |= same_shape(shape(v), out);
      } else if (is_constant(v) ? !is_broadcast(shape(v), channels) : shape(v).size() != 4) {
        return false;
      }
      if (is_blocked(v) && blocked_.at(v).channels != channels && blocked_.at(v).channels != 1) return false;
    }
    if (!any) return false;
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(v == kNoValue ? v : follow_operand(node.name, v, channels));
    if (std::any_of(inputs.begin(), inputs.end(), [](ValueId v) { return v == kMismatch; })) return false;
    ValueId y = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    set_result(id, y, channels);
    return true;
  }

  static constexpr ValueId kMismatch = -2;

  // Constants that broadcast: scalars, or varying over channels only.
  bool is_broadcast(const Shape& s, int64_t channels) const {
    if (s.size() > 4) return false;
    for (size_t i = 0; i < s.size(); ++i) {
      size_t axis = 4 - s.size() + i;
      if (!is_int(s[i], 1) && !(axis == 1 && is_int(s[i], channels))) return false;
    }
    return true;
  }

  ValueId follow_operand(const std::string& name, ValueId v, int64_t channels) {
    const Shape& s = shape(v);
    if (is_constant(v)) {
      if (static_count(s) == 1) return s.empty() ? v : reshape(name, v, {1});
      ValueId packed = pack_vector(name, v, channels);
      return reshape(name, packed, {1, (channels + lanes_ - 1) / lanes_, 1, 1, lanes_});
    }
    int64_t c = 0;
    if (!as_int(s[1], &c) || c != channels) return kMismatch;
    return blocked(v);
  }

  Graph& g_;
  const tensor::Target& t_;
  bool strict_;
  int64_t lanes_;
  int64_t weight_bytes_;
  std::map<ValueId, Blocked> blocked_;   // values that exist in blocked form instead of plain
  std::map<ValueId, ValueId> unpacked_;  // their plain forms, once made
  std::map<ValueId, ValueId> packed_;    // blocked copies of plain values
};

}  // namespace

void choose_layouts(Graph& graph, const tensor::Target& target, bool strict) {
  ChooseLayouts(graph, target, strict).run();
}

}  // namespace mcc::graph
