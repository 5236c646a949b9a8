// Normalisations: Batch, Instance, Layer, RMS, Group, MeanVariance, Lp, LRN.
#include <algorithm>

#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

OpDef normalization(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&),
                    int required) {
  return onnx_op(name, FusionClass::reduction, required, infer, compute);
}

// Input i has one number for each channel.
bool expect_channels(InferContext& c, int i, const Expr& channels) {
  return expect_type(c, i, TypeSet::floating) && expect_rank(c, i, 1) &&
         expect_same_dim(c, channels, c.input(i).shape[0], text("length of input ", i));
}

// ---- Mean and variance over some axes ----

struct Moments {
  Buffer mean, squares, inverse_deviation;  // squares: sums of (x - mean)^2
};

// For every element s of `shape` over the elements at(s, r) of the input, in `wide`:
// mean = sum(x) / n, inverse_deviation = 1 / sqrt(sum((x - mean)^2) / n + epsilon).
// Without a mean (RMS): inverse_deviation = 1 / sqrt(sum(x^2) / n + epsilon).
using ElementAt = std::function<std::vector<Expr>(Axes s, Axes r)>;
Moments moments(ComputeContext& c, ElementType wide, const Shape& shape, const Shape& extents,
                const ElementAt& at, double epsilon, bool centered = true) {
  Expr n = cast(wide, product(extents));
  auto x = [&](Axes s, Axes r) { return cast(wide, c.at(0, at(s, r))); };
  Moments m;
  if (centered) {
    Buffer sum = c.builder.reduce("sum", wide, shape, extents, Reducer::sum, x);
    m.mean = c.builder.compute("mean", wide, shape, [&](Axes s) { return load(sum, to_vector(s)) / n; });
  }
  m.squares = c.builder.reduce("squares", wide, shape, extents, Reducer::sum, [&](Axes s, Axes r) {
    Expr d = centered ? x(s, r) - load(m.mean, to_vector(s)) : x(s, r);
    return d * d;
  });
  m.inverse_deviation = c.builder.compute("inverse_deviation", wide, shape, [&](Axes s) {
    Expr variance = load(m.squares, to_vector(s)) / n + tensor::constant(wide, epsilon);
    return call(Intrinsic::rsqrt, {variance});
  });
  return m;
}

// ---- BatchNormalization: (x - mean) / sqrt(variance + epsilon) * scale + bias, all by channel ----

bool is_training(const Attributes& a) { return a.integer("training_mode", 0) != 0; }

void infer_batch(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 1, 16)) return;
  const Shape& in = c.input(0).shape;
  Expr channels = in.size() > 1 ? in[1] : Expr(1);
  for (int i = 1; i <= 4; ++i) {
    if (!expect_channels(c, i, channels)) return;
  }
  const int moving = is_training(c.attributes()) ? 2 : 0;  // mean and variance
  for (int i = 1 + moving; i < c.num_outputs(); ++i) {
    if (c.has_output(i)) return c.unsupported(text("output ", i, " exists only in the training mode of old opsets"));
  }
  c.set_output(0, c.input(0));
  for (int i = 1; i <= moving; ++i)
    c.set_output(i, c.input(2 + i));
}

Expr channel_of(Axes i) { return i.size() > 1 ? i[1] : Expr(0); }

// x * factor + offset.
Buffer normalize_channels(ComputeContext& c, const Buffer& factor, const Buffer& offset) {
  const TensorType& out = c.output_type(0);
  return c.builder.compute("normalize", out.element, out.shape, [&](Axes i) {
    const Expr k = channel_of(i);
    return cast(out.element, widen(c.at(0, to_vector(i))) * load(factor, {k}) + load(offset, {k}));
  });
}

