// Gaussian elimination of matrices, the last two axes, with the largest pivot of each column: Det, their determinants, and mcc.Inverse.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using tensor::Store;

// Square matrices of floats.
bool expect_matrices(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2, 16)) return false;
  const Shape& in = c.input(0).shape;
  return expect_same_dim(c, in.back(), in[in.size() - 2], "rows of a square matrix");
}

// The axes of a batch, which come first.
std::vector<Expr> batch_of(Axes i, size_t rank) {
  return {i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rank)};
}

std::vector<Expr> join(std::vector<Expr> first, const std::vector<Expr>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

std::vector<tensor::FuncBuilder::AxisSpec> axes_of(const Shape& batch) {
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < batch.size(); ++k)
    axes.push_back({text("b", k), batch[k]});
  return axes;
}

// The row, from k on, whose element in column k is the largest; element: that of a row of the matrix at these indices of the batch.
using Column = std::function<Expr(Axes batch, const Expr& row)>;
std::function<Expr(Axes)> find_pivot(ComputeContext& c, const Shape& batch, const Expr& n, const Expr& k,
                                     ElementType wide, const Column& element) {
  auto magnitude = [&](Axes i, const Expr& row) { return call(Intrinsic::abs, {element(i, row)}); };
  Buffer largest = c.builder.reduce("largest", wide, batch, {n}, Reducer::max, [&](Axes i, Axes r) {
    const Expr x = magnitude(i, r[0]);
    return select(r[0] >= k, x, number_like(x, -1));
  });
  Buffer found = c.builder.reduce("found", ElementType::i64, batch, {n}, Reducer::min, [&](Axes i, Axes r) {
    return select(r[0] >= k && magnitude(i, r[0]) == load(largest, to_vector(i)), r[0], n);
  });
  // Of numbers without an order (NaN) none is found.
  return [=](Axes i) {
    const Expr row = load(found, batch_of(i, batch.size()));
    return select(row < n, row, k);
  };
}

// ---- Det ----

// The matrices of all steps are kept.
constexpr int64_t kLargest = 256;

void infer_det(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2, 16)) return;
  const Shape& in = c.input(0).shape;
  const auto n = need_static_dim(c, in.back(), "the size of the matrices");
  if (!n || !expect_matrices(c)) return;
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
  const auto batch = axes_of(out.shape);
  auto all = batch;
  all.push_back({"i", n});
  all.push_back({"j", n});
  // The index of a step, of the axes of the batch, and of what follows.
  auto at = [&](const Expr& step, Axes i, const std::vector<Expr>& rest) {
    return join(join({step}, batch_of(i, rank)), rest);
  };
  c.builder.block("begin", all, [&](Axes i) {
    return Store::make(matrix, at(0, i, {i[rank], i[rank + 1]}), widen(c.at(0, to_vector(i))));
  });
  c.builder.block("begin_product", batch,
                  [&](Axes i) { return Store::make(product, at(0, i, {}), tensor::constant(wide, 1)); });
  c.builder.serial_loop("k", n, [&](const Expr& k) {
    const auto pivot_row = find_pivot(
        c, out.shape, n, k, wide, [&](Axes i, const Expr& row) { return load(matrix, at(k, i, {row, k})); });
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

// ---- Inverse ----
//
// Of Gauss and Jordan, in the place of the matrix: after step k column k is that of the inverse of a matrix whose rows stand in another
// order, in which the columns of the result are put back in the end. Those that have none give infinities and NaN.

void infer_inverse(InferContext& c) {
  if (expect_matrices(c)) c.set_output(0, c.input(0));
}

void compute_inverse(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const ElementType wide = wide_type(out.element);
  const Expr n = out.shape.back();
  const Shape rows(out.shape.begin(), out.shape.end() - 1), batch(out.shape.begin(), out.shape.end() - 2);
  const size_t rank = batch.size();
  auto line = axes_of(batch);
  line.push_back({"i", n});
  auto all = line;
  all.push_back({"j", n});
  auto at = [&](Axes i, const std::vector<Expr>& rest) { return join(batch_of(i, rank), rest); };
  Buffer matrix = c.builder.new_buffer("matrix", wide, out.shape);
  Buffer place =
      c.builder.new_buffer("place", ElementType::i64, rows);  // of each row of the input: where it stands
  c.builder.block("begin", all,
                  [&](Axes i) { return Store::make(matrix, to_vector(i), widen(c.at(0, to_vector(i)))); });
  c.builder.block("begin_place", line, [&](Axes i) { return Store::make(place, to_vector(i), i[rank]); });
  c.builder.serial_loop("k", n, [&](const Expr& k) {
    const auto pivot_row = find_pivot(c, batch, n, k, wide,
                                      [&](Axes i, const Expr& row) { return load(matrix, at(i, {row, k})); });
    // What the step reads of other rows and columns, before it writes them: rows k and that of the pivot change places.
    Buffer first = c.builder.compute("first", wide, rows, [&](Axes i) {
      const Expr x = load(matrix, at(i, {pivot_row(i), i[rank]}));
      return select(i[rank] == k, number_like(x, 1), x) / load(matrix, at(i, {pivot_row(i), k}));
    });
    Buffer displaced =
        c.builder.compute("displaced", wide, rows, [&](Axes i) { return load(matrix, at(i, {k, i[rank]})); });
    Buffer factor = c.builder.compute("factor", wide, rows, [&](Axes i) {
      return load(matrix, at(i, {select(i[rank] == pivot_row(i), k, i[rank]), k}));
    });
    c.builder.block("eliminate", all, [&](Axes i) {
      const Expr row = i[rank], column = i[rank + 1], pivot = load(first, at(i, {column}));
      const Expr own =
          select(row == pivot_row(i), load(displaced, at(i, {column})), load(matrix, to_vector(i)));
      const Expr rest = select(column == k, number_like(own, 0), own) - load(factor, at(i, {row})) * pivot;
      return Store::make(matrix, to_vector(i), select(row == k, pivot, rest));
    });
    c.builder.block("exchange", line, [&](Axes i) {
      const Expr was = load(place, to_vector(i)), row = pivot_row(i);
      return Store::make(place, to_vector(i), select(was == k, row, select(was == row, k, was)));
    });
  });
  c.set_output(0, c.builder.compute("inverse", out.element, out.shape, [&](Axes i) {
    const Expr column = load(place, at(i, {i[rank + 1]}));
    return cast(out.element, load(matrix, at(i, {i[rank], column})));
  }));
}

}  // namespace

std::span<const OpDef> elimination_ops() {
  static const OpDef ops[] = {
      onnx_op("Det", FusionClass::opaque, 1, infer_det, compute_det),
      own_op("Inverse", FusionClass::opaque, 1, infer_inverse, compute_inverse),
  };
  return ops;
}

}  // namespace mcc::graph
