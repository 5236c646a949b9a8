// Convolutions on packed operands, two spatial dimensions.
//
//   mcc.Conv       x [N, C/ci, H, W, ci] (or plain [N, C, H, W] when in_block = 0), w packed by mcc.PackConvWeight,
//                  optional bias [K/c, c]  ->  [N, K/c, H', W', c]
//                  With the attribute columns (K) the weights' block c is a panel of columns, and the result has its
//                  channels last: [N, 1, H', W', K], also in groups, of which a result's group tells the input's channels
//                  With the attribute kernel (its height and width) they are a matrix [K, height * width * ci]
//   mcc.Depthwise  x [N, C/c, H, W, c], w packed by mcc.PackDepthwise, optional bias [C/c, c]
//
// Attributes: strides, dilations (2 each), pads (top, left, bottom, right), group, in_block (ci).
#include <functional>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

struct Window {
  int64_t stride[2], dilation[2], before[2], after[2];
};

Window window_of(const Attributes& a) {
  std::vector<int64_t> s = a.integers("strides", {1, 1}), d = a.integers("dilations", {1, 1}),
                       p = a.integers("pads", {0, 0, 0, 0});
  return {{s[0], s[1]}, {d[0], d[1]}, {p[0], p[1]}, {p[2], p[3]}};
}

// Extent of the result along spatial dimension d of an input of extent `in` and a kernel of extent `kernel`.
Expr result_extent(const Window& w, int d, const Expr& in, const Expr& kernel) {
  Expr span = (kernel - 1) * Expr(w.dilation[d]) + 1;
  return floor_div(in + Expr(w.before[d] + w.after[d]) - span, Expr(w.stride[d])) + 1;
}

using Source = std::function<Expr(std::vector<Expr>)>;

// Input 0 with zeros around its dimensions 2 and 3; as it is when there is nothing to add.
Source pad_window(ComputeContext& c, const Window& w) {
  const TensorType& x = c.input_type(0);
  if (w.before[0] + w.before[1] + w.after[0] + w.after[1] == 0) {
    return [&c](std::vector<Expr> index) { return c.at(0, std::move(index)); };
  }
  std::vector<Expr> shape = x.shape;
  for (size_t d = 0; d < 2; ++d)
    shape[2 + d] = shape[2 + d] + Expr(w.before[d] + w.after[d]);
  Buffer padded = c.builder.compute("pad", x.element, shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr inside = tensor::true_value();
    for (size_t d = 0; d < 2; ++d) {
      Expr& at = index[2 + d];
      at = at - Expr(w.before[d]);
      inside = inside && at >= Expr(0) && at < x.shape[2 + d];
    }
    return select(inside, c.at(0, index), tensor::constant(x.element, 0));
  });
  return [padded](std::vector<Expr> index) { return load(padded, std::move(index)); };
}

// Adds the bias [blocks, c] and converts to the result's type. Of sums with a dimension of their own for groups, [N, 1, H, W,
// groups, c], channels are made.
Buffer finish(ComputeContext& c, Buffer sum) {
  const TensorType& out = c.output_type(0);
  const bool in_groups = sum.shape().size() > out.shape.size();
  auto at = [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    if (!in_groups) return load(sum, index);
    const Expr width = sum.shape().back();
    index.back() = floor_div(i[4], width);
    index.push_back(floor_mod(i[4], width));
    return load(sum, index);
  };
  if (c.has_input(2)) {
    return c.builder.compute("bias", out.element, out.shape, [&](Axes i) {
      return cast(out.element, at(i) + widen(c.at(2, {i[1], i[4]})));
    });
  }
  if (!in_groups) return cast_buffer(c, sum, out.element);
  return c.builder.compute("channels", out.element, out.shape, [&](Axes i) { return cast(out.element, at(i)); });
}

// [panels, blocks of inputs, height, width, inputs of a block, columns of a panel] of the weights, also of those that are a matrix.
Shape weight_shape(const Attributes& a, const Shape& w) {
  const std::vector<int64_t> kernel = a.integers("kernel");
  if (kernel.empty()) return w;
  return {w[0], Expr(1), Expr(kernel[0]), Expr(kernel[1]), Expr(a.integer("in_block", 1)), Expr(1)};
}