// Mean and variance are the batch's own; outputs 1 and 2 are the given ones, moved towards them.
void compute_batch_training(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const ElementType wide = wide_type(in.element);
  const Shape& channels = c.input_type(1).shape;
  // All axes but that of the channels.
  Shape extents = in.shape;
  if (extents.size() > 1) extents.erase(extents.begin() + 1);
  const Moments m = moments(
      c, wide, channels, extents,
      [&](Axes s, Axes r) {
        std::vector<Expr> at = to_vector(r);
        if (in.shape.size() > 1) at.insert(at.begin() + 1, s[0]);
        return at;
      },
      c.attributes().number("epsilon", 1e-5));
  auto at = [&](int i, const Expr& k) { return cast(wide, c.at(i, {k})); };
  Buffer factor = c.builder.compute("factor", wide, channels, [&](Axes i) {
    return at(1, i[0]) * load(m.inverse_deviation, to_vector(i));
  });
  Buffer offset = c.builder.compute("offset", wide, channels, [&](Axes i) {
    return at(2, i[0]) - load(m.mean, to_vector(i)) * load(factor, to_vector(i));
  });
  c.set_output(0, normalize_channels(c, factor, offset));
  const double momentum = c.attributes().number("momentum", 0.9);
  const Expr n = cast(wide, product(extents));
  for (int i : {1, 2}) {
    if (!c.has_output(i)) continue;
    const ElementType element = c.output_type(i).element;
    c.set_output(i, c.builder.compute(i == 1 ? "moving_mean" : "moving_variance", element, channels, [&](Axes k) {
      const Expr own = i == 1 ? load(m.mean, to_vector(k)) : load(m.squares, to_vector(k)) / n;
      return cast(element, at(2 + i, k[0]) * tensor::constant(wide, momentum) + own * tensor::constant(wide, 1 - momentum));
    }));
  }
}

void compute_batch(ComputeContext& c) {
  if (is_training(c.attributes())) return compute_batch_training(c);
  const ElementType wide = wide_type(c.output_type(0).element);
  double epsilon = c.attributes().number("epsilon", 1e-5);
  const Shape& channels = c.input_type(1).shape;
  auto at = [&](int i, const Expr& k) { return cast(wide, c.at(i, {k})); };
  Buffer factor = c.builder.compute("factor", wide, channels, [&](Axes i) {
    return at(1, i[0]) / call(Intrinsic::sqrt, {at(4, i[0]) + tensor::constant(wide, epsilon)});
  });
  Buffer offset = c.builder.compute("offset", wide, channels, [&](Axes i) {
    return at(2, i[0]) - at(3, i[0]) * load(factor, to_vector(i));
  });
  c.set_output(0, normalize_channels(c, factor, offset));
}

// ---- LayerNormalization, RMSNormalization: over the axes from `axis` on; scale and bias broadcast ----

void infer_layer(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating)) return;
  auto axis = checked_axis(c, c.attributes().integer("axis", -1), c.rank(0));
  if (!axis) return;
  for (int i = 1; i <= 2; ++i) {
    if (c.has_input(i) &&
        (!expect_type(c, i, TypeSet::floating) || !expect_broadcasts_to(c, i, c.input(0).shape))) {
      return;
    }
  }
  Shape outer = c.input(0).shape;
  std::fill(outer.begin() + *axis, outer.end(), Expr(1));
  c.set_output(0, {c.input(1).element, c.input(0).shape});
  c.set_output(1, {ElementType::f32, outer});
  c.set_output(2, {ElementType::f32, outer});
}

struct Trailing {
  Trailing(const ComputeContext& c, int64_t axis_attribute) {
    const Shape& in = c.input_type(0).shape;
    axis = normal_axis(axis_attribute, static_cast<int>(in.size()));
    outer = in;
    std::fill(outer.begin() + axis, outer.end(), Expr(1));
    extents.assign(in.begin() + axis, in.end());
  }
  std::vector<Expr> whole(Axes s, Axes r) const {
    std::vector<Expr> at(s.begin(), s.begin() + axis);
    at.insert(at.end(), r.begin(), r.end());
    return at;
  }
  std::vector<Expr> statistic(Axes i) const {
    std::vector<Expr> at = to_vector(i);
    std::fill(at.begin() + axis, at.end(), Expr(0));
    return at;
  }
  int axis = 0;
  Shape outer, extents;
};

// stash_type (ONNX's number of an element type) is f32 in practice; f64 inputs stay f64.
void compute_trailing(ComputeContext& c, bool centered) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  Trailing t(c, c.attributes().integer("axis", -1));
  ElementType wide = wide_type(in.element);
  double epsilon = c.attributes().number("epsilon", 1e-5);
  Moments m = moments(
      c, wide, t.outer, t.extents, [&](Axes s, Axes r) { return t.whole(s, r); }, epsilon, centered);
  c.set_output(0, c.builder.compute("normalize", out.element, out.shape, [&](Axes i) {
    Expr x = widen(c.at(0, to_vector(i)));
    if (centered) x = x - load(m.mean, t.statistic(i));
    x = x * load(m.inverse_deviation, t.statistic(i)) * cast(wide, broadcast_at(c, 1, i));
    if (centered && c.has_input(2)) x = x + cast(wide, broadcast_at(c, 2, i));
    return cast(out.element, x);
  }));
  if (c.has_output(1)) c.set_output(1, cast_buffer(c, m.mean, ElementType::f32));
  if (c.has_output(2)) c.set_output(2, cast_buffer(c, m.inverse_deviation, ElementType::f32));
}

