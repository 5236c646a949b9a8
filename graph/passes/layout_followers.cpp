#include "graph/passes/layout_followers.h"

#include <algorithm>
#include <numeric>

#include "graph/elements.h"
#include "graph/ops/common.h"
#include "graph/passes/box.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using tensor::as_int;
using tensor::is_int;

using Ints = std::vector<int64_t>;

class FollowLayout {
 public:
  FollowLayout(Graph& graph, LayoutForms& forms, const tensor::Target& target, bool strict)
      : g_(graph), forms_(forms), t_(target), strict_(strict), lanes_(target.lanes(32)) {}

  bool run(NodeId id) {
    const Node node = g_.node(id);
    if (node.op->is_view) return follow_grouping(id);
    if (node.op->layout == LayoutRole::instance_norm) return follow_instance_norm(id);
    const bool has_groups = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_in_groups(v); });
    if (has_groups && node.op->layout != LayoutRole::none) return false;
    switch (node.op->layout) {
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
      case LayoutRole::convolution:
      case LayoutRole::matmul:
      case LayoutRole::gemm:
      case LayoutRole::recurrent:
      case LayoutRole::instance_norm:
        return false;
      case LayoutRole::none:
        break;
    }
    if (node.op->fusion == FusionClass::elementwise && node.outputs.size() == 1) return follow(id);
    return false;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  size_t rank(ValueId v) const { return shape(v).size(); }
  bool is_constant(ValueId v) const { return v != kNoValue && g_.value(v).constant.has_value(); }
  bool is_laid_out(ValueId v) const { return forms_.is_laid_out(v); }
  bool is_in_groups(ValueId v) const { return is_laid_out(v) && forms_.laid_out(v).in_groups; }
  bool is_gpu() const { return t_.kind == tensor::TargetKind::cuda; }

  // The spatial axes of a plain tensor of so many dimensions.
  static Ints spatial_axes(size_t dims) {
    Ints axes(dims - 2);
    std::iota(axes.begin(), axes.end(), 2);
    return axes;
  }
  // Where an axis of a plain tensor, other than that of its channels, is in the laid out one: images of one row have one more.
  static int64_t axis_of(int64_t axis, int64_t dims, size_t laid_out) {
    return axis >= 2 ? axis + static_cast<int64_t>(laid_out) - 1 - dims : axis;
  }

  bool follow_pool(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0];
    if (!is_laid_out(x) || node.outputs.size() > 1) return false;
    if (!is_static(shape(node.outputs[0])) && (!is_explicit(node) || node.attributes.integer("ceil_mode", 0) != 0)) return false;
    LaidOut result = forms_.laid_out(x);
    result.value = emit(g_, "mcc", node.op->name, node.name, {result.value}, laid_out_pooling(g_, node));
    forms_.set_result(id, result);
    return true;
  }

  bool reduce_mean(NodeId id) {
    const Node node = g_.node(id);
    Attributes a;
    a.set("keepdims", int64_t{1});
    LaidOut result = forms_.laid_out(node.inputs[0]);
    ValueId axes = g_.add_constant(node.name + ".axes", Constant::ints(spatial_axes(rank(result.value) - 1)));
    result.value = emit(g_, "", "ReduceMean", node.name, {result.value, axes}, a);
    forms_.set_result(id, result);
    return true;
  }

  bool follow_global_pool(NodeId id) { return is_laid_out(g_.node(id).inputs[0]) && reduce_mean(id); }

  // Over all spatial axes, keeping them: the squeeze of a squeeze-and-excitation.
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
    return axes == spatial_axes(rank(node.inputs[0])) && reduce_mean(id);
  }

  // Of a resize's input that has a scale for each of these axes: those of the spatial ones. Nothing where others are resized.
  std::optional<ValueId> spatial_scales(const Node& node, size_t input, const Ints& axes) {
    const Constant scales = *g_.value(node.inputs[input]).constant;
    std::vector<float> kept(rank(node.inputs[0]) - 2, 1);
    for (size_t k = 0; k < axes.size(); ++k) {
      const double scale = scales.number_at(static_cast<int64_t>(k));
      if (axes[k] < 2 && scale != 1) return std::nullopt;
      if (axes[k] >= 2) kept[static_cast<size_t>(axes[k]) - 2] = static_cast<float>(scale);
    }
    return g_.add_constant(node.name + ".scales", Constant::of(ElementType::f32, {static_cast<int64_t>(kept.size())}, kept));
  }

  // The same of sizes, of which some may be open.
  std::optional<ValueId> spatial_sizes(const Node& node, size_t input, const Ints& axes) {
    const Value& given = g_.value(node.inputs[input]);
    const Shape& in = shape(node.inputs[0]);
    Shape kept(in.begin() + 2, in.end());
    for (size_t k = 0; k < axes.size(); ++k) {
      const Expr size = given.constant ? Expr(given.constant->int_at(static_cast<int64_t>(k))) : given.elements[k];
      const auto axis = static_cast<size_t>(axes[k]);
      if (axis < 2 && !g_.are_equal(size, in[axis])) return std::nullopt;
      if (axis >= 2) kept[axis - 2] = size;
    }
    const std::string name = node.name + ".sizes";
    if (is_static(kept)) return g_.add_constant(name, Constant::ints(static_shape(kept)));
    Node sizes;
    sizes.name = name;
    sizes.origins = node.origins;
    sizes.outputs = {g_.add_value(name, {ElementType::i64, {static_cast<int64_t>(kept.size())}})};
    set_elements(g_, sizes, {kept});
    return sizes.outputs[0];
  }

  // Of height and width, and depth: the same along these axes, whatever lies around them.
  bool follow_resize(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0];
    const Attributes& old = node.attributes;
    if (!is_laid_out(x) || rank(x) < 4 || old.has("scales") || old.has("keep_aspect_ratio_policy") ||
        old.text("coordinate_transformation_mode", "") == "tf_crop_and_resize") {
      return false;
    }
    const Ints spatial = spatial_axes(rank(x));
    Ints axes(rank(x));
    std::iota(axes.begin(), axes.end(), 0);
    axes = old.integers("axes", axes);
    for (int64_t& axis : axes)
      axis = axis < 0 ? axis + static_cast<int64_t>(rank(x)) : axis;
    std::vector<ValueId> inputs{forms_.laid_out(x).value};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      inputs.push_back(kNoValue);
      if (node.inputs[i] == kNoValue) continue;
      const Value& given = g_.value(node.inputs[i]);
      const bool is_size = mcc::is_int(given.type.element);
      // Others are empty, or a region that is not read.
      if (given.elements.size() != axes.size() && (!given.constant || given.constant->count() != static_cast<int64_t>(axes.size()))) continue;
      const std::optional<ValueId> of_spatial = is_size ? spatial_sizes(node, i, axes) : spatial_scales(node, i, axes);
      if (!of_spatial) return false;
      inputs.back() = *of_spatial;
    }
    Attributes a = old;
    a.set("axes", spatial);
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
    const size_t laid_out = rank(result.value);
    const bool in_rows = of_channels && result.layout == Layout::channels_last;
    a.set("axis", in_rows ? static_cast<int64_t>(laid_out) - 1 : axis_of(axis, dims, laid_out));
    result.value = emit(g_, "", "Concat", node.name, inputs, a);
    if (of_channels) result.channels = channels;
    forms_.set_result(id, result);
    return true;
  }

  // Of DepthToSpace and mcc.Interleave: how many places are made of one, along each spatial axis.
  static Ints places_of_one(const Node& node, size_t axes) {
    return node.attributes.integers("blocks", Ints(axes, node.attributes.integer("blocksize", 0)));
  }

  // Blocks stay whole where a result's channels are neighbours (mode DCR), and fill them.
  bool follow_to_space(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x = node.inputs[0];
    if (!is_laid_out(x) || !is_static(shape(x))) return false;
    LaidOut result = forms_.laid_out(x);
    const bool in_blocks = result.layout == Layout::blocked, is_crd = node.attributes.text("mode", "DCR") == "CRD";
    const Ints in = static_shape(shape(x)), out = static_shape(shape(node.outputs[0]));
    const auto axes = static_cast<int64_t>(in.size()) - 2;
    const Ints b = places_of_one(node, in.size() - 2);
    if (in_blocks && (is_crd || out[1] % lanes_ != 0)) return false;
    // The extents of all axes as they lie, and their order in the result: `within` is the first axis of what becomes of one place,
    // `places` that of the places.
    Ints apart{in[0]}, perm{0};
    int64_t within = 1, places = 1;
    auto append = [&](const Ints& extents) { apart.insert(apart.end(), extents.begin(), extents.end()); };
    const Ints extents(in.begin() + 2, in.end());
    if (in_blocks) {
      append(b);
      append({out[1] / lanes_});
      append(extents);
      append({lanes_});
      places = axes + 2;
      perm.push_back(axes + 1);
    } else {
      append(extents);
      if (is_crd) append({out[1]});
      append(b);
      if (!is_crd) append({out[1]});
      within = axes + (is_crd ? 2 : 1);
    }
    for (int64_t d = 0; d < axes; ++d) {
      perm.push_back(places + d);
      perm.push_back(within + d);
    }
    perm.push_back(in_blocks ? 2 * axes + 2 : is_crd ? axes + 1 : 2 * axes + 1);
    Attributes a;
    a.set("perm", perm);
    const ValueId moved = emit(g_, "", "Transpose", node.name, {forms_.reshape(node.name, result.value, apart)}, a);
    Ints whole{out[0], forms_.blocks(result.layout, out[1])};
    if (axes == 1) whole.push_back(1);  // signals lie as images of height 1
    whole.insert(whole.end(), out.begin() + 2, out.end());
    whole.push_back(forms_.block(result.layout, out[1]));
    result.value = forms_.reshape(node.name, moved, whole);
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
      const size_t laid_out = rank(result.value);
      axes.push_back(d == 1 && !in_blocks ? static_cast<int64_t>(laid_out) - 1
                                          : axis_of(static_cast<int64_t>(d), static_cast<int64_t>(in.size()), laid_out));
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

  // ---- Normalisation, on GPUs ----

  // Channels get an axis for their groups, or lose it: nothing moves where they are last.
  bool follow_grouping(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x = node.inputs[0];
    if (!is_gpu() || !is_laid_out(x) || forms_.laid_out(x).layout != Layout::channels_last) return false;
    if (!is_static(shape(node.outputs[0]))) return false;
    LaidOut result = forms_.laid_out(x);
    const Ints in = static_shape(shape(x)), out = static_shape(shape(node.outputs[0]));
    const Ints &whole = result.in_groups ? out : in, &groups = result.in_groups ? in : out;
    if (groups.size() != whole.size() + 1 || without_groups(groups) != as_image(whole)) return false;
    result.in_groups = !result.in_groups;
    result.value = forms_.reshape(node.name, result.value, static_shape(shape(result.value)));
    forms_.set_result(id, result);
    return true;
  }

  // What was only widened, as it was.
  ValueId before_widening(ValueId v) const {
    const NodeId maker = g_.value(v).producer;
    if (maker < 0 || !is_op(g_.node(maker), "Narrow")) return v;
    const ValueId from = g_.node(maker).inputs[0];
    return is_wider(g_.value(v).type.element, g_.value(from).type.element) ? from : v;
  }

  // Of each channel, or group of them: moments of parts of the columns, put together (graph/ops/mcc_norm.cpp).
  bool follow_instance_norm(NodeId id) {
    const Node node = g_.node(id);
    if (!is_gpu() || strict_ || !is_laid_out(node.inputs[0]) || !is_static(shape(node.inputs[0])))
      return false;
    LaidOut result = forms_.laid_out(node.inputs[0]);
    if (result.layout != Layout::channels_last) return false;
    const ElementType element = g_.value(node.inputs[0]).type.element, wide = wide_type(element);
    const ValueId x = before_widening(result.value);
    const Ints image = static_shape(shape(x));  // [N, 1, H, W, C]
    const int64_t n = image[0], c = image.back(), groups = static_shape(shape(node.inputs[0]))[1];
    const int64_t places = static_count(shape(x)) / (n * c), rows = rows_of_part(places, n * c);
    if (rows == 0) return false;
    const ValueId parts = emit(g_, "mcc", "Moments", node.name, {forms_.reshape(node.name, x, {n, places / rows, rows, c})});
    Attributes a;
    a.set("count", rows);
    a.set("epsilon", node.attributes.number("epsilon", 1e-5));
    const ValueId of_groups = forms_.reshape(node.name, parts, {n, places / rows, 2, groups, c / groups});
    const ValueId merged = emit(g_, "mcc", "MergeMoments", node.name, {of_groups}, a);
    for (ValueId v : {parts, merged})
      g_.node(g_.value(v).producer).origins = node.origins;
    result.value = emit(g_, "mcc", "Normalize", node.name, {x, forms_.reshape(node.name, merged, {n, 2, c})});
    for (size_t i : {1, 2}) {
      const ValueId v = node.inputs[i];
      if (uniform_value(g_, v) == (i == 1 ? 1 : 0)) continue;
      const ValueId to = g_.add_constant(node.name + ".shape", Constant::ints({groups, c / groups}));
      const ValueId each = emit(g_, "", "Expand", node.name, {forms_.reshape(node.name, v, {groups, 1}), to});
      const ValueId factor = converted(g_, node.name, forms_.reshape(node.name, each, of_channels(c, image.size())), wide);
      result.value = emit(g_, "", i == 1 ? "Mul" : "Add", node.name, {result.value, factor});
    }
    result.value = converted(g_, node.name, result.value, element);
    forms_.set_result(id, result);
    return true;
  }

  // Elements of a part of a column, which one thread sums: many, as long as parts of all columns fill the GPU. 0 where columns have
  // no parts of a size that one thread can do.
  int64_t rows_of_part(int64_t places, int64_t columns) const {
    constexpr int64_t kFewest = 8, kMany = 32, kMost = 512;
    const int64_t threads = int64_t{t_.gpu.multiprocessors} * t_.gpu.threads_per_multiprocessor / 4;
    int64_t best = 0;
    for (int64_t rows = 1; rows <= std::min(places, kMost); ++rows) {
      if (places % rows != 0 || (rows < kFewest && rows < places)) continue;
      if (best == 0 || (rows <= kMany && columns * (places / rows) >= threads)) best = rows;
    }
    return best;
  }

  static std::span<const ValueId> operands_along_axes(const Node& node) {
    const std::span<const ValueId> all(node.inputs);
    return node.op->axis_use == AxisUse::first ? all.first(1) : all;
  }

  // Elementwise operators: as soon as one full-size operand is laid out, the others follow.
  bool follow(NodeId id) {
    const Node node = g_.node(id);
    const Shape& out = shape(node.outputs[0]);
    if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_in_groups(v); })) return follow_groups(id);
    int64_t channels = 0;
    if (out.size() < 3 || out.size() > 5 || !as_int(out[1], &channels)) return false;
    bool any = false;
    for (ValueId v : operands_along_axes(node)) {
      if (v == kNoValue) continue;
      if (is_constant(v) ? !is_broadcast(shape(v), out.size(), channels) : rank(v) != out.size())
        return false;
      int64_t own = 0;
      if (!is_constant(v) && (!as_int(shape(v)[1], &own) || own != channels)) {
        return false;
      }
      any |= is_laid_out(v) && same_shape(shape(v), out);
    }
    if (!any) return false;
    LaidOut result = forms_.lead(node);
    // Lanes past the last channel hold 0 and what operators make of it; where that could be infinite or NaN, it would
    // spread through the next convolution's zero weights.
    if (result.layout == Layout::blocked && channels % lanes_ != 0 && !node.op->layout_agnostic) return false;
    std::vector<ValueId> inputs = node.inputs;
    for (size_t i = 0; i < operands_along_axes(node).size(); ++i) {
      if (inputs[i] != kNoValue) inputs[i] = follow_operand(node.name, inputs[i], result, channels);
    }
    result.value = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    result.channels = channels;
    forms_.set_result(id, result);
    return true;
  }

  // The same of tensors whose channels have two axes plain; laid out they are images as any other.
  bool follow_groups(NodeId id) {
    const Node node = g_.node(id);
    const Ints out = static_shape(shape(node.outputs[0]));
    const int64_t channels = out[1] * out[2];
    auto is_whole = [&](ValueId v) { return same_shape(shape(v), shape(node.outputs[0])); };
    for (ValueId v : node.inputs) {
      if (v == kNoValue || is_whole(v)) continue;
      if (is_laid_out(v) || !is_static(shape(v))) return false;
      const Ints own = static_shape(shape(v));
      const size_t first = out.size() - own.size();
      bool is_vector = own.size() + 1 >= out.size() && own[1 - first] == out[1] && own[2 - first] == out[2];
      is_vector &= static_count(shape(v)) == channels;
      if (!is_vector && static_count(shape(v)) != 1) return false;
    }
    LaidOut result = forms_.lead(node);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) {
      if (v != kNoValue && is_whole(v)) {
        v = forms_.in_layout(v, result.layout, true);
      } else if (v != kNoValue && rank(v) > 0) {
        v = forms_.reshape(node.name, v, static_count(shape(v)) == 1 ? Ints{1} : of_channels(channels, rank(result.value)));
      }
      inputs.push_back(v);
    }
    result.value = emit(g_, node.op->domain, node.op->name, node.name, inputs, node.attributes);
    result.in_groups = true;
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

  // A constant of one number for each channel, for a laid out tensor of so many dimensions: [1, C/c, 1, 1, c].
  static Ints of_channels(int64_t channels, size_t dims, int64_t blocks = 1) {
    Ints shape(dims, 1);
    shape[1] = blocks;
    shape.back() = channels;
    return shape;
  }

  ValueId follow_operand(const std::string& name, ValueId v, const LaidOut& beside, int64_t channels) {
    const Layout layout = beside.layout;
    if (!is_constant(v)) return forms_.in_layout(v, layout);
    const Shape& s = shape(v);
    if (static_count(s) == 1) return s.empty() ? v : forms_.reshape(name, v, {1});
    ValueId packed = forms_.pack_vector(name, v, layout, channels);
    return forms_.reshape(name, packed, of_channels(forms_.block(layout, channels), rank(beside.value), forms_.blocks(layout, channels)));
  }

  Graph& g_;
  LayoutForms& forms_;
  const tensor::Target& t_;
  const bool strict_;
  const int64_t lanes_;
};

}  // namespace

bool follow_layout(Graph& graph, NodeId id, LayoutForms& forms, const tensor::Target& target, bool strict) {
  return FollowLayout(graph, forms, target, strict).run(id);
}

}  // namespace mcc::graph
