// NonZero and Compress, whose results are as large as there are elements that are not 0: of values known at compile time.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

// How many elements of input i are not 0. Reports where that is not known.
std::optional<int64_t> count_of_set(InferContext& c, int i) {
  const Constant* value = c.constant(i);
  if (!value) {
    c.unsupported(text("the size of its result depends on values of input ", i, " that are not known at compile time"));
    return std::nullopt;
  }
  int64_t count = 0;
  for (int64_t k = 0; k < value->count(); ++k)
    count += is_float(value->element()) ? value->number_at(k) != 0 : value->int_at(k) != 0;
  return count;
}

// Those of the numbers 0 to n - 1 that are set, in order; there are `count`.
Buffer set_positions(ComputeContext& c, const Expr& n, const Expr& count, const std::function<Expr(const Expr&)>& is_set) {
  Buffer rank = c.builder.new_buffer("rank", ElementType::i64, {n});
  c.builder.block("rank", {{"k", n, AxisKind::scan}}, [&](Axes i) {
    const Expr before = select(i[0] == 0, Expr(0), load(rank, {i[0] - 1}));
    return Store::make(rank, {i[0]}, before + select(is_set(i[0]), Expr(1), Expr(0)));
  });
  Buffer positions = c.builder.new_buffer("positions", ElementType::i64, {count});
  c.builder.block("positions", {{"k", n, AxisKind::scan}}, [&](Axes i) {
    return tensor::If::make(is_set(i[0]), Store::make(positions, {load(rank, {i[0]}) - 1}, i[0]));
  });
  return positions;
}

Expr is_not_zero(const Expr& x) {
  return x.element() == ElementType::boolean ? x : x != number_like(x, 0);
}

// The index that element `position` has along axis k of this shape, when elements are counted in their order.
Expr coordinate(const Shape& shape, size_t k, const Expr& position) {
  Expr inner = 1;
  for (size_t d = k + 1; d < shape.size(); ++d)
    inner = inner * shape[d];
  return floor_mod(floor_div(position, inner), shape[k]);
}

// ---- NonZero: x -> [rank, count] ----

void infer_nonzero(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  if (auto count = count_of_set(c, 0)) c.set_output(0, {ElementType::i64, {Expr(int64_t{c.rank(0)}), Expr(*count)}});
}

void compute_nonzero(ComputeContext& c) {
  const Shape& in = c.input_type(0).shape;
  const TensorType& out = c.output_type(0);
  Buffer positions = set_positions(c, product(in), out.shape[1], [&](const Expr& position) {
    std::vector<Expr> at;
    for (size_t k = 0; k < in.size(); ++k)
      at.push_back(coordinate(in, k, position));
    return is_not_zero(c.at(0, at));
  });
  c.set_output(0, c.builder.compute("coordinates", out.element, out.shape, [&](Axes i) {
    const Expr position = load(positions, {i[1]});
    Expr index = 0;
    for (size_t k = 0; k < in.size(); ++k)
      index = select(i[0] == static_cast<int64_t>(k), coordinate(in, k, position), index);
    return index;
  }));
}

// ---- Compress: the slices of x along the axis (without one: the elements) whose condition is set ----

void infer_compress(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_type(c, 1, TypeSet::boolean) || !expect_rank(c, 1, 1)) return;
  const auto count = count_of_set(c, 1);
  if (!count) return;
  const Shape& in = c.input(0).shape;
  Shape out{Expr(*count)};
  Expr extent = product(in);
  if (c.attributes().has("axis")) {
    const auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
    if (!axis) return;
    extent = in[static_cast<size_t>(*axis)];
    out = in;
    out[static_cast<size_t>(*axis)] = Expr(*count);
  }
  const auto most = static_dim(extent), conditions = static_dim(c.input(1).shape[0]);
  if (!expect(c, !most || !conditions || *conditions <= *most, *conditions, " conditions for ", *most, " elements")) return;
  c.set_output(0, {c.input(0).element, out});
}

void compute_compress(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& in = c.input_type(0).shape;
  const Shape& conditions = c.input_type(1).shape;
  const bool has_axis = c.attributes().has("axis");
  const auto axis = has_axis ? static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(in.size()))) : 0;
  Buffer positions =
      set_positions(c, conditions[0], out.shape[axis], [&](const Expr& k) { return is_not_zero(c.at(1, {k})); });
  c.set_output(0, c.builder.compute("compress", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    const Expr position = load(positions, {i[axis]});
    if (has_axis) {
      at[axis] = position;
    } else {
      at.clear();
      for (size_t k = 0; k < in.size(); ++k)
        at.push_back(coordinate(in, k, position));
    }
    return c.at(0, at);
  }));
}

}  // namespace

std::span<const OpDef> nonzero_ops() {
  static const OpDef ops[] = {
      onnx_op("NonZero", FusionClass::opaque, 1, infer_nonzero, compute_nonzero),
      onnx_op("Compress", FusionClass::opaque, 2, infer_compress, compute_compress),
  };
  return ops;
}

}  // namespace mcc::graph
