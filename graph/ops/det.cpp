// Det: determinants of the last two axes, by Gaussian elimination with the largest pivot of each column.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using tensor::Store;

// The matrices of all steps are kept.
constexpr int64_t kLargest = 256;

void infer_det(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2, 16)) return;
  const Shape& in = c.input(0).shape;
  const auto n = need_static_dim(c, in.back(), "the size of the matrices");
  if (!n || !expect_same_dim(c, in.back(), in[in.size() - 2], "rows of a square matrix")) return;
  if (*n > kLargest) return c.unsupported(text("matrices of more than ", kLargest, " rows"));
  c.set_output(0, {c.input(0).element, {in.begin(), in.end() - 2}});
}

void compute_det(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const ElementType wide = wide_type(out.element);
  const int64_t n = *static_dim(c.input_type(0).shape.back());
  const size_t rank = out.shape.size();
  auto with_steps = [&](std::vector<Expr> dims) {
    dims.insert(dims.begin(), n + 1);
    return dims;
  };
  Buffer matrix = c.builder.new_buffer("matrix", wide, with_steps(c.input_type(0).shape));
  Buffer product = c.builder.new_buffer("product", wide, with_steps(out.shape));
  std::vector<tensor::FuncBuilder::AxisSpec> batch, all;
  for (size_t k = 0; k < rank; ++k)
    batch.push_back({text("b", k), out.shape[k]});
  all = batch;
  all.push_back({"i", n});
  all.push_back({"j", n});
  // The index of a step, of the axes of the batch, and of what follows.
  auto at = [&](const Expr& step, Axes i, std::vector<Expr> rest) {
    std::vector<Expr> index{step};
    index.insert(index.end(), i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rank));
    index.insert(index.end(), rest.begin(), rest.end());
    return index;
  };
  c.builder.block("begin", all, [&](Axes i) {
    return Store::make(matrix, at(0, i, {i[rank], i[rank + 1]}), widen(c.at(0, to_vector(i))));
  });
  c.builder.block("begin_product", batch,
                  [&](Axes i) { return Store::make(product, at(0, i, {}), tensor::constant(wide, 1)); });
  c.builder.serial_loop("k", n, [&](const Expr& k) {
    auto magnitude = [&](Axes i, const Expr& row) {
      return call(Intrinsic::abs, {load(matrix, at(k, i, {row, k}))});
    };
    Buffer largest = c.builder.reduce("largest", wide, out.shape, {n}, Reducer::max, [&](Axes i, Axes r) {
      const Expr x = magnitude(i, r[0]);
      return select(r[0] >= k, x, number_like(x, -1));
    });
    Buffer found =
        c.builder.reduce("found", ElementType::i64, out.shape, {n}, Reducer::min, [&](Axes i, Axes r) {
          return select(r[0] >= k && magnitude(i, r[0]) == load(largest, to_vector(i)), r[0], Expr(n));
        });
    // Of numbers without an order (NaN) none is found.
    auto pivot_row = [&](Axes i) {
      const Expr row = load(found, {i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rank)});
      return select(row < n, row, k);
    };
    auto pivot = [&](Axes i) { return load(matrix, at(k, i, {pivot_row(i), k})); };
    c.builder.block("multiply", batch, [&](Axes i) {
      const Expr p = pivot(i);
      return Store::make(product, at(k + 1, i, {}),
                         load(product, at(k, i, {})) * select(pivot_row(i) == k, p, -p));
    });
    c.builder.block("eliminate", all, [&](Axes i) {
      const Expr row = pivot_row(i), p = pivot(i);
      // Rows k and that of the pivot change places.
      const Expr own = select(i[rank] == row, k, i[rank]);
      const Expr x = load(matrix, at(k, i, {own, i[rank + 1]})), first = load(matrix, at(k, i, {own, k}));
      const Expr factor = select(p == 0, number_like(p, 0), first / p);
      const Expr below = x - factor * load(matrix, at(k, i, {row, i[rank + 1]}));
      return Store::make(matrix, at(k + 1, i, {i[rank], i[rank + 1]}), select(i[rank] > k, below, x));
    });
  });
  c.set_output(0, c.builder.compute("determinant", out.element, out.shape,
                                    [&](Axes i) { return cast(out.element, load(product, at(n, i, {}))); }));
}

}  // namespace

std::span<const OpDef> det_ops() {
  static const OpDef ops[] = {onnx_op("Det", FusionClass::opaque, 1, infer_det, compute_det)};
  return ops;
}

}  // namespace mcc::graph
