// Convolutions on packed operands, two spatial dimensions or three (D...: height and width, behind a depth).
//
//   mcc.Conv       x [N, C/ci, D..., ci] (or plain [N, C, D...] when in_block = 0), w packed by mcc.PackConvWeight,
//                  optional bias [K/c, c]  ->  [N, K/c, D'..., c]
//                  With the attribute columns (K) the weights' block c is a panel of columns, and the result has its
//                  channels last: [N, 1, D'..., K], also in groups, of which a result's group tells the input's channels
//                  With the attribute word (n) these weights are in words of n input channels: [.., ci/n, c, n]
//                  With the attribute kernel (its extents) they are a matrix [K, product of the kernel * ci]; those in words have
//                  the last axis of the kernel and the words of channels as one, [.., R, S * ci/n, c, n]
//   mcc.Depthwise  x [N, C/c, D..., c], w packed by mcc.PackDepthwise, optional bias [C/c, c]
//
// Attributes: strides, dilations (one for each spatial dimension), pads (before each, then behind each), group, in_block (ci).
#include "graph/ops/window.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

// Of a kernel that has these extents.
Window window_of_kernel(const Attributes& a, Axes kernel) { return window_of(a, static_shape(to_vector(kernel)), {}); }

// The input's shape x with the number of windows along its spatial axes.
Shape windowed(Shape x, const Window& w) {
  for (size_t k = 0; k < w.rank(); ++k)
    x[kFirstSpatial + k] = window_count(w, k, x[kFirstSpatial + k]);
  return x;
}

