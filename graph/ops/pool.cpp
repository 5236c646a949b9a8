// Poolings: MaxPool, AveragePool, LpPool over windows, and their global forms.
#include <algorithm>
#include <limits>

#include "graph/ops/window.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

// ---- Windows ----

std::optional<Shape> pooled_shape(InferContext& c) {
  if (!expect_rank(c, 0, 3, 5)) return std::nullopt;
  const Shape& in = c.input(0).shape;
  auto window = checked_window(c, c.attributes().integers("kernel_shape"), spatial_dims(in));
  if (!window) return std::nullopt;
  bool ceil_mode = c.attributes().integer("ceil_mode", 0) != 0;
  auto counts = window_counts(c, *window, spatial_dims(in), ceil_mode);
  if (!counts) return std::nullopt;
  Shape out{in[0], in[1]};
  out.insert(out.end(), counts->begin(), counts->end());
  return out;
}

Window window_of_pool(const ComputeContext& c) {
  return window_of(c.attributes(), c.attributes().integers("kernel_shape"),
                   spatial_dims(c.input_type(0).shape));
}

std::vector<Expr> taps(const Window& w) { return {w.kernel.begin(), w.kernel.end()}; }

// The reduction of f over the elements of every window; `outside` stands in the padding.
Buffer reduce_windows(ComputeContext& c, const Window& w, ElementType element, Reducer reducer,
                      const Expr& outside, const std::function<Expr(const Expr&)>& f) {
  const Shape& out = c.output_type(0).shape;
  Padded padded = pad_input(c, 0, w, spatial_dims(out), outside);
  return c.builder.reduce("pool", element, out, taps(w), reducer, [&](Axes i, Axes r) {
    return f(padded.element(c, window_index(w, to_vector(i), r)));
  });
}

// ---- MaxPool ----

void infer_max_pool(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  auto shape = pooled_shape(c);
  if (!shape) return;
  c.set_output(0, {c.input(0).element, *shape});
  c.set_output(1, {ElementType::i64, *shape});
}

// Position of the first element of the window that equals the maximum, counted through the whole input tensor.
Buffer positions_of_maximum(ComputeContext& c, const Window& w, const Buffer& maximum) {
  const TensorType& in = c.input_type(0);
  bool column_major = c.attributes().integer("storage_order", 0) != 0;
  Expr none = std::numeric_limits<int64_t>::max();
  return c.builder.reduce(
      "indices", ElementType::i64, maximum.shape(), taps(w), Reducer::min, [&](Axes i, Axes r) {
        std::vector<Expr> at = window_index(w, to_vector(i), r);
        Expr inside = tensor::true_value();
        for (size_t k = 0; k < w.rank(); ++k) {
          Expr& p = at[k + 2];
          p = p - w.begin[k];
          inside = inside && p >= 0 && p < in.shape[k + 2];
        }
        Shape order = in.shape;
        std::vector<Expr> position = at;
        if (column_major) {
          std::reverse(order.begin() + 2, order.end());
          std::reverse(position.begin() + 2, position.end());
        }
        Expr found = select(c.at(0, at) == load(maximum, to_vector(i)), linear_index(order, position), none);
        return select(inside, found, none);
      });
}

void compute_max_pool(ComputeContext& c) {
  Window w = window_of_pool(c);
  ElementType element = c.input_type(0).element;
  Buffer maximum = reduce_windows(c, w, element, Reducer::max, tensor::identity(Reducer::max, element),
                                  [](const Expr& x) { return x; });
  c.set_output(0, maximum);
  if (c.has_output(1)) c.set_output(1, positions_of_maximum(c, w, maximum));
}

// ---- AveragePool ----

void infer_float_pool(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating)) return;
  if (auto shape = pooled_shape(c)) c.set_output(0, {c.input(0).element, *shape});
}

