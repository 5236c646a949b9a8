// Convolutions on packed operands, two spatial dimensions or three (D...: height and width, behind a depth).
//
//   mcc.Conv       x [N, C/ci, D..., ci] (or plain [N, C, D...] when in_block = 0), w packed by mcc.PackConvWeight,
//                  optional bias [K/c, c]  ->  [N, K/c, D'..., c]
//                  With the attribute columns (K) the weights' block c is a panel of columns, and the result has its
//                  channels last: [N, 1, D'..., K], also in groups, of which a result's group tells the input's channels
//                  With the attribute kernel (its extents) they are a matrix [K, product of the kernel * ci]
//   mcc.Depthwise  x [N, C/c, D..., c], w packed by mcc.PackDepthwise, optional bias [C/c, c]
//
// Attributes: strides, dilations (one for each spatial dimension), pads (before each, then behind each), group, in_block (ci).
#include <functional>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

struct Window {
  std::vector<int64_t> stride, dilation, before, after;  // along each spatial dimension
  size_t axes() const { return stride.size(); }
};

Window window_of(const Attributes& a, size_t axes) {
  const std::vector<int64_t> ones(axes, 1), pads = a.integers("pads", std::vector<int64_t>(2 * axes, 0));
  const auto half = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  return {a.integers("strides", ones), a.integers("dilations", ones), {pads.begin(), half}, {half, pads.end()}};
}

// Extent of the result along spatial dimension d of an input of extent `in` and a kernel of extent `kernel`.
Expr result_extent(const Window& w, size_t d, const Expr& in, const Expr& kernel) {
  Expr span = (kernel - 1) * Expr(w.dilation[d]) + 1;
  return floor_div(in + Expr(w.before[d] + w.after[d]) - span, Expr(w.stride[d])) + 1;
}

// The place in the padded input, of this channel, at which tap r of the window of result s is: r and s from their spatial
// dimensions on.
std::vector<Expr> place_of(const Window& w, const Expr& image, const Expr& channel, Axes s, Axes r) {
  std::vector<Expr> at{image, channel};
  for (size_t d = 0; d < w.axes(); ++d)
    at.push_back(s[d] * Expr(w.stride[d]) + r[d] * Expr(w.dilation[d]));
  return at;
}

using Source = std::function<Expr(std::vector<Expr>)>;

// Input 0 with zeros around its dimensions from 2 on; as it is when there is nothing to add.
Source pad_window(ComputeContext& c, const Window& w) {
  const TensorType& x = c.input_type(0);
  std::vector<Expr> shape = x.shape;
  bool is_same = true;
  for (size_t d = 0; d < w.axes(); ++d) {
    shape[2 + d] = shape[2 + d] + Expr(w.before[d] + w.after[d]);
    is_same &= w.before[d] + w.after[d] == 0;
  }
  if (is_same) return [&c](std::vector<Expr> index) { return c.at(0, std::move(index)); };
  Buffer padded = c.builder.compute("pad", x.element, shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr inside = tensor::true_value();
    for (size_t d = 0; d < w.axes(); ++d) {
      Expr& at = index[2 + d];
      at = at - Expr(w.before[d]);
      inside = inside && at >= Expr(0) && at < x.shape[2 + d];
    }
    return select(inside, c.at(0, index), tensor::constant(x.element, 0));
  });
  return [padded](std::vector<Expr> index) { return load(padded, std::move(index)); };
}

// Adds the bias [blocks, c] and converts to the result's type. Of sums with a dimension of their own for groups, [N, 1, D...,
// groups, c], channels are made.
Buffer finish(ComputeContext& c, Buffer sum) {
  const TensorType& out = c.output_type(0);
  const bool in_groups = sum.shape().size() > out.shape.size();
  auto at = [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    if (!in_groups) return load(sum, index);
    const Expr width = sum.shape().back();
    index.back() = floor_div(i.back(), width);
    index.push_back(floor_mod(i.back(), width));
    return load(sum, index);
  };
  if (c.has_input(2)) {
    return c.builder.compute("bias", out.element, out.shape, [&](Axes i) {
      return cast(out.element, at(i) + widen(c.at(2, {i[1], i.back()})));
    });
  }
  if (!in_groups) return cast_buffer(c, sum, out.element);
  return c.builder.compute("channels", out.element, out.shape, [&](Axes i) { return cast(out.element, at(i)); });
}

// [panels, blocks of inputs, D..., inputs of a block, columns of a panel] of the weights, also of those that are a matrix.
Shape weight_shape(const Attributes& a, const Shape& w) {
  const std::vector<int64_t> kernel = a.integers("kernel");
  if (kernel.empty()) return w;
  Shape shape{w[0], Expr(1)};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  shape.insert(shape.end(), {Expr(a.integer("in_block", 1)), Expr(1)});
  return shape;
}

