// mcc.MaxPool, mcc.AveragePool: pooling over the spatial dimensions D... of laid out activations [N, C/c, D..., c].
// Attributes: kernel, strides, dilations (one for each dimension), pads (before each, then behind each), extent (D'...),
// count_include_pad.
#include <algorithm>
#include <functional>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

struct Window {
  std::vector<int64_t> kernel, stride, dilation, pads, extent;
  size_t axes() const { return kernel.size(); }
  // Elements past the end that the last window may touch (ceil_mode counts beyond the padding given).
  int64_t after(size_t d, int64_t in) const {
    int64_t last = (extent[d] - 1) * stride[d] - pads[d] + (kernel[d] - 1) * dilation[d];
    return std::max<int64_t>(0, last - (in - 1));
  }
};

Window window_of(const Attributes& a) {
  const std::vector<int64_t> kernel = a.integers("kernel"), ones(kernel.size(), 1), zeros(2 * kernel.size(), 0);
  return {kernel, a.integers("strides", ones), a.integers("dilations", ones), a.integers("pads", zeros), a.integers("extent")};
}

void infer(InferContext& c) {
  TensorType type = c.input(0);
  Window w = window_of(c.attributes());
  for (size_t d = 0; d < w.axes(); ++d)
    type.shape[2 + d] = Expr(w.extent[d]);
  c.set_output(0, type);
}

using Source = std::function<Expr(std::vector<Expr>)>;

Source pad(ComputeContext& c, const Window& w, const Expr& fill) {
  const TensorType& x = c.input_type(0);
  std::vector<int64_t> in = static_shape(x.shape);
  std::vector<Expr> shape = x.shape;
  bool is_same = true;
  for (size_t d = 0; d < w.axes(); ++d) {
    const int64_t around = w.pads[d] + w.after(d, in[2 + d]);
    shape[2 + d] = shape[2 + d] + Expr(around);
    is_same &= around == 0;
  }
  if (is_same) return [&c](std::vector<Expr> index) { return c.at(0, std::move(index)); };
  Buffer padded = c.builder.compute("pad", x.element, shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr inside = tensor::true_value();
    for (size_t d = 0; d < w.axes(); ++d) {
      Expr& at = index[2 + d];
      at = at - Expr(w.pads[d]);
      inside = inside && at >= Expr(0) && at < x.shape[2 + d];
    }
    return select(inside, c.at(0, index), fill);
  });
  return [padded](std::vector<Expr> index) { return load(padded, std::move(index)); };
}

Expr load_window(const Source& x, const Window& w, Axes s, Axes r) {
  std::vector<Expr> at = to_vector(s);
  for (size_t d = 0; d < w.axes(); ++d)
    at[2 + d] = s[2 + d] * Expr(w.stride[d]) + r[d] * Expr(w.dilation[d]);
  return x(at);
}

void compute_max(ComputeContext& c) {
  Window w = window_of(c.attributes());
  ElementType element = c.output_type(0).element;
  Source x = pad(c, w, identity(Reducer::max, element));
  c.set_output(0, c.builder.reduce("max_pool", element, c.output_type(0).shape, make_shape(w.kernel),
                                   Reducer::max, [&](Axes s, Axes r) { return load_window(x, w, s, r); }));
}

// How many elements of the input (or of the padded input) a window covers along dimension d.
Expr covered(const Window& w, size_t d, int64_t in, bool include_pad, const Expr& at) {
  Expr first = at * Expr(w.stride[d]) - Expr(w.pads[d]);
  Expr end = first + Expr(w.kernel[d]);
  Expr low(include_pad ? -w.pads[d] : 0), high(include_pad ? in + w.pads[w.axes() + d] : in);
  return tensor::min(end, high) - tensor::max(first, low);
}

void compute_average(ComputeContext& c) {
  Window w = window_of(c.attributes());
  ElementType element = c.output_type(0).element;
  ElementType sum = element == ElementType::f64 ? element : ElementType::f32;
  std::vector<int64_t> in = static_shape(c.input_type(0).shape);
  bool include_pad = c.attributes().integer("count_include_pad", 0) != 0;
  bool uniform = true;
  int64_t taps = 1;
  for (size_t d = 0; d < w.axes(); ++d) {
    uniform &= w.after(d, in[2 + d]) <= (include_pad ? w.pads[w.axes() + d] : 0) && (include_pad || w.pads[d] == 0);
    taps *= w.kernel[d];
  }
  Source x = pad(c, w, tensor::constant(element, 0));
  Buffer total = c.builder.reduce("pool_sum", sum, c.output_type(0).shape, make_shape(w.kernel), Reducer::sum,
                                  [&](Axes s, Axes r) { return cast(sum, load_window(x, w, s, r)); });
  c.set_output(0, c.builder.compute("pool_mean", element, c.output_type(0).shape, [&](Axes i) {
    Expr value = load(total, to_vector(i));
    if (uniform) {
      Expr scale = tensor::constant(sum, 1.0 / static_cast<double>(taps));
      return cast(element, value * scale);
    }
    Expr count = covered(w, 0, in[2], include_pad, i[2]);
    for (size_t d = 1; d < w.axes(); ++d)
      count = count * covered(w, d, in[2 + d], include_pad, i[2 + d]);
    return cast(element, value / cast(sum, count));
  }));
}

}  // namespace

std::span<const OpDef> mcc_pool_ops() {
  static const OpDef ops[] = {
      own_op("MaxPool", FusionClass::reduction, 1, infer, compute_max),
      own_op("AveragePool", FusionClass::reduction, 1, infer, compute_average),
  };
  return ops;
}

}  // namespace mcc::graph