void compute_layer(ComputeContext& c) { compute_trailing(c, true); }
void compute_rms(ComputeContext& c) { compute_trailing(c, false); }

// ---- InstanceNormalization, GroupNormalization: over the spatial axes and the channels of a group ----

bool check_affine(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 3, 16)) return false;
  return expect_channels(c, 1, c.input(0).shape[1]) && expect_channels(c, 2, c.input(0).shape[1]);
}

void infer_instance(InferContext& c) {
  if (check_affine(c)) c.set_output(0, c.input(0));
}

void infer_group(InferContext& c) {
  if (!check_affine(c)) return;
  int64_t groups = c.attributes().integer("num_groups", 0);
  auto channels = need_static_dim(c, c.input(0).shape[1], "the number of channels");
  if (!channels || !expect(c, groups >= 1 && *channels % groups == 0, "num_groups of ", groups, " for ",
                           *channels, " channels")) {
    return;
  }
  c.set_output(0, c.input(0));
}

// group_size channels together; 1 for the instance form.
void normalize_groups(ComputeContext& c, const Expr& groups, int64_t group_size) {
  const TensorType& in = c.input_type(0);
  ElementType wide = wide_type(in.element);
  Shape extents(in.shape.begin() + 2, in.shape.end());
  if (group_size != 1) extents.insert(extents.begin(), Expr(group_size));
  auto at = [&](Axes s, Axes r) {
    Expr channel = group_size == 1 ? s[1] : s[1] * group_size + r[0];
    std::vector<Expr> index{s[0], channel};
    index.insert(index.end(), r.begin() + (group_size == 1 ? 0 : 1), r.end());
    return index;
  };
  Moments m = moments(c, wide, {in.shape[0], groups}, extents, at, c.attributes().number("epsilon", 1e-5));
  c.set_output(0, c.builder.compute("normalize", in.element, in.shape, [&](Axes i) {
    std::vector<Expr> s{i[0], tensor::floor_div(i[1], group_size)};
    Expr x = (widen(c.at(0, to_vector(i))) - load(m.mean, s)) * load(m.inverse_deviation, s);
    return cast(in.element, x * cast(wide, c.at(1, {i[1]})) + cast(wide, c.at(2, {i[1]})));
  }));
}

void compute_instance(ComputeContext& c) { normalize_groups(c, c.input_type(0).shape[1], 1); }

void compute_group(ComputeContext& c) {
  int64_t groups = c.attributes().integer("num_groups", 1);
  normalize_groups(c, groups, *static_dim(c.input_type(0).shape[1]) / groups);
}

// ---- MeanVarianceNormalization: (x - mean) / sqrt(variance) over `axes` ----

constexpr double kVarianceEpsilon = 1e-9;

std::vector<bool> chosen_axes(const Attributes& a, size_t rank) {
  std::vector<bool> chosen(rank);
  for (int64_t axis : a.integers("axes", {0, 2, 3})) {
    chosen[static_cast<size_t>(normal_axis(axis, static_cast<int>(rank)))] = true;
  }
  return chosen;
}

void infer_mean_variance(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating)) return;
  if (checked_axes(c, c.attributes().integers("axes", {0, 2, 3}), c.rank(0))) c.set_output(0, c.input(0));
}

void compute_mean_variance(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  std::vector<bool> chosen = chosen_axes(c.attributes(), in.shape.size());
  Shape kept, extents;
  for (size_t k = 0; k < chosen.size(); ++k)
    (chosen[k] ? extents : kept).push_back(in.shape[k]);
  auto at = [&](Axes s, Axes r) {
    std::vector<Expr> index;
    size_t next = 0, next_reduced = 0;
    for (bool reduced : chosen)
      index.push_back(reduced ? r[next_reduced++] : s[next++]);
    return index;
  };
  Moments m = moments(c, wide_type(in.element), kept, extents, at, kVarianceEpsilon);
  c.set_output(0, c.builder.compute("normalize", in.element, in.shape, [&](Axes i) {
    std::vector<Expr> s;
    for (size_t k = 0; k < chosen.size(); ++k) {
      if (!chosen[k]) s.push_back(i[k]);
    }
    return cast(in.element, (widen(c.at(0, to_vector(i))) - load(m.mean, s)) * load(m.inverse_deviation, s));
  }));
}