void compute_average_pool(ComputeContext& c) {
  Window w = window_of_pool(c);
  const TensorType& out = c.output_type(0);
  const Shape& in = c.input_type(0).shape;
  bool include_pad = c.attributes().integer("count_include_pad", 0) != 0;
  Buffer sum =
      reduce_windows(c, w, wide_type(out.element), Reducer::sum, tensor::constant(out.element, 0), widen);
  c.set_output(0, c.builder.compute("average", out.element, out.shape, [&](Axes i) {
    Expr count = 1;
    for (size_t k = 0; k < w.rank(); ++k)
      count = count * tap_count(w, k, in[k + 2], out.shape[k + 2], i[k + 2], include_pad);
    return cast(out.element, load(sum, to_vector(i)) / cast(sum.element(), count));
  }));
}

// ---- LpPool: (sum of |x|^p)^(1/p) ----

Expr power_of_magnitude(const Expr& x, int64_t p) {
  Expr a = call(Intrinsic::abs, {x});
  if (p == 1) return a;
  if (p == 2) return x * x;
  return call(Intrinsic::pow, {a, number_like(a, static_cast<double>(p))});
}

Expr root(const Expr& x, int64_t p) {
  if (p == 1) return x;
  if (p == 2) return call(Intrinsic::sqrt, {x});
  return call(Intrinsic::pow, {x, number_like(x, 1.0 / static_cast<double>(p))});
}

Buffer take_root(ComputeContext& c, const Buffer& sum, int64_t p) {
  const TensorType& out = c.output_type(0);
  return c.builder.compute("norm", out.element, out.shape,
                           [&](Axes i) { return cast(out.element, root(load(sum, to_vector(i)), p)); });
}

void compute_lp_pool(ComputeContext& c) {
  Window w = window_of_pool(c);
  int64_t p = c.attributes().integer("p", 2);
  ElementType element = c.output_type(0).element;
  Buffer sum = reduce_windows(c, w, wide_type(element), Reducer::sum, tensor::constant(element, 0),
                              [&](const Expr& x) { return power_of_magnitude(widen(x), p); });
  c.set_output(0, take_root(c, sum, p));
}

// ---- Global poolings: one window as large as the input ----

void infer_global(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2, 16)) return;
  Shape out = c.input(0).shape;
  std::fill(out.begin() + 2, out.end(), Expr(1));
  c.set_output(0, {c.input(0).element, out});
}

Buffer reduce_all(ComputeContext& c, ElementType element, Reducer reducer,
                  const std::function<Expr(const Expr&)>& f) {
  return c.builder.reduce("pool", element, c.output_type(0).shape, spatial_dims(c.input_type(0).shape),
                          reducer, [&](Axes i, Axes r) {
                            std::vector<Expr> at{i[0], i[1]};
                            at.insert(at.end(), r.begin(), r.end());
                            return f(c.at(0, at));
                          });
}

void compute_global_max(ComputeContext& c) {
  c.set_output(0, reduce_all(c, c.output_type(0).element, Reducer::max, [](const Expr& x) { return x; }));
}

void compute_global_average(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  Buffer sum = reduce_all(c, wide_type(out.element), Reducer::sum, widen);
  Expr count = cast(sum.element(), product(spatial_dims(c.input_type(0).shape)));
  c.set_output(0, c.builder.compute("average", out.element, out.shape, [&](Axes i) {
    return cast(out.element, load(sum, to_vector(i)) / count);
  }));
}

void compute_global_lp(ComputeContext& c) {
  int64_t p = c.attributes().integer("p", 2);
  Buffer sum = reduce_all(c, wide_type(c.output_type(0).element), Reducer::sum,
                          [&](const Expr& x) { return power_of_magnitude(widen(x), p); });
  c.set_output(0, take_root(c, sum, p));
}

OpDef pooling(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  return onnx_op(name, FusionClass::reduction, 1, infer, compute);
}

}  // namespace

std::span<const OpDef> pool_ops() {
  static const OpDef ops[] = {
      laid_out(pooling("MaxPool", infer_max_pool, compute_max_pool), LayoutRole::pool),
      laid_out(pooling("AveragePool", infer_float_pool, compute_average_pool), LayoutRole::pool),
      pooling("LpPool", infer_float_pool, compute_lp_pool),
      pooling("GlobalMaxPool", infer_global, compute_global_max),
      laid_out(pooling("GlobalAveragePool", infer_global, compute_global_average), LayoutRole::global_mean),
      pooling("GlobalLpPool", infer_global, compute_global_lp),
  };
  return ops;
}

}  // namespace mcc::graph
