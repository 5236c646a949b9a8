// NonZero and Compress, whose results are as large as there are elements that are not 0: of values known at compile time. Of others
// the frontend makes them of mcc.SetPositions, the positions of such elements with room for all there may be, and mcc.Coordinates.
#include "graph/ops/common.h"
#include "graph/ops/find_set.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::For;
using tensor::If;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

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

// Those of the numbers 0 to n - 1 that are set, in order, in the first places of `positions`. Parts of the numbers are counted by
// themselves, so that each has its place, and those without any are not looked at again. Gives a buffer whose last element is how many
// there are.
Buffer find_set(ComputeContext& c, const Expr& n, const Buffer& positions, const std::function<Expr(const Expr&)>& is_set) {
  constexpr int64_t kLanes = 16, kPart = 32 * kLanes;
  const Expr parts = tensor::simplify(ceil_div(n, kPart));
  // Neighbours side by side, for vectors.
  Buffer in_lane = c.builder.reduce("in_lane", ElementType::i32, {parts, kLanes}, {kPart / kLanes}, Reducer::sum, [&](Axes i, Axes r) {
    const Expr k = i[0] * kPart + r[0] * kLanes + i[1];
    return select(k < n, cast(ElementType::i32, is_set(k)), tensor::constant_int({ElementType::i32, 1}, 0));
  });
  Buffer counts = c.builder.reduce("in_part", ElementType::i32, {parts}, {kLanes}, Reducer::sum, [&](Axes i, Axes r) { return load(in_lane, {i[0], r[0]}); });
  Buffer begin = c.builder.new_buffer("begin", ElementType::i64, {parts + 1}), next = c.builder.new_buffer("next", ElementType::i64, {parts});
  c.builder.block("first", {}, [&](Axes) { return Store::make(begin, {Expr(0)}, 0); });
  c.builder.block("begin", {{"p", parts, AxisKind::scan}}, [&](Axes i) {
    return Store::make(begin, {i[0] + 1}, load(begin, {i[0]}) + cast(ElementType::i64, load(counts, {i[0]})));
  });
  c.builder.block("find", {{"p", parts}}, [&](Axes i) {
    const Var r(c.builder.unique_name("find.k"));
    const Expr k = i[0] * kPart + r, place = load(next, {i[0]});
    const Stmt found = Seq::make({Store::make(positions, {place}, k), Store::make(next, {i[0]}, place + 1)});
    const Stmt search = For::make(r, 0, tensor::min(n - i[0] * kPart, kPart), tensor::LoopKind::serial, If::make(is_set(k), found));
    return If::make(load(counts, {i[0]}) > 0, Seq::make({Store::make(next, {i[0]}, load(begin, {i[0]})), search}));
  });
  return begin;
}