Padded pad_with_zeros(ComputeContext& c, const Window& w) {
  const TensorType& out = c.output_type(0);
  const Shape counts(out.shape.begin() + kFirstSpatial, out.shape.begin() + static_cast<std::ptrdiff_t>(kFirstSpatial + w.rank()));
  return pad_input(c, 0, w, counts, tensor::constant(c.input_type(0).element, 0));
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

bool is_in_words(const Attributes& a) { return a.integer("word", 1) > 1; }

// [panels, blocks of inputs, D..., inputs of a block, columns of a panel] of the weights, or in words, whatever is one axis.
Shape weight_shape(const Attributes& a, const Shape& w) {
  const std::vector<int64_t> kernel = a.integers("kernel");
  if (kernel.empty()) return w;
  Shape shape{w[0], Expr(1)};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  if (is_in_words(a)) {
    const int64_t word = a.integer("word", 1);
    shape.insert(shape.end(), {Expr(a.integer("in_block", 1) / word), w[w.size() - 2], Expr(word)});
  } else {
    shape.insert(shape.end(), {Expr(a.integer("in_block", 1)), Expr(1)});
  }
  return shape;
}

bool is_blocked(const Attributes& a) { return a.integer("in_block", 0) != 0; }

// Of an input [N, C/ci, D..., ci], or a plain one, and weights of weight_shape().
Window window_of_conv(const Attributes& a, const Shape& x, const Shape& w) {
  return window_of_kernel(a, Axes(w).subspan(2, x.size() - (is_blocked(a) ? 3 : 2)));
}

void infer_conv(InferContext& c) {
  const TensorType& x = c.input(0);
  const Shape w = weight_shape(c.attributes(), c.input(1).shape);
  const int64_t columns = c.attributes().integer("columns", 0);
  Shape shape = windowed(x.shape, window_of_conv(c.attributes(), x.shape, w));
  if (is_blocked(c.attributes())) shape.pop_back();
  shape[1] = columns != 0 ? Expr(1) : w[0];
  shape.push_back(columns != 0 ? Expr(columns) : w.back());
  c.set_output(0, {contraction_result(c), shape});
}

void compute_conv(ComputeContext& c) {
  const Shape w = weight_shape(c.attributes(), c.input_type(1).shape);
  const Window window = window_of_conv(c.attributes(), c.input_type(0).shape, w);
  const Padded x = pad_with_zeros(c, window);
  const size_t last = kFirstSpatial + window.rank();
  const bool has_kernel = c.attributes().has("kernel");
  const bool blocked = is_blocked(c.attributes());
  const bool in_words = is_in_words(c.attributes());
  const bool is_matrix = has_kernel && !in_words, joins_row = has_kernel && in_words;
  bool in_panels = c.attributes().has("columns");
  int64_t group = c.attributes().integer("group", 1);
  Shape shape = c.output_type(0).shape;
  // Groups of channels that lie in one row are a dimension of their own.
  const bool in_rows = in_panels && group > 1;
  // Input (blocks of) channels and output blocks of one group.
  Expr inputs = w[1], blocks = floor_div(shape[1], Expr(group));
  ElementType sum = wide_type(c.input_type(0).element);
  std::vector<Expr> reduce(w.begin() + 1, w.begin() + static_cast<std::ptrdiff_t>(blocked ? last + 1 : last));
  if (joins_row) {
    reduce[last - 2] = tensor::simplify(reduce[last - 2] * reduce[last - 1]);
    reduce.pop_back();
  }
  if (in_words) reduce.push_back(w.back());
  const Expr& block = in_words ? w[w.size() - 2] : w.back();
  if (in_rows) {
    shape.push_back(floor_div(shape[last], Expr(group)));
    shape[last] = Expr(group);
  }
  Buffer y = c.builder.reduce("conv", sum, shape, reduce, Reducer::sum, [&](Axes s, Axes r) {
    Expr channel = group == 1 || in_rows ? r[0] : floor_div(s[1], blocks) * inputs + r[0];
    std::vector<Expr> at(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(last));
    at[1] = channel;
    std::vector<Expr> taps(r.begin() + 1, r.end());
    if (joins_row) taps[window.rank() - 1] = floor_div(taps[window.rank() - 1], w[last]);
    at = window_index(window, at, taps);
    const Expr column = in_rows ? s[last] * shape[last + 1] + s[last + 1] : s[last];
    Expr inside = r.back();  // of a block of inputs
    if (in_words) {
      const Expr& words = r[r.size() - 2];
      inside = (joins_row ? floor_mod(words, w[last]) : Expr(words)) * w.back() + inside;
    }
    if (blocked) at.push_back(in_rows ? s[last] * w[last] + inside : inside);
    if (is_matrix) {
      Expr row = r[1];
      for (size_t d = 2; d < r.size(); ++d)
        row = row * w[1 + d] + r[d];
      return widen(x.element(c, at)) * widen(c.at(1, {column, row}));
    }
    std::vector<Expr> weight{in_panels ? floor_div(column, block) : s[1]};
    weight.insert(weight.end(), r.begin(), r.end());
    weight.insert(in_words ? weight.end() - 1 : weight.end(), in_panels ? floor_mod(column, block) : s[last]);
    return widen(x.element(c, at)) * widen(c.at(1, weight));
  });
  c.set_output(0, finish(c, y));
}

// The taps of packed weights [C/c, R..., c].
Axes depthwise_taps(const Shape& w) { return Axes(w).subspan(1, w.size() - 2); }

void infer_depthwise(InferContext& c) {
  const Window window = window_of_kernel(c.attributes(), depthwise_taps(c.input(1).shape));
  c.set_output(0, {contraction_result(c), windowed(c.input(0).shape, window)});
}

void compute_depthwise(ComputeContext& c) {
  const std::vector<Expr> taps = to_vector(depthwise_taps(c.input_type(1).shape));
  const Window window = window_of_kernel(c.attributes(), taps);
  const Padded x = pad_with_zeros(c, window);
  ElementType sum = wide_type(c.input_type(0).element);
  Buffer y = c.builder.reduce("depthwise", sum, c.output_type(0).shape, taps, Reducer::sum, [&](Axes s, Axes r) {
    std::vector<Expr> weight{s[1]};
    weight.insert(weight.end(), r.begin(), r.end());
    weight.push_back(s.back());
    return widen(x.element(c, window_index(window, to_vector(s), r))) * widen(c.at(1, weight));
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
