// Tensors made from shapes and numbers: Shape, Size, ConstantOfShape, Range, EyeLike, OneHot, Trilu, Constant.
#include <cmath>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

OpDef generator(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&),
                int required, uint32_t constants, uint32_t scalars) {
  OpDef op = onnx_op(name, FusionClass::injective, required, infer, compute);
  op.constant_inputs = constants;
  op.scalar_inputs = scalars;
  return op;
}

// ---- Shape (of the axes from start to end) and Size ----

Shape shape_part(const Attributes& a, const Shape& in) {
  auto rank = static_cast<int64_t>(in.size());
  auto bound = [&](int64_t v) { return std::min(std::max<int64_t>(v < 0 ? v + rank : v, 0), rank); };
  int64_t start = bound(a.integer("start", 0)), end = bound(a.integer("end", rank));
  return {in.begin() + start, in.begin() + std::max(start, end)};
}

void infer_shape(InferContext& c) {
  auto count = static_cast<int64_t>(shape_part(c.attributes(), c.input(0).shape).size());
  c.set_output(0, {ElementType::i64, {count}});
}

std::optional<Constant> fold_shape(const Graph& graph, const Node& node) {
  Shape part = shape_part(node.attributes, graph.value(node.inputs[0]).type.shape);
  if (!is_static(part)) return std::nullopt;
  return Constant::ints(static_shape(part));
}

void compute_shape(ComputeContext& c) {
  Shape part = shape_part(c.attributes(), c.input_type(0).shape);
  c.set_output(0, c.builder.compute("shape", ElementType::i64, c.output_type(0).shape, [&](Axes i) {
    Expr value = 0;
    for (size_t k = part.size(); k-- > 0;)
      value = select(i[0] == static_cast<int64_t>(k), part[k], value);
    return value;
  }));
}

void infer_size(InferContext& c) { c.set_output(0, {ElementType::i64, {}}); }

std::optional<Constant> fold_size(const Graph& graph, const Node& node) {
  const Shape& shape = graph.value(node.inputs[0]).type.shape;
  if (!is_static(shape)) return std::nullopt;
  return Constant::of(ElementType::i64, {}, std::vector<int64_t>{static_count(shape)});
}

void compute_size(ComputeContext& c) {
  c.set_output(0, c.builder.compute("size", ElementType::i64, {},
                                    [&](Axes) { return product(c.input_type(0).shape); }));
}

OpDef folded(OpDef op, std::optional<Constant> (*fold)(const Graph&, const Node&)) {
  op.fold = fold;
  return op;
}

// ---- Constant: the attribute value ----

void infer_constant(InferContext& c) {
  const Attribute* value = c.attributes().find("value");
  const Constant* tensor = value ? std::get_if<Constant>(value) : nullptr;
  if (expect(c, tensor, "attribute value: expected a tensor")) c.set_output(0, tensor->type());
}

std::optional<Constant> fold_constant(const Graph&, const Node& node) {
  return std::get<Constant>(*node.attributes.find("value"));
}

OpDef constant_op() {
  OpDef op;
  op.name = "Constant";
  op.fusion = FusionClass::host;
  op.infer = infer_constant;
  op.required_inputs = 0;
  op.fold = fold_constant;
  return op;
}

// ---- ConstantOfShape ----

const Constant* fill_value(const Attributes& a) {
  const Attribute* value = a.find("value");
  return value ? std::get_if<Constant>(value) : nullptr;
}

void infer_constant_of_shape(InferContext& c) {
  auto dims = known_ints(c, 0, "shape");
  if (!dims) return;
  const Constant* value = fill_value(c.attributes());
  if (value && !expect(c, value->count() == 1 && value->element() != ElementType::string,
                       "attribute value: expected one number, got ", to_text(value->type()))) {
    return;
  }
  for (const Expr& dim : *dims) {
    const std::optional<int64_t> d = static_dim(dim);
    if (!expect(c, !d || *d >= 0, "a dimension of ", d.value_or(0))) return;
  }
  c.set_output(0, {value ? value->element() : ElementType::f32, *dims});
}

Expr immediate(const Constant& value) {
  if (is_float(value.element())) return tensor::constant(value.element(), value.number_at(0));
  return tensor::constant_int({value.element(), 1}, value.int_at(0));
}

void compute_constant_of_shape(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Constant* value = fill_value(c.attributes());
  Expr fill = value ? immediate(*value) : tensor::constant(out.element, 0);
  c.set_output(0, c.builder.compute("fill", out.element, out.shape, [&](Axes) { return fill; }));
}

// ---- Range: start, start + delta, ... below limit ----

// Of integers that follow from symbolic dimensions, by a constant step.
void infer_symbolic_range(InferContext& c) {
  const Expr start = c.elements(0)->front(), limit = c.elements(1)->front();
  const auto step = need_static_dim(c, c.elements(2)->front(), "input 2 (delta)");
  if (!step || !expect(c, *step != 0, "a step of 0")) return;
  const Expr distance = *step > 0 ? limit - start : start - limit;
  c.set_output(0, {c.input(0).element, {tensor::max(tensor::ceil_div(distance, *step > 0 ? *step : -*step), 0)}});
}

