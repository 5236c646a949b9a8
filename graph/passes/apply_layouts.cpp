#include "graph/passes/apply_layouts.h"

#include <algorithm>
#include <numeric>

#include "graph/ops/common.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/grid_convolution_cost.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using tensor::as_int;
using tensor::is_int;

// Fewer channels than this are not worth an order of their own on a GPU, unless they are filled up to as many for products of 16
// bits: those fetch so many at once.
constexpr int64_t kFewGridChannels = kGridWord;

class ApplyLayouts {
 public:
  ApplyLayouts(Graph& graph, const Layouts& layouts, const tensor::Target& target, bool strict)
      : g_(graph),
        layouts_(layouts),
        t_(target),
        strict_(strict),
        is_gpu_(target.kind == tensor::TargetKind::cuda),
        lanes_(target.lanes(32)),
        weight_bytes_(weight_bytes(graph)) {}

  std::vector<Region> run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead) continue;
      // A consumer that stays plain reads plain forms; one that follows takes what is laid out itself.
      if (!take_laid_out(id)) restore_inputs(id);
    }
    for (ValueId& out : g_.outputs)
      out = plain(out);
    eliminate_dead_code(g_);
    return regions();
  }

 private:
  struct LaidOut {
    ValueId value;  // of rank 5
    Layout layout = Layout::blocked;
    int64_t channels = 0;  // C
    int region = 0;        // index into parents_
  };

  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  size_t rank(ValueId v) const { return shape(v).size(); }
  // Two numbers, of a window over both spatial axes.
  static std::vector<int64_t> along_rows(std::vector<int64_t> window) {
    if (window.size() == 1) window.insert(window.begin(), 1);
    return window;
  }
  bool is_constant(ValueId v) const { return v != kNoValue && g_.value(v).constant.has_value(); }
  bool is_laid_out(ValueId v) const { return v != kNoValue && laid_out_.count(v) != 0; }
  // Channels side by side in memory.
  int64_t block(Layout layout, int64_t channels) const {
    return layout == Layout::channels_last ? channels : lanes_;
  }
  int64_t blocks(Layout layout, int64_t channels) const {
    int64_t c = block(layout, channels);
    return (channels + c - 1) / c;
  }

  bool take_laid_out(NodeId id) {
    const Node node = g_.node(id);
    switch (node.op->layout) {
      case LayoutRole::matmul:
        return is_gpu_ ? put_in_columns(id) : pack_matmul(id);
      case LayoutRole::gemm:
        return !is_gpu_ && pack_gemm(id);
      case LayoutRole::convolution:
        return lay_out_conv(id);
      case LayoutRole::pool:
        return follow_pool(id);
      case LayoutRole::global_mean:
        return follow_global_pool(id);
      case LayoutRole::mean:
        return follow_reduce_mean(id);
      case LayoutRole::concat:
        return follow_concat(id);
      case LayoutRole::resize:
        return follow_resize(id);
      case LayoutRole::recurrent:
        if (!is_gpu_) pack_recurrent(id);
        return false;
      case LayoutRole::none:
        break;
    }
    if (node.op->fusion == FusionClass::elementwise && node.outputs.size() == 1) return follow(id);
    return false;
  }

  // ---- Regions ----

  int region_root(int region) {
    while (parents_[static_cast<size_t>(region)] != region)
      region = parents_[static_cast<size_t>(region)];
    return region;
  }
  int join(int a, int b) { return parents_[static_cast<size_t>(region_root(b))] = region_root(a); }

  std::vector<Region> regions() {
    std::map<int, Region> by_root;
    for (const auto& [id, region] : convolutions_)
      by_root[region_root(region)].push_back(id);
    std::vector<Region> out;
    for (auto& [root, region] : by_root)
      out.push_back(std::move(region));
    return out;
  }

  // ---- The forms of a value ----

  // The plain form; made once, when first asked for. It takes the value's own id, so that users need no change.
  ValueId plain(ValueId v) {
    auto it = laid_out_.find(v);
    if (it == laid_out_.end()) return v;
    if (auto made = plain_.find(v); made != plain_.end()) return made->second;
    const std::string name = g_.value(v).name;
    const LaidOut from = it->second;
    Attributes a;
    ValueId x;
    if (from.layout == Layout::channels_last) {
      std::vector<int64_t> dims = static_shape(shape(from.value));
      dims.erase(dims.begin() + 1);
      a.set("perm", std::vector<int64_t>{0, 3, 1, 2});
      x = emit(g_, "", "Transpose", name, {reshape(name, from.value, dims)}, a);
    } else {
      a.set("block", lanes_);
      a.set("channels", from.channels);
      x = emit(g_, "mcc", "Unpack", name, {from.value}, a);
    }
    if (rank(v) == 3) x = reshape(name, x, static_shape(shape(v)));
    g_.value(x).name = name;
    return plain_[v] = x;
  }

  void restore_inputs(NodeId id) {
    for (size_t i = 0; i < g_.node(id).inputs.size(); ++i) {
      ValueId v = g_.node(id).inputs[i];
      if (!is_laid_out(v)) continue;
      ValueId restored = plain(v);
      g_.node(id).inputs[i] = restored;
    }
  }

  // A value of rank 4 in a layout; of rank 3 as an image of one row.
  ValueId in_layout(ValueId v, Layout layout) {
    if (auto it = laid_out_.find(v); it != laid_out_.end() && it->second.layout == layout)
      return it->second.value;
    v = plain(v);
    if (auto it = copies_.find({v, layout}); it != copies_.end()) return it->second;
    const std::string name = g_.value(v).name;
    Attributes a;
    ValueId x, image = rank(v) == 3 ? reshape(name, v, as_image(static_shape(shape(v)))) : v;
    if (layout == Layout::channels_last) {
      a.set("perm", std::vector<int64_t>{0, 2, 3, 1});
      x = emit(g_, "", "Transpose", name, {image}, a);
      std::vector<int64_t> dims = static_shape(shape(x));
      dims.insert(dims.begin() + 1, 1);
      x = reshape(name, x, dims);
    } else {
      a.set("block", lanes_);
      x = emit(g_, "mcc", "Pack", name, {image}, a);
    }
    return copies_[{v, layout}] = x;
  }

  // A plain value with its channels last, and with zeros behind them.
  ValueId filled_up(ValueId v) {
    const std::string name = g_.value(v).name;
    Attributes a;
    a.set("block", kGridWord);
    return emit(g_, "mcc", "Pack", name, {rank(v) == 3 ? reshape(name, v, as_image(static_shape(shape(v)))) : v}, a);
  }

  // The layout in which a node follows its operands: that of the first one which has one. All that have one are from now
  // on of one region.
  LaidOut lead(const Node& node) {
    LaidOut first{kNoValue};
    for (ValueId v : node.inputs) {
      if (!is_laid_out(v)) continue;
      const LaidOut& x = laid_out_.at(v);
      if (first.value == kNoValue) {
        first = x;
      } else {
        join(first.region, x.region);
      }
    }
    return first;
  }

  // The node's result is from now on this value.
  void set_result(NodeId id, const LaidOut& result) {
    Node& node = g_.node(id);
    laid_out_[node.outputs[0]] = result;
    NodeId maker = g_.value(result.value).producer;
    g_.node(maker).name = node.name;
    for (const std::string& origin : node.origins)
      g_.node(maker).origins.push_back(origin);
    // The node itself stays until dead code goes: nothing uses it, as every user takes plain() or the value laid out.
  }

  // ---- Matrix products ----

  ValueId pack_matrix(const std::string& name, ValueId w, bool transposed) {
    Attributes a;
    a.set("block", panel_width(static_shape(shape(w))[transposed ? 0 : 1]));
    a.set("transposed", int64_t{transposed});
    return emit(g_, "mcc", "PackMatrix", name + ".packed", {w}, a);
  }

  // As wide as the register tile. With 32 registers tiles of 8 x 3 and 6 x 4 vectors read the fewest operands, and no more
  // rows at once than the first-level cache has ways; the last panel may be narrower, which pays when there are many
  // others. Else two vectors: 6 x 2 with 16 registers, 12 x 2 with 32.
  int64_t panel_width(int64_t columns) const {
    int64_t vectors = (columns + lanes_ - 1) / lanes_;
    if (t_.vector_registers < 32) return 2 * lanes_;
    int64_t width = vectors % 3 == 0 ? 3 : vectors % 4 == 0 ? 4 : vectors >= 24 ? 3 : 2;
    return width * lanes_;
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
    take_place(g_, node.outputs[0], with);
    g_.node(id).dead = true;
  }

  bool pack_matmul(NodeId id) {
    const Node node = g_.node(id);
    if (!is_packable(node.inputs[1]) || shape(node.inputs[0]).size() < 2) return false;
    replace(id, emit_matmul(node, plain(node.inputs[0]), node.inputs[1], false));
    return true;
  }

  // Weights of 16 bits for tensor cores of GPUs: each column side by side, as those of convolutions.
  bool put_in_columns(NodeId id) {
    const Node node = g_.node(id);
    const ValueId w = node.inputs[1];
    if (!is_packable(w) || shape(node.inputs[0]).size() < 2 || bit_width(g_.value(w).type.element) != 16) return false;
    Attributes pack, a;
    pack.set("block", int64_t{1});
    a.set("columns", static_shape(shape(w))[1]);
    if (node.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});
    const ValueId packed = emit(g_, "mcc", "PackMatrix", node.name + ".packed", {w}, pack);
    replace(id, emit(g_, "mcc", "MatMul", node.name, {plain(node.inputs[0]), packed}, a));
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

  // Constant weights of a recurrent layer, [directions, gates * hidden, columns], in panels of gates, as vectors read them.
  // A gate begins with a panel of its own; where vectors do not divide gates, all of them are one panel.
  void pack_recurrent(NodeId id) {
    const Node node = g_.node(id);
    if (node.attributes.integer("mcc_panel", 0) != 0) return;
    if (!is_constant(node.inputs[1]) || !is_constant(node.inputs[2]) ||
        !is_float(g_.value(node.inputs[1]).type.element))
      return;
    std::vector<int64_t> recurrent = static_shape(shape(node.inputs[2]));
    int64_t panel = recurrent[1], hidden = recurrent[2];
    for (int64_t vectors : {1, 2}) {
      if (hidden % (vectors * lanes_) == 0) panel = vectors * lanes_;
    }
    for (size_t i : {1, 2}) {
      Attributes a;
      a.set("block", panel);
      a.set("transposed", int64_t{1});
      ValueId packed = emit(g_, "mcc", "PackMatrix", node.name + ".packed", {node.inputs[i]}, a);
      g_.node(id).inputs[i] = packed;
    }
    g_.node(id).attributes.set("mcc_panel", panel);
  }

  // ---- Convolutions ----

  bool lay_out_conv(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0], w = node.inputs[1];
    if (!is_constant(w) || rank(w) < 3 || rank(w) > 4 || !is_static(shape(x)) ||
        !is_float(g_.value(x).type.element)) {
      return false;
    }
    ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (bias != kNoValue && !is_constant(bias)) return false;
    std::vector<int64_t> ws = as_image(static_shape(shape(w)));
    std::optional<ConvProblem> problem = conv_problem(g_, node);
    if (!problem) return false;
    int64_t group = problem->group, in = problem->in_channels, out = problem->out_channels;
    bool is_depthwise = problem->is_depthwise();
    Layout layout = layout_of(id);
    if (problem->is_grouped() && layout == Layout::channels_last && !is_gpu_) layout = Layout::blocked;
    // Of a single point it is a product with a row, which reads plain weights along the sum.
    if (is_gpu_ && problem->images * problem->height * problem->width == 1) layout = Layout::plain;
    if (layout == Layout::plain) return false;
    if (problem->is_grouped()) {
      // Products with zeros are not a number where an activation is infinite.
      int64_t merged = is_gpu_ ? grid_merged_groups(group, in, out) : merged_groups(group, in, out, lanes_);
      if (is_gpu_ && bit_width(g_.value(x).type.element) != 16) return false;
      if (merged == 0 || (merged > 1 && strict_)) return false;
      if (merged > 1) w = merge_groups(g_, node.name, w, group, merged);
      group = (group + merged - 1) / merged;
    }
    std::vector<int64_t> kernel{ws[2], ws[3]};
    std::vector<int64_t> strides = along_rows(node.attributes.integers("strides", {1, 1}));
    std::vector<int64_t> dilations = along_rows(node.attributes.integers("dilations", {1, 1}));
    LaidOut result{kNoValue, layout, out, static_cast<int>(parents_.size())};
    parents_.push_back(result.region);
    convolutions_.emplace_back(id, result.region);
    if (is_laid_out(x)) join(laid_out_.at(x).region, result.region);

    // A few plain channels (an image) are read where they are: blocks of them would multiply the work, and rows of them,
    // channels last, would be moved one by one.
    int64_t few = layout == Layout::blocked ? lanes_ / 2 : is_gpu_ ? kFewGridChannels : lanes_;
    bool plain_input = !is_depthwise && !is_laid_out(x) && in < few;
    const bool in_words = plain_input && is_gpu_ && in > 1 && bit_width(g_.value(x).type.element) == 16;
    if (in_words) plain_input = false;
    Attributes a;
    a.set("strides", strides);
    a.set("dilations", dilations);
    a.set("pads", explicit_padding(g_, node, kernel, strides, dilations));
    a.set("group", is_depthwise ? int64_t{1} : group);
    // Groups whose channels lie in one row of memory have a block each.
    const bool in_rows = layout == Layout::channels_last && problem->is_grouped();
    int64_t in_block = plain_input ? 0 : in_words ? kGridWord : block(layout, in_rows ? in / group : in);
    a.set("in_block", in_block);
    // Weights of channels-last convolutions lie in panels, as those of matrix products do.
    bool in_panels = layout == Layout::channels_last && !is_depthwise;
    if (in_panels) a.set("columns", out);
    if (node.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});
    int64_t tile = 0;
    if (!strict_ && !plain_input && layout == Layout::blocked &&
        g_.value(x).type.element == ElementType::f32) {
      tile = winograd_tile(*problem, t_, weight_bytes_);
    }
    if (tile != 0) {
      result.value = winograd_conv(id, tile, a.integers("pads"));
      set_result(id, result);
      return true;
    }
    Attributes pack;
    // Tensor cores of GPUs find a column's weights side by side: which columns go to which thread is open then.
    const bool in_columns = is_gpu_ && in_panels && bit_width(g_.value(x).type.element) == 16;
    pack.set("block", in_columns ? 1 : in_panels && !is_gpu_ ? panel_width(out) : block(layout, out));
    pack.set("in_block", in_block);
    std::string_view pack_op = is_depthwise ? "PackDepthwise" : "PackConvWeight";
    if (rank(w) == 3) {
      w = reshape(node.name, w, as_image(static_shape(shape(w))));
      if (plain_input) x = reshape(node.name, x, as_image(static_shape(shape(x))));
    }
    ValueId packed = emit(g_, "mcc", pack_op, node.name + ".packed", {w}, pack);
    if (in_columns && !plain_input) {
      // The sum as one axis.
      packed = reshape(node.name + ".packed", packed, {out, kernel[0] * kernel[1] * in_block});
      a.set("kernel", kernel);
    }
    std::vector<ValueId> inputs{plain_input ? x : in_words ? filled_up(x) : in_layout(x, layout), packed};
    if (bias != kNoValue) inputs.push_back(pack_vector(node.name, bias, layout, out));
    result.value = emit(g_, "mcc", is_depthwise ? "Depthwise" : "Conv", node.name, inputs, a);
    set_result(id, result);
    return true;
  }

  Layout layout_of(NodeId id) const {
    auto it = layouts_.find(id);
    return it == layouts_.end() ? first_layout(t_) : it->second;
  }

  ValueId winograd_conv(NodeId id, int64_t tile, const std::vector<int64_t>& pads) {
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
    std::vector<ValueId> inputs{in_layout(node.inputs[0], Layout::blocked), packed};
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      inputs.push_back(pack_vector(node.name, node.inputs[2], Layout::blocked, out));
    }
    return emit(g_, "mcc", "Winograd", node.name, inputs, a);
  }

  ValueId reshape(const std::string& name, ValueId x, const std::vector<int64_t>& dims) {
    return emit(g_, "", "Reshape", name, {x, g_.add_constant(name + ".shape", Constant::ints(dims))});
  }

  // [C] -> [C/c, c]
  ValueId pack_vector(const std::string& name, ValueId v, Layout layout, int64_t channels) {
    Attributes a;
    a.set("block", block(layout, channels));
    ValueId packed = emit(g_, "mcc", "Pack", name + ".bias", {reshape(name, v, {1, channels})}, a);
    return reshape(name, packed, {blocks(layout, channels), block(layout, channels)});
  }

  // ---- Followers ----

  bool follow_pool(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0];
    if (!is_laid_out(x) || node.outputs.size() > 1) return false;
    const Attributes& old = node.attributes;
    std::vector<int64_t> kernel = along_rows(old.integers("kernel_shape"));
    std::vector<int64_t> strides = along_rows(old.integers("strides", {1, 1})),
                         dilations = along_rows(old.integers("dilations", {1, 1}));
    std::vector<int64_t> out = as_image(static_shape(shape(node.outputs[0])));
    Attributes a;
    a.set("kernel", kernel);
    a.set("strides", strides);
    a.set("dilations", dilations);
    a.set("pads", explicit_padding(g_, node, kernel, strides, dilations));
    a.set("extent", std::vector<int64_t>{out[2], out[3]});
    a.set("count_include_pad", old.integer("count_include_pad", 0));
    if (is_op(node, "AveragePool") && (dilations[0] != 1 || dilations[1] != 1)) return false;
    LaidOut result = laid_out_.at(x);
    result.value = emit(g_, "mcc", node.op->name, node.name, {result.value}, a);
    set_result(id, result);
    return true;
  }

  bool reduce_mean(NodeId id) {
    const Node node = g_.node(id);
    Attributes a;
    a.set("keepdims", int64_t{1});
    ValueId axes = g_.add_constant(node.name + ".axes", Constant::ints({2, 3}));
    LaidOut result = laid_out_.at(node.inputs[0]);
    result.value = emit(g_, "", "ReduceMean", node.name, {result.value, axes}, a);
    set_result(id, result);
    return true;
  }

  bool follow_global_pool(NodeId id) { return is_laid_out(g_.node(id).inputs[0]) && reduce_mean(id); }

  // Over H and W, keeping them: the squeeze of a squeeze-and-excitation.
  bool follow_reduce_mean(NodeId id) {
    const Node& node = g_.node(id);
    if (!is_laid_out(node.inputs[0]) || node.attributes.integer("keepdims", 1) == 0) return false;
    std::vector<int64_t> axes = node.attributes.integers("axes");
    if (node.inputs.size() > 1 && is_constant(node.inputs[1]))
      axes = g_.value(node.inputs[1]).constant->to_ints();
    auto dims = static_cast<int64_t>(rank(node.inputs[0]));
    for (int64_t& axis : axes)
      axis = axis < 0 ? axis + dims : axis;
    std::sort(axes.begin(), axes.end());
    return axes == (dims == 3 ? std::vector<int64_t>{2} : std::vector<int64_t>{2, 3}) && reduce_mean(id);
  }

  // Of height and width: the same along these two axes, whatever lies around them.
  bool follow_resize(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0];
    const Attributes& old = node.attributes;
    if (!is_laid_out(x) || rank(x) != 4 || old.has("scales") || old.has("keep_aspect_ratio_policy") ||
        old.text("coordinate_transformation_mode", "") == "tf_crop_and_resize") {
      return false;
    }
    std::vector<int64_t> axes = old.integers("axes", {0, 1, 2, 3});
    std::vector<ValueId> inputs{laid_out_.at(x).value};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      inputs.push_back(kNoValue);
      if (node.inputs[i] == kNoValue || !is_constant(node.inputs[i])) continue;
      const Constant& values = *g_.value(node.inputs[i]).constant;
      if (values.count() != static_cast<int64_t>(axes.size())) continue;  // empty, or a region that is not read
      bool is_size = mcc::is_int(values.element());
      std::vector<double> kept(2, 1);
      if (is_size) kept = {static_cast<double>(static_shape(shape(x))[2]), static_cast<double>(static_shape(shape(x))[3])};
      for (size_t k = 0; k < axes.size(); ++k) {
        int64_t axis = axes[k] < 0 ? axes[k] + 4 : axes[k];
        double value = values.number_at(static_cast<int64_t>(k));
        double same = is_size ? static_cast<double>(static_shape(shape(x))[static_cast<size_t>(axis)]) : 1;
        if (axis >= 2) {
          kept[static_cast<size_t>(axis - 2)] = value;
        } else if (value != same) {
          return false;
        }
      }
      Constant pair = is_size ? Constant::ints({static_cast<int64_t>(kept[0]), static_cast<int64_t>(kept[1])})
                              : Constant::of(ElementType::f32, {2},
                                             std::vector<float>{static_cast<float>(kept[0]), static_cast<float>(kept[1])});
      inputs.back() = g_.add_constant(node.name + (is_size ? ".sizes" : ".scales"), pair);
    }
    Attributes a = old;
    a.set("axes", std::vector<int64_t>{2, 3});
    LaidOut result = laid_out_.at(x);
    result.value = emit(g_, "", node.op->name, node.name, inputs, a);
    set_result(id, result);
    return true;
  }

  bool follow_concat(NodeId id) {
    const Node node = g_.node(id);
    int64_t axis = node.attributes.integer("axis", 0), channels = 0;
    auto dims = static_cast<int64_t>(rank(node.outputs[0]));
    if (axis < 0) axis += dims;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId v = node.inputs[i];
      if (!is_laid_out(v)) return false;
      const LaidOut& x = laid_out_.at(v);
      // Along the channels, only the last part may end inside a block.
      bool is_exact = x.layout == Layout::channels_last || x.channels % lanes_ == 0;
      if (axis == 1 && i + 1 < node.inputs.size() && !is_exact) return false;
      channels += x.channels;
    }
    LaidOut result = lead(node);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(in_layout(v, result.layout));
    bool of_channels = axis == 1;
    Attributes a;
    if (axis >= 2) axis += 4 - dims;
    a.set("axis", of_channels && result.layout == Layout::channels_last ? int64_t{4} : axis);
    result.value = emit(g_, "", "Concat", node.name, inputs, a);
    if (of_channels) result.channels = channels;
    set_result(id, result);
    return true;
  }

  // Elementwise operators: as soon as one full-size operand is laid out, the others follow.
  bool follow(NodeId id) {
    const Node node = g_.node(id);
    const Shape& out = shape(node.outputs[0]);
    if (out.size() < 3 || out.size() > 4 || !is_static(out)) return false;
    int64_t channels = static_shape(out)[1];
    bool any = false;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      if (is_constant(v) ? !is_broadcast(shape(v), out.size(), channels) : rank(v) != out.size())
        return false;
      int64_t own = 0;
      if (!is_constant(v) && (!is_static(shape(v)) || !as_int(shape(v)[1], &own) || own != channels)) {
        return false;
      }
      any |= is_laid_out(v) && same_shape(shape(v), out);
    }
    if (!any) return false;
    LaidOut result = lead(node);
    // Lanes past the last channel hold 0 and what operators make of it; where that could be infinite or NaN, it would
    // spread through the next convolution's zero weights.
    if (result.layout == Layout::blocked && channels % lanes_ != 0 && !node.op->layout_agnostic) return false;
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(v == kNoValue ? v : follow_operand(node.name, v, result.layout, channels));
    result.value = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    result.channels = channels;
    set_result(id, result);
    return true;
  }

  // Constants that broadcast: scalars, or varying over channels only.
  bool is_broadcast(const Shape& s, size_t dims, int64_t channels) const {
    if (s.size() > dims) return false;
    for (size_t i = 0; i < s.size(); ++i) {
      size_t axis = dims - s.size() + i;
      if (!is_int(s[i], 1) && !(axis == 1 && is_int(s[i], channels))) return false;
    }
    return true;
  }

  ValueId follow_operand(const std::string& name, ValueId v, Layout layout, int64_t channels) {
    if (!is_constant(v)) return in_layout(v, layout);
    const Shape& s = shape(v);
    if (static_count(s) == 1) return s.empty() ? v : reshape(name, v, {1});
    ValueId packed = pack_vector(name, v, layout, channels);
    return reshape(name, packed, {1, blocks(layout, channels), 1, 1, block(layout, channels)});
  }

  Graph& g_;
  const Layouts& layouts_;
  const tensor::Target& t_;
  bool strict_;
  bool is_gpu_;  // matrices stay plain there, and weights one panel: a block fetches a tile of what lies in rows
  int64_t lanes_;
  int64_t weight_bytes_;
  std::map<ValueId, LaidOut> laid_out_;                   // values that exist so instead of plain
  std::map<ValueId, ValueId> plain_;                      // their plain forms, once made
  std::map<std::pair<ValueId, Layout>, ValueId> copies_;  // plain values in other layouts
  std::vector<int> parents_;                              // regions, as a forest of those that were joined
  std::vector<std::pair<NodeId, int>> convolutions_;
};

}  // namespace

std::vector<Region> apply_layouts(Graph& graph, const Layouts& layouts, const tensor::Target& target,
                                  bool strict) {
  return ApplyLayouts(graph, layouts, target, strict).run();
}

}  // namespace mcc::graph