bool is_blocked(const Attributes& a) { return a.integer("in_block", 0) != 0; }

// Of an input [N, C/ci, D..., ci], or a plain one.
size_t spatial_axes(const Attributes& a, const Shape& x) { return x.size() - (is_blocked(a) ? 3 : 2); }

void infer_conv(InferContext& c) {
  const TensorType& x = c.input(0);
  const Shape w = weight_shape(c.attributes(), c.input(1).shape);
  const Window window = window_of(c.attributes(), spatial_axes(c.attributes(), x.shape));
  const int64_t columns = c.attributes().integer("columns", 0);
  Shape shape{x.shape[0], columns != 0 ? Expr(1) : w[0]};
  for (size_t d = 0; d < window.axes(); ++d)
    shape.push_back(result_extent(window, d, x.shape[2 + d], w[2 + d]));
  shape.push_back(columns != 0 ? Expr(columns) : w.back());
  c.set_output(0, {contraction_result(c), shape});
}

void compute_conv(ComputeContext& c) {
  const size_t axes = spatial_axes(c.attributes(), c.input_type(0).shape), last = 2 + axes;
  const Window window = window_of(c.attributes(), axes);
  Source x = pad_window(c, window);
  const Shape w = weight_shape(c.attributes(), c.input_type(1).shape);
  const bool is_matrix = c.attributes().has("kernel");
  const bool blocked = is_blocked(c.attributes());
  bool in_panels = c.attributes().has("columns");
  int64_t group = c.attributes().integer("group", 1);
  Shape shape = c.output_type(0).shape;
  // Groups of channels that lie in one row are a dimension of their own.
  const bool in_rows = in_panels && group > 1;
  // Input (blocks of) channels and output blocks of one group.
  Expr inputs = w[1], blocks = floor_div(shape[1], Expr(group));
  ElementType sum = wide_type(c.input_type(0).element);
  const std::vector<Expr> reduce(w.begin() + 1, w.begin() + static_cast<std::ptrdiff_t>(blocked ? last + 1 : last));
  if (in_rows) {
    shape.push_back(floor_div(shape[last], Expr(group)));
    shape[last] = Expr(group);
  }
  Buffer y = c.builder.reduce("conv", sum, shape, reduce, Reducer::sum, [&](Axes s, Axes r) {
    Expr channel = group == 1 || in_rows ? r[0] : floor_div(s[1], blocks) * inputs + r[0];
    std::vector<Expr> at = place_of(window, s[0], channel, s.subspan(2), r.subspan(1));
    const Expr column = in_rows ? s[last] * shape[last + 1] + s[last + 1] : s[last];
    if (blocked) at.push_back(in_rows ? s[last] * w[last] + r.back() : r.back());
    if (is_matrix) {
      Expr row = r[1];
      for (size_t d = 2; d < r.size(); ++d)
        row = row * w[1 + d] + r[d];
      return widen(x(at)) * widen(c.at(1, {column, row}));
    }
    std::vector<Expr> weight{in_panels ? floor_div(column, w.back()) : s[1]};
    weight.insert(weight.end(), r.begin(), r.end());
    weight.push_back(in_panels ? floor_mod(column, w.back()) : s[last]);
    return widen(x(at)) * widen(c.at(1, weight));
  });
  c.set_output(0, finish(c, y));
}

void infer_depthwise(InferContext& c) {
  Shape shape = c.input(0).shape;
  const Shape& w = c.input(1).shape;
  const Window window = window_of(c.attributes(), w.size() - 2);
  for (size_t d = 0; d < window.axes(); ++d)
    shape[2 + d] = result_extent(window, d, shape[2 + d], w[1 + d]);
  c.set_output(0, {contraction_result(c), shape});
}

void compute_depthwise(ComputeContext& c) {
  const Shape& w = c.input_type(1).shape;
  const std::vector<Expr> taps(w.begin() + 1, w.end() - 1);
  const Window window = window_of(c.attributes(), taps.size());
  Source x = pad_window(c, window);
  ElementType sum = wide_type(c.input_type(0).element);
  Buffer y = c.builder.reduce("depthwise", sum, c.output_type(0).shape, taps, Reducer::sum, [&](Axes s, Axes r) {
    std::vector<Expr> at = place_of(window, s[0], s[1], s.subspan(2), r), weight{s[1]};
    at.push_back(s.back());
    weight.insert(weight.end(), r.begin(), r.end());
    weight.push_back(s.back());
    return widen(x(at)) * widen(c.at(1, weight));
  });
  c.set_output(0, finish(c, y));
}

}  // namespace

std::span<const OpDef> mcc_conv_ops() {
  static const OpDef ops[] = {
      own_op("Conv", FusionClass::contraction, 2, infer_conv, compute_conv),
      own_op("Depthwise", FusionClass::contraction, 2, infer_depthwise, compute_depthwise),
  };
  return ops;
}

}  // namespace mcc::graph
