#include "graph/passes/apply_layouts.h"

#include <algorithm>

#include "graph/ops/common.h"
#include "graph/passes/box.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/grid_convolution_cost.h"
#include "graph/passes/layout_forms.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/pack_products.h"
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
        weight_bytes_(weight_bytes(graph)),
        forms_(graph, lanes_) {}

  std::vector<Region> run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead) continue;
      // A consumer that stays plain reads plain forms; one that follows takes what is laid out itself.
      if (take_laid_out(id)) continue;
      forms_.restore_inputs(id);
      pack_product(g_, id, t_);
    }
    for (ValueId& out : g_.outputs)
      out = forms_.plain(out);
    eliminate_dead_code(g_);
    return forms_.regions();
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  size_t rank(ValueId v) const { return shape(v).size(); }
  // Two numbers, of a window over both spatial axes.
  static std::vector<int64_t> along_rows(std::vector<int64_t> window) {
    if (window.size() == 1) window.insert(window.begin(), 1);
    return window;
  }
  bool is_constant(ValueId v) const { return v != kNoValue && g_.value(v).constant.has_value(); }
  bool is_laid_out(ValueId v) const { return forms_.is_laid_out(v); }
  bool take_laid_out(NodeId id) {
    const Node node = g_.node(id);
    switch (node.op->layout) {
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
      case LayoutRole::slice:
      case LayoutRole::split:
        return follow_parts(id);
      case LayoutRole::to_space:
        return follow_to_space(id);
      case LayoutRole::resize:
        return follow_resize(id);
      case LayoutRole::matmul:
      case LayoutRole::gemm:
      case LayoutRole::recurrent:
        return false;
      case LayoutRole::none:
        break;
    }
    if (node.op->fusion == FusionClass::elementwise && node.outputs.size() == 1) return follow(id);
    return false;
  }

  // ---- Convolutions ----

  // What a convolution reads, as far as the layouts are concerned.
  struct Conv {
    ConvProblem problem;
    Layout layout;
    ValueId x, weights, bias = kNoValue;
    int64_t groups;                                                  // after some were merged
    std::vector<int64_t> kernel = {}, strides = {}, dilations = {};  // along rows and columns
    enum { laid_out, plain, words } input = laid_out;  // words: plain channels, filled up to kGridWord
    bool is_of_16_bits = false;

    // Weights of channels-last convolutions lie in panels, as those of matrix products do.
    bool in_panels() const { return layout == Layout::channels_last && !problem.is_depthwise(); }
  };

  bool lay_out_conv(NodeId id) {
    std::optional<Conv> conv = convolution(id);
    if (!conv) return false;
    const Node node = g_.node(id);
    const int64_t out = conv->problem.out_channels;
    LaidOut result{kNoValue, conv->layout, out, forms_.add_region(id)};
    if (is_laid_out(conv->x)) forms_.join(forms_.laid_out(conv->x).region, result.region);
    const std::vector<int64_t> pads = explicit_padding(g_, node, conv->kernel, conv->strides, conv->dilations);
    int64_t tile = 0;
    if (!strict_ && conv->input != Conv::plain && conv->layout == Layout::blocked &&
        g_.value(conv->x).type.element == ElementType::f32) {
      tile = winograd_tile(conv->problem, t_, weight_bytes_);
    }
    result.value = tile != 0 ? winograd_conv(id, tile, pads) : direct_conv(node, *conv, pads);
    forms_.set_result(id, result);
    return true;
  }

  // Nothing where it stays plain. Groups that are too narrow are merged.
  std::optional<Conv> convolution(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x = node.inputs[0], w = node.inputs[1];
    if (!is_constant(w) || rank(w) < 3 || rank(w) > 4 || !is_static(shape(x)) ||
        !is_float(g_.value(x).type.element)) {
      return std::nullopt;
    }
    const ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (bias != kNoValue && !is_constant(bias)) return std::nullopt;
    std::optional<ConvProblem> problem = conv_problem(g_, node);
    if (!problem) return std::nullopt;
    Layout layout = layout_of(id);
    if (problem->is_grouped() && layout == Layout::channels_last && !is_gpu_) layout = Layout::blocked;
    // Of a single point it is a product with a row, which reads plain weights along the sum.
    if (is_gpu_ && problem->images * problem->height * problem->width == 1) layout = Layout::plain;
    if (layout == Layout::plain) return std::nullopt;
    const std::vector<int64_t> ws = as_image(static_shape(shape(w)));
    Conv conv{*problem, layout, x, w, bias, problem->group};
    conv.kernel = {ws[2], ws[3]};
    conv.strides = along_rows(node.attributes.integers("strides", {1, 1}));
    conv.dilations = along_rows(node.attributes.integers("dilations", {1, 1}));
    conv.is_of_16_bits = bit_width(g_.value(x).type.element) == 16;
    if (problem->is_grouped() && !merge_narrow_groups(node.name, conv)) return std::nullopt;
    // A few plain channels (an image) are read where they are: blocks of them would multiply the work, and rows of them,
    // channels last, would be moved one by one.
    const int64_t few = layout == Layout::blocked ? lanes_ / 2 : is_gpu_ ? kFewGridChannels : lanes_;
    if (!problem->is_depthwise() && !is_laid_out(x) && problem->in_channels < few) {
      conv.input = is_gpu_ && problem->in_channels > 1 && conv.is_of_16_bits ? Conv::words : Conv::plain;
    }
    return conv;
  }

  bool merge_narrow_groups(const std::string& name, Conv& conv) {
    const ConvProblem& p = conv.problem;
    // Products with zeros are not a number where an activation is infinite.
    const int64_t merged = is_gpu_ ? grid_merged_groups(p.group, p.in_channels, p.out_channels)
                                   : merged_groups(p.group, p.in_channels, p.out_channels, lanes_);
    if (is_gpu_ && !conv.is_of_16_bits) return false;
    if (merged == 0 || (merged > 1 && strict_)) return false;
    if (merged > 1) conv.weights = merge_groups(g_, name, conv.weights, p.group, merged);
    conv.groups = (p.group + merged - 1) / merged;
    return true;
  }

  ValueId direct_conv(const Node& node, const Conv& conv, const std::vector<int64_t>& pads) {
    const int64_t in = conv.problem.in_channels, out = conv.problem.out_channels;
    const bool is_depthwise = conv.problem.is_depthwise();
    // Groups whose channels lie in one row of memory have a block each.
    const bool in_rows = conv.layout == Layout::channels_last && conv.problem.is_grouped();
    int64_t in_block = forms_.block(conv.layout, in_rows ? in / conv.groups : in);
    if (conv.input != Conv::laid_out) in_block = conv.input == Conv::words ? kGridWord : 0;
    Attributes a;
    a.set("strides", conv.strides);
    a.set("dilations", conv.dilations);
    a.set("pads", pads);
    a.set("group", is_depthwise ? int64_t{1} : conv.groups);
    a.set("in_block", in_block);
    if (conv.in_panels()) a.set("columns", out);
    if (node.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});

    // Tensor cores of GPUs find a column's weights side by side: which columns go to which thread is open then.
    const bool in_columns = is_gpu_ && conv.in_panels() && conv.is_of_16_bits;
    const bool in_tiles = !is_gpu_ && conv.in_panels();
    Attributes pack;
    pack.set("block", in_columns ? 1 : in_tiles ? panel_width(out, t_) : forms_.block(conv.layout, out));
    pack.set("in_block", in_block);
    ValueId packed = emit(g_, "mcc", is_depthwise ? "PackDepthwise" : "PackConvWeight", node.name + ".packed",
                          {forms_.reshaped_as_image(node.name, conv.weights)}, pack);
    if (in_columns && conv.input != Conv::plain) {
      // The sum as one axis.
      packed = forms_.reshape(node.name + ".packed", packed, {out, conv.kernel[0] * conv.kernel[1] * in_block});
      a.set("kernel", conv.kernel);
    }
    std::vector<ValueId> inputs{input_of(node.name, conv), packed};
    if (conv.bias != kNoValue) inputs.push_back(forms_.pack_vector(node.name, conv.bias, conv.layout, out));
    return emit(g_, "mcc", is_depthwise ? "Depthwise" : "Conv", node.name, inputs, a);
  }

  ValueId input_of(const std::string& name, const Conv& conv) {
    switch (conv.input) {
      case Conv::plain:
        return forms_.reshaped_as_image(name, conv.x);
      case Conv::words:
        return forms_.filled_up(conv.x, kGridWord);
      case Conv::laid_out:
        return forms_.in_layout(conv.x, conv.layout);
    }
    MCC_UNREACHABLE("unknown form");
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
    std::vector<ValueId> inputs{forms_.in_layout(node.inputs[0], Layout::blocked), packed};
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      inputs.push_back(forms_.pack_vector(node.name, node.inputs[2], Layout::blocked, out));
    }
    return emit(g_, "mcc", "Winograd", node.name, inputs, a);
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
    LaidOut result = forms_.laid_out(x);
    result.value = emit(g_, "mcc", node.op->name, node.name, {result.value}, a);
    forms_.set_result(id, result);
    return true;
  }

  bool reduce_mean(NodeId id) {
    const Node node = g_.node(id);
    Attributes a;
    a.set("keepdims", int64_t{1});
    ValueId axes = g_.add_constant(node.name + ".axes", Constant::ints({2, 3}));
    LaidOut result = forms_.laid_out(node.inputs[0]);
    result.value = emit(g_, "", "ReduceMean", node.name, {result.value, axes}, a);
    forms_.set_result(id, result);
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
    std::vector<ValueId> inputs{forms_.laid_out(x).value};
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
    LaidOut result = forms_.laid_out(x);
    result.value = emit(g_, "", node.op->name, node.name, inputs, a);
    forms_.set_result(id, result);
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
      const LaidOut& x = forms_.laid_out(v);
      // Along the channels, only the last part may end inside a block.
      bool is_exact = x.layout == Layout::channels_last || x.channels % lanes_ == 0;
      if (axis == 1 && i + 1 < node.inputs.size() && !is_exact) return false;
      channels += x.channels;
    }
    LaidOut result = forms_.lead(node);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(forms_.in_layout(v, result.layout));
    bool of_channels = axis == 1;
    Attributes a;
    if (axis >= 2) axis += 4 - dims;
    a.set("axis", of_channels && result.layout == Layout::channels_last ? int64_t{4} : axis);
    result.value = emit(g_, "", "Concat", node.name, inputs, a);
    if (of_channels) result.channels = channels;
    forms_.set_result(id, result);
    return true;
  }

  // DepthToSpace. Blocks stay whole where a result's channels are neighbours (mode DCR), and fill them.
  bool follow_to_space(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x = node.inputs[0];
    if (!is_laid_out(x)) return false;
    LaidOut result = forms_.laid_out(x);
    const bool in_blocks = result.layout == Layout::blocked, is_crd = node.attributes.text("mode", "DCR") == "CRD";
    const std::vector<int64_t> in = static_shape(shape(x)), out = static_shape(shape(node.outputs[0]));
    const int64_t b = node.attributes.integer("blocksize", 0);
    if (in_blocks && (is_crd || out[1] % lanes_ != 0)) return false;
    std::vector<int64_t> apart{in[0], b, b, out[1] / lanes_, in[2], in[3], lanes_}, perm{0, 3, 4, 1, 5, 2, 6};
    if (!in_blocks) {
      apart = is_crd ? std::vector<int64_t>{in[0], in[2], in[3], out[1], b, b} : std::vector<int64_t>{in[0], in[2], in[3], b, b, out[1]};
      perm = is_crd ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 1, 3, 2, 4, 5};
    }
    Attributes a;
    a.set("perm", perm);
    const ValueId moved = emit(g_, "", "Transpose", node.name, {forms_.reshape(node.name, result.value, apart)}, a);
    result.value = forms_.reshape(node.name, moved, {out[0], forms_.blocks(result.layout, out[1]), out[2], out[3], forms_.block(result.layout, out[1])});
    result.channels = out[1];
    forms_.set_result(id, result);
    return true;
  }

  // Slice and Split. Blocks stay whole; only a part that reaches to the last channel may end inside of one.
  bool follow_parts(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x = node.inputs[0];
    if (!is_laid_out(x)) return false;
    std::vector<std::pair<size_t, LaidOut>> parts;  // by the number of the output
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      std::optional<LaidOut> part = laid_out_part(x, node.outputs[k]);
      if (!part) return false;
      parts.emplace_back(k, *part);
    }
    for (const auto& [k, part] : parts)
      forms_.set_result(id, part, k);
    return true;
  }

  std::optional<LaidOut> laid_out_part(ValueId x, ValueId value) {
    const std::optional<Box> box = box_of(g_, value);
    if (!box) return std::nullopt;
    LaidOut result = forms_.laid_out(x);
    const bool in_blocks = result.layout == Layout::blocked;
    const std::vector<int64_t> in = static_shape(shape(x)), out = static_shape(shape(value));
    std::vector<int64_t> starts, ends, axes, steps;
    for (size_t d = 0; d < in.size(); ++d) {
      int64_t start = box->starts[d], step = box->steps[d], end = start + (out[d] - 1) * step + 1;
      if (step < 1 || out[d] == 0) return std::nullopt;
      if (out[d] == in[d]) continue;
      if (d == 1 && in_blocks) {
        if (step != 1 || start % lanes_ != 0 || (end % lanes_ != 0 && end != in[d])) return std::nullopt;
        start /= lanes_;
        end = (end + lanes_ - 1) / lanes_;
      }
      starts.push_back(start);
      ends.push_back(end);
      axes.push_back(static_cast<int64_t>(d == 1 && !in_blocks ? 4 : d >= 2 ? d + 4 - in.size() : d));
      steps.push_back(step);
    }
    const std::string name = g_.value(value).name;
    auto ints = [&](const char* what, const std::vector<int64_t>& values) {
      return g_.add_constant(name + what, Constant::ints(values));
    };
    result.value = emit(g_, "", "Slice", name,
                        {result.value, ints(".starts", starts), ints(".ends", ends), ints(".axes", axes), ints(".steps", steps)});
    result.channels = out[1];
    return result;
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
    LaidOut result = forms_.lead(node);
    // Lanes past the last channel hold 0 and what operators make of it; where that could be infinite or NaN, it would
    // spread through the next convolution's zero weights.
    if (result.layout == Layout::blocked && channels % lanes_ != 0 && !node.op->layout_agnostic) return false;
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(v == kNoValue ? v : follow_operand(node.name, v, result.layout, channels));
    result.value = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    result.channels = channels;
    forms_.set_result(id, result);
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
    if (!is_constant(v)) return forms_.in_layout(v, layout);
    const Shape& s = shape(v);
    if (static_count(s) == 1) return s.empty() ? v : forms_.reshape(name, v, {1});
    ValueId packed = forms_.pack_vector(name, v, layout, channels);
    return forms_.reshape(name, packed, {1, forms_.blocks(layout, channels), 1, 1, forms_.block(layout, channels)});
  }

  Graph& g_;
  const Layouts& layouts_;
  const tensor::Target& t_;
  bool strict_;
  bool is_gpu_;  // matrices stay plain there, and weights one panel: a block fetches a tile of what lies in rows
  int64_t lanes_;
  int64_t weight_bytes_;
  LayoutForms forms_;
};

}  // namespace

std::vector<Region> apply_layouts(Graph& graph, const Layouts& layouts, const tensor::Target& target,
                                  bool strict) {
  return ApplyLayouts(graph, layouts, target, strict).run();
}

}  // namespace mcc::graph