// ---- LpNormalization: x / (sum of |x|^p)^(1/p) along an axis; 0 where the norm is 0 ----

void infer_lp(InferContext& c) {
  int64_t p = c.attributes().integer("p", 2);
  if (!expect_type(c, 0, TypeSet::floating) || !expect(c, p == 1 || p == 2, "p: expected 1 or 2, got ", p))
    return;
  if (checked_axis(c, c.attributes().integer("axis", -1), c.rank(0))) c.set_output(0, c.input(0));
}

void compute_lp(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  bool squares = c.attributes().integer("p", 2) == 2;
  Shape outer = in.shape;
  outer[axis] = 1;
  Buffer sum = c.builder.reduce("sum", wide_type(in.element), outer, {in.shape[axis]}, Reducer::sum,
                                [&](Axes i, Axes r) {
                                  std::vector<Expr> at = to_vector(i);
                                  at[axis] = r[0];
                                  Expr x = widen(c.at(0, at));
                                  return squares ? x * x : call(Intrinsic::abs, {x});
                                });
  c.set_output(0, c.builder.compute("normalize", in.element, in.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    at[axis] = 0;
    Expr total = load(sum, at);
    Expr norm = squares ? call(Intrinsic::sqrt, {total}) : total;
    Expr x = widen(c.at(0, to_vector(i)));
    return cast(in.element, select(norm == 0, number_like(x, 0), x / norm));
  }));
}

// ---- LRN: x / (bias + alpha / size * sum of squares of the `size` channels around)^beta ----

void infer_lrn(InferContext& c) {
  int64_t size = c.attributes().integer("size", 0);
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 3, 16) ||
      !expect(c, size >= 1 && size < (1 << 20), "size: expected a positive number, got ", size)) {
    return;
  }
  c.set_output(0, c.input(0));
}

void compute_lrn(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const Attributes& a = c.attributes();
  int64_t size = a.integer("size", 1), before = (size - 1) / 2;
  ElementType wide = wide_type(in.element);
  Shape padded_shape = in.shape;
  padded_shape[1] = padded_shape[1] + (size - 1);
  Buffer padded = c.builder.compute("pad", in.element, padded_shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    at[1] = at[1] - before;
    return select(at[1] >= 0 && at[1] < in.shape[1], c.at(0, at), tensor::constant(in.element, 0));
  });
  Buffer sum = c.builder.reduce("squares", wide, in.shape, {size}, Reducer::sum, [&](Axes i, Axes r) {
    std::vector<Expr> at = to_vector(i);
    at[1] = at[1] + r[0];
    Expr x = widen(load(padded, at));
    return x * x;
  });
  double alpha = a.number("alpha", 1e-4), beta = a.number("beta", 0.75), bias = a.number("bias", 1.0);
  c.set_output(0, c.builder.compute("normalize", in.element, in.shape, [&](Axes i) {
    Expr total = load(sum, to_vector(i));
    Expr base = number_like(total, bias) + number_like(total, alpha / static_cast<double>(size)) * total;
    Expr x = widen(c.at(0, to_vector(i)));
    return cast(in.element, x / call(Intrinsic::pow, {base, number_like(base, beta)}));
  }));
}

}  // namespace

std::span<const OpDef> norm_ops() {
  static const OpDef ops[] = {
      normalization("BatchNormalization", infer_batch, compute_batch, 5),
      normalization("LayerNormalization", infer_layer, compute_layer, 2),
      normalization("RMSNormalization", infer_layer, compute_rms, 2),
      laid_out(normalization("InstanceNormalization", infer_instance, compute_instance, 3), LayoutRole::instance_norm),
      normalization("GroupNormalization", infer_group, compute_group, 3),
      normalization("MeanVarianceNormalization", infer_mean_variance, compute_mean_variance, 1),
      normalization("LpNormalization", infer_lp, compute_lp, 1),
      normalization("LRN", infer_lrn, compute_lrn, 1),
  };
  return ops;
}

}  // namespace mcc::graph