// Where it is known that there are `count`.
Buffer set_positions(ComputeContext& c, const Expr& n, const Expr& count, const std::function<Expr(const Expr&)>& is_set) {
  Buffer positions = c.builder.new_buffer("positions", ElementType::i64, {count});
  find_set(c, n, positions, is_set);
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

// Whether the element at this position of input 0 is not 0.
Expr is_set(const ComputeContext& c, const Expr& position) {
  const Shape& shape = c.input_type(0).shape;
  std::vector<Expr> at;
  for (size_t k = 0; k < shape.size(); ++k)
    at.push_back(coordinate(shape, k, position));
  return is_not_zero(c.at(0, at));
}

// Output 0: what indices the positions are along each axis of a tensor of this shape.
Buffer coordinates(ComputeContext& c, const Shape& shape, const std::function<Expr(const Expr&)>& position_at) {
  const TensorType& out = c.output_type(0);
  return c.builder.compute("coordinates", out.element, out.shape, [&](Axes i) {
    const Expr position = position_at(i[1]);
    Expr index = 0;
    for (size_t k = 0; k < shape.size(); ++k)
      index = select(i[0] == static_cast<int64_t>(k), coordinate(shape, k, position), index);
    return index;
  });
}

// ---- NonZero: x -> [rank, count] ----

void infer_nonzero(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  if (auto count = count_of_set(c, 0)) c.set_output(0, {ElementType::i64, {Expr(int64_t{c.rank(0)}), Expr(*count)}});
}

void compute_nonzero(ComputeContext& c) {
  const Shape& in = c.input_type(0).shape;
  const TensorType& out = c.output_type(0);
  Buffer positions = set_positions(c, product(in), out.shape[1], [&](const Expr& k) { return is_set(c, k); });
  c.set_output(0, coordinates(c, in, [&](const Expr& k) { return load(positions, {k}); }));
}

// ---- mcc.SetPositions: x -> the positions of its elements that are not 0, followed by zeros [elements]; how many there are ----

void infer_set_positions(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  c.set_output(0, {ElementType::i64, {product(c.input(0).shape)}});
  c.set_output(1, {ElementType::i64, {}});
}

void compute_set_positions(ComputeContext& c) {
  const Expr n = product(c.input_type(0).shape);
  Buffer positions = c.builder.compute("positions", ElementType::i64, {n}, [](Axes) { return Expr(0); });
  if (is_in_parts(c)) {
    const Buffer total = visit_set(c, "set",
                                   {{},
                                    n,
                                    [&](Axes, const Expr& k) { return is_set(c, k); },
                                    [&](Axes, const Expr& k, const Expr& before, const Expr&) {
                                      return Store::make(positions, {before}, k);
                                    }});
    c.set_output(0, positions);
    c.set_output(1, c.builder.compute("count", ElementType::i64, {},
                                      [&](Axes) { return cast(ElementType::i64, load(total, {Expr(0)})); }));
    return;
  }
  Buffer begin = find_set(c, n, positions, [&](const Expr& k) { return is_set(c, k); });
  c.set_output(0, positions);
  c.set_output(1, c.builder.compute("count", ElementType::i64, {}, [&](Axes) { return load(begin, {begin.shape()[0] - 1}); }));
}

// ---- mcc.Coordinates: positions [count] in a tensor of the given shape -> [rank, count] ----

void infer_coordinates(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::index) || !expect_rank(c, 0, 1) || !expect_rank(c, 1, 1)) return;
  if (const auto shape = known_ints(c, 1, "shape"))
    c.set_output(0, {ElementType::i64, {Expr(static_cast<int64_t>(shape->size())), c.input(0).shape[0]}});
}

void compute_coordinates(ComputeContext& c) {
  c.set_output(0, coordinates(c, c.elements(1), [&](const Expr& k) { return cast(ElementType::i64, c.at(0, {k})); }));
}

// ---- Compress: the slices of x along the axis (without one: the elements) whose condition is set ----

void infer_compress(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_type(c, 1, TypeSet::boolean) || !expect_rank(c, 1, 1)) return;
  const Shape& in = c.input(0).shape;
  std::optional<int> axis;
  if (c.attributes().has("axis")) {
    axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
    if (!axis) return;
  }
  const auto most = static_dim(axis ? in[static_cast<size_t>(*axis)] : product(in)), conditions = static_dim(c.input(1).shape[0]);
  if (!expect(c, !most || !conditions || *conditions <= *most, *conditions, " conditions for ", *most, " elements")) return;
  const auto count = count_of_set(c, 1);
  if (!count) return;
  Shape out = axis ? in : Shape{Expr(*count)};
  if (axis) out[static_cast<size_t>(*axis)] = Expr(*count);
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

OpDef coordinates_op() {
  OpDef op = own_op("Coordinates", FusionClass::injective, 2, infer_coordinates, compute_coordinates);
  op.constant_inputs = 0b10;
  return op;
}

}  // namespace

std::span<const OpDef> nonzero_ops() {
  static const OpDef ops[] = {
      onnx_op("NonZero", FusionClass::opaque, 1, infer_nonzero, compute_nonzero),
      onnx_op("Compress", FusionClass::opaque, 2, infer_compress, compute_compress),
      own_op("SetPositions", FusionClass::opaque, 1, infer_set_positions, compute_set_positions),
      coordinates_op(),
  };
  return ops;
}

}  // namespace mcc::graph