void infer_conv(InferContext& c) {
  const TensorType& x = c.input(0);
  const Shape w = weight_shape(c.attributes(), c.input(1).shape);
  Window window = window_of(c.attributes());
  Shape shape{x.shape[0], w[0], result_extent(window, 0, x.shape[2], w[2]),
              result_extent(window, 1, x.shape[3], w[3]), w.back()};
  if (int64_t columns = c.attributes().integer("columns", 0); columns != 0) {
    shape[1] = Expr(1);
    shape[4] = Expr(columns);
  }
  c.set_output(0, {contraction_result(c), shape});
}

void compute_conv(ComputeContext& c) {
  Window window = window_of(c.attributes());
  Source x = pad_window(c, window);
  const Shape w = weight_shape(c.attributes(), c.input_type(1).shape);
  const bool is_matrix = c.attributes().has("kernel");
  bool blocked = c.attributes().integer("in_block", 0) != 0;
  bool in_panels = c.attributes().has("columns");
  int64_t group = c.attributes().integer("group", 1);
  Shape shape = c.output_type(0).shape;
  // Groups of channels that lie in one row are a dimension of their own.
  const bool in_rows = in_panels && group > 1;
  // Input (blocks of) channels and output blocks of one group.
  Expr inputs = w[1], blocks = floor_div(shape[1], Expr(group));
  ElementType sum = wide_type(c.input_type(0).element);
  std::vector<Expr> reduce{inputs, w[2], w[3]};
  if (blocked) reduce.push_back(w[4]);
  if (in_rows) {
    shape.push_back(floor_div(shape[4], Expr(group)));
    shape[4] = Expr(group);
  }
  Buffer y = c.builder.reduce("conv", sum, shape, reduce, Reducer::sum, [&](Axes s, Axes r) {
    Expr channel = group == 1 || in_rows ? r[0] : floor_div(s[1], blocks) * inputs + r[0];
    std::vector<Expr> at{s[0], channel, s[2] * Expr(window.stride[0]) + r[1] * Expr(window.dilation[0]),
                         s[3] * Expr(window.stride[1]) + r[2] * Expr(window.dilation[1])};
    const Expr column = in_rows ? s[4] * shape[5] + s[5] : s[4];
    std::vector<Expr> weight{in_panels ? floor_div(column, w.back()) : s[1], r[0], r[1], r[2]};
    if (blocked) {
      at.push_back(in_rows ? s[4] * w[4] + r[3] : r[3]);
      weight.push_back(r[3]);
    }
    weight.push_back(in_panels ? floor_mod(column, w.back()) : s[4]);
    if (is_matrix) weight = {column, (r[1] * w[3] + r[2]) * w[4] + r[3]};
    return widen(x(at)) * widen(c.at(1, weight));
  });
  c.set_output(0, finish(c, y));
}

void infer_depthwise(InferContext& c) {
  const TensorType& x = c.input(0);
  const Shape& w = c.input(1).shape;
  Window window = window_of(c.attributes());
  Shape shape{x.shape[0], x.shape[1], result_extent(window, 0, x.shape[2], w[1]),
              result_extent(window, 1, x.shape[3], w[2]), x.shape[4]};
  c.set_output(0, {contraction_result(c), shape});
}

void compute_depthwise(ComputeContext& c) {
  Window window = window_of(c.attributes());
  Source x = pad_window(c, window);
  const Shape& w = c.input_type(1).shape;
  ElementType sum = wide_type(c.input_type(0).element);
  std::vector<Expr> reduce{w[1], w[2]};
  Buffer y =
      c.builder.reduce("depthwise", sum, c.output_type(0).shape, reduce, Reducer::sum, [&](Axes s, Axes r) {
        std::vector<Expr> at{s[0], s[1], s[2] * Expr(window.stride[0]) + r[0] * Expr(window.dilation[0]),
                             s[3] * Expr(window.stride[1]) + r[1] * Expr(window.dilation[1]), s[4]};
        return widen(x(at)) * widen(c.at(1, {s[1], r[0], r[1], s[4]}));
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