void infer_range(InferContext& c) {
  bool is_static = true;
  for (int i = 0; i < 3; ++i) {
    if (!expect_type(c, i, TypeSet::number) || !expect_same_type(c, 0, i) || !expect_rank(c, i, 0, 1)) return;
    if (!c.constant(i) && !c.elements(i)) {
      c.unsupported(text("input ", i, " needs a value known at compile time"));
      return;
    }
    if (!expect(c, (c.constant(i) ? c.constant(i)->count() : static_cast<int64_t>(c.elements(i)->size())) == 1, "input ", i,
                ": expected one number"))
      return;
    is_static &= c.constant(i) != nullptr;
  }
  if (!is_static) return infer_symbolic_range(c);
  double start = c.constant(0)->number_at(0), limit = c.constant(1)->number_at(0),
         delta = c.constant(2)->number_at(0);
  if (!expect(c, delta != 0, "a step of 0")) return;
  double count = std::max(std::ceil((limit - start) / delta), 0.0);
  if (!expect(c, count < 9e15, "a range of ", count, " elements")) return;
  c.set_output(0, {c.input(0).element, {static_cast<int64_t>(count)}});
}

void compute_range(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto scalar = [&](int k) { return widen(c.at(k, std::vector<Expr>(c.input_type(k).shape.size(), 0))); };
  c.set_output(0, c.builder.compute("range", out.element, out.shape, [&](Axes i) {
    Expr start = scalar(0);
    return cast(out.element, start + cast(start.element(), i[0]) * scalar(2));
  }));
}

// ---- EyeLike: ones on the k-th diagonal ----

void infer_eye_like(InferContext& c) {
  if (!expect_rank(c, 0, 2)) return;
  std::optional<ElementType> element = c.input(0).element;
  if (c.attributes().has("dtype")) element = element_attribute(c, "dtype");
  if (element) c.set_output(0, {*element, c.input(0).shape});
}

void compute_eye_like(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  int64_t k = c.attributes().integer("k", 0);
  tensor::Type type{out.element, 1};
  c.set_output(0, c.builder.compute("eye", out.element, out.shape, [&](Axes i) {
    return select(i[1] == i[0] + k, tensor::constant(type, 1), tensor::constant(type, 0));
  }));
}

// ---- OneHot: values[1] where the new axis is at the index, values[0] elsewhere ----

// It may have any number type; what follows from dimensions, or data decides, is an integer.
std::optional<Expr> one_hot_depth(InferContext& c) {
  if (const Constant* depth = c.constant(1)) {
    if (!expect(c, depth->count() == 1 && depth->int_at(0) >= 0, "depth: expected one number")) return std::nullopt;
    return depth->int_at(0);
  }
  const std::optional<std::vector<Expr>> depth = c.elements(1);
  if (!depth) {
    c.unsupported("input 1 (depth) needs a value known at compile time");
    return std::nullopt;
  }
  if (!expect(c, depth->size() == 1, "depth: expected one number")) return std::nullopt;
  return depth->front();
}

void infer_one_hot(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !expect_type(c, 2, TypeSet::any) || !expect_rank(c, 2, 1))
    return;
  const std::optional<Expr> depth = one_hot_depth(c);
  if (!depth || !expect_same_dim(c, 2, c.input(2).shape[0], "number of values")) return;
  auto axis = checked_axis(c, c.attributes().integer("axis", -1), c.rank(0) + 1);
  if (!axis) return;
  Shape out = c.input(0).shape;
  out.insert(out.begin() + *axis, *depth);
  c.set_output(0, {c.input(2).element, out});
}

void compute_one_hot(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto axis = static_cast<size_t>(
      normal_axis(c.attributes().integer("axis", -1), static_cast<int>(out.shape.size())));
  c.set_output(0, c.builder.compute("one_hot", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
    Expr index = cast(ElementType::i64, c.at(0, at));
    index = select(index < 0, index + out.shape[axis], index);
    return select(index == i[axis], c.at(2, {1}), c.at(2, {0}));
  }));
}

// ---- Trilu: the upper or lower triangle of the last two axes, from the k-th diagonal on ----

void infer_trilu(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_rank(c, 0, 2, 16)) return;
  if (c.has_input(1) && (!expect_type(c, 1, TypeSet::index) || !expect_rank(c, 1, 0, 1))) return;
  c.set_output(0, c.input(0));
}

void compute_trilu(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  bool upper = c.attributes().integer("upper", 1) != 0;
  c.set_output(0, c.builder.compute("triangle", out.element, out.shape, [&](Axes i) {
    Expr k = 0;
    if (c.has_input(1))
      k = cast(ElementType::i64, c.at(1, std::vector<Expr>(c.input_type(1).shape.size(), 0)));
    Expr row = i[i.size() - 2] + k, column = i.back();
    Expr zero = tensor::constant_int({out.element, 1}, 0);
    return select(upper ? column >= row : column <= row, c.at(0, to_vector(i)), zero);
  }));
}

}  // namespace

std::span<const OpDef> shape_ops() {
  static const OpDef ops[] = {
      folded(generator("Shape", infer_shape, compute_shape, 1, 0, 0), fold_shape),
      folded(generator("Size", infer_size, compute_size, 1, 0, 0), fold_size),
      constant_op(),
      generator("ConstantOfShape", infer_constant_of_shape, compute_constant_of_shape, 1, 0b1, 0),
      generator("Range", infer_range, compute_range, 3, 0, 0b111),
      generator("EyeLike", infer_eye_like, compute_eye_like, 1, 0b1, 0),
      generator("OneHot", infer_one_hot, compute_one_hot, 3, 0b10, 0),
      generator("Trilu", infer_trilu, compute_trilu, 1, 0, 0b10),
  };
  return ops;
}

}  // namespace mcc::graph
