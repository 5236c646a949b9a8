// Normalisation of groups of channels that are last, on tensors cut into parts:
//
//   mcc.Moments       x [N, P, R, C]            -> [N, P, 2, C]  of each column of R: its mean m, and q, the sum of (x - m)^2
//   mcc.MergeMoments  [N, P, 2, G, C / G]       -> [N, 2, G, C / G]  for each channel the mean of its group, and 1 / deviation
//   mcc.Normalize     x [N, 1, D..., C], [N, 2, C] -> (x - mean) / deviation, of the type of the second
//
// Columns of R elements m, q make a whole, whose mean is that of all m, and whose sum of squares is the sum of q + R (m - mean)^2
// (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979). x is read once for the
// moments, by threads that are neighbours along the channels; nothing is subtracted that is large beside the result.
// Attributes of MergeMoments: count (R), epsilon.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

void infer_moments(InferContext& c) {
  TensorType type = c.input(0);
  type.element = wide_type(type.element);
  type.shape[2] = Expr(2);
  c.set_output(0, type);
}

void compute_moments(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Expr rows = c.input_type(0).shape[2];
  const Shape columns{out.shape[0], out.shape[1], out.shape[3]};
  auto x = [&](Axes s, Axes r) { return widen(c.at(0, {s[0], s[1], r[0], s[2]})); };
  Buffer sum = c.builder.reduce("sum", out.element, columns, {rows}, Reducer::sum, x);
  auto mean = [&](Axes s) { return load(sum, to_vector(s)) / cast(out.element, rows); };
  Buffer squares = c.builder.reduce("squares", out.element, columns, {rows}, Reducer::sum, [&](Axes s, Axes r) {
    Expr d = x(s, r) - mean(s);
    return d * d;
  });
  c.set_output(0, c.builder.compute("moments", out.element, out.shape, [&](Axes i) {
    const std::vector<Expr> column{i[0], i[1], i[3]};
    return select(i[2] == Expr(0), mean(column), load(squares, column));
  }));
}

void infer_merge(InferContext& c) {
  TensorType type = c.input(0);
  type.shape.erase(type.shape.begin() + 1);
  c.set_output(0, type);
}

void compute_merge(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  const Expr count(c.attributes().integer("count", 1));
  const Shape groups{in.shape[0], in.shape[3]}, columns{in.shape[1], in.shape[4]};
  const Expr all = cast(out.element, product(columns));
  auto moment = [&](Axes s, Axes r, int64_t which) { return c.at(0, {s[0], r[0], Expr(which), s[1], r[1]}); };
  Buffer sum = c.builder.reduce("sum", out.element, groups, columns, Reducer::sum,
                                [&](Axes s, Axes r) { return moment(s, r, 0); });
  Buffer mean = c.builder.compute("mean", out.element, groups, [&](Axes s) { return load(sum, to_vector(s)) / all; });
  Buffer squares = c.builder.reduce("squares", out.element, groups, columns, Reducer::sum, [&](Axes s, Axes r) {
    Expr d = moment(s, r, 0) - load(mean, to_vector(s));
    return moment(s, r, 1) + d * d * cast(out.element, count);
  });
  Buffer inverse = c.builder.compute("inverse_deviation", out.element, groups, [&](Axes s) {
    Expr variance = load(squares, to_vector(s)) / (all * cast(out.element, count));
    Expr epsilon = tensor::constant(out.element, c.attributes().number("epsilon", 1e-5));
    return call(Intrinsic::rsqrt, {variance + epsilon});
  });
  c.set_output(0, c.builder.compute("statistics", out.element, out.shape, [&](Axes i) {
    return select(i[1] == Expr(0), load(mean, {i[0], i[2]}), load(inverse, {i[0], i[2]}));
  }));
}

void infer_normalize(InferContext& c) { c.set_output(0, {c.input(1).element, c.input(0).shape}); }

void compute_normalize(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("normalize", out.element, out.shape, [&](Axes i) {
    auto statistic = [&](int64_t which) { return c.at(1, {i[0], Expr(which), i.back()}); };
    return (cast(out.element, c.at(0, to_vector(i))) - statistic(0)) * statistic(1);
  }));
}

}  // namespace

std::span<const OpDef> mcc_norm_ops() {
  static const OpDef ops[] = {
      own_op("Moments", FusionClass::reduction, 1, infer_moments, compute_moments),
      own_op("MergeMoments", FusionClass::reduction, 1, infer_merge, compute_merge),
      // It, too, begins a kernel, which what is elementwise behind it joins.
      own_op("Normalize", FusionClass::reduction, 2, infer_normalize, compute_normalize),
  };
  return ops;
}

}  // namespace mcc::graph
