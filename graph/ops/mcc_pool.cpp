// mcc.MaxPool, mcc.AveragePool: pooling over the spatial dimensions D... of laid out activations [N, C/c, D..., c].
// Attributes: kernel, strides, dilations (one for each dimension), pads (before each, then behind each), extent (D'...; left out: of the
// windows that fit), count_include_pad.
#include "graph/ops/window.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

Window window_of_pool(const Attributes& a) { return window_of(a, a.integers("kernel"), {}); }

void infer(InferContext& c) {
  TensorType type = c.input(0);
  const Window w = window_of_pool(c.attributes());
  const std::vector<int64_t> extent = c.attributes().integers("extent");
  for (size_t k = 0; k < w.rank(); ++k) {
    Expr& axis = type.shape[kFirstSpatial + k];
    axis = extent.empty() ? window_count(w, k, axis) : Expr(extent[k]);
  }
  c.set_output(0, type);
}

// The reduction of the elements of every window, as numbers of `element`; `outside` stands in the padding.
Buffer reduce_windows(ComputeContext& c, const Window& w, std::string name, ElementType element, Reducer reducer,
                      const Expr& outside) {
  const auto first = c.output_type(0).shape.begin() + kFirstSpatial;
  Padded x = pad_input(c, 0, w, Shape(first, first + static_cast<std::ptrdiff_t>(w.rank())), outside);
  return c.builder.reduce(std::move(name), element, c.output_type(0).shape, make_shape(w.kernel), reducer,
                          [&](Axes s, Axes r) { return cast(element, x.element(c, window_index(w, to_vector(s), r))); });
}

void compute_max(ComputeContext& c) {
  const ElementType element = c.output_type(0).element;
  c.set_output(0, reduce_windows(c, window_of_pool(c.attributes()), "max_pool", element, Reducer::max,
                                 identity(Reducer::max, element)));
}

void compute_average(ComputeContext& c) {
  const Window w = window_of_pool(c.attributes());
  const TensorType& out = c.output_type(0);
  const Shape& in = c.input_type(0).shape;
  const bool include_pad = c.attributes().integer("count_include_pad", 0) != 0;
  Buffer total =
      reduce_windows(c, w, "pool_sum", wide_type(out.element), Reducer::sum, tensor::constant(out.element, 0));
  c.set_output(0, c.builder.compute("pool_mean", out.element, out.shape, [&](Axes i) {
    Expr value = load(total, to_vector(i)), count = 1;
    for (size_t k = 0; k < w.rank(); ++k) {
      const size_t axis = kFirstSpatial + k;
      count = tensor::simplify(count * tap_count(w, k, in[axis], out.shape[axis], i[axis], include_pad));
    }
    if (auto taps = static_dim(count)) return cast(out.element, value * number_like(value, 1.0 / static_cast<double>(*taps)));
    return cast(out.element, value / cast(total.element(), count));
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
