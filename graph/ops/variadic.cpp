// Elementwise functions of any number of tensors (Min, Max, Sum, Mean), Where, and Clip.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// ---- Min, Max, Sum, Mean ----

// Each is a part of one expression, which is walked recursively.
constexpr int kMostInputs = 1024;

template <TypeSet set>
void infer_variadic(InferContext& c) {
  if (c.num_inputs() > kMostInputs)
    return c.unsupported(text("has ", c.num_inputs(), " inputs, expected at most ", kMostInputs));
  if (!expect_type(c, 0, set)) return;
  Shape shape = c.input(0).shape;
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!expect(c, c.has_input(i), "input ", i, " is missing") || !expect_same_type(c, 0, i)) return;
    auto wider = broadcast_shapes(c, shape, c.input(i).shape);
    if (!wider) return;
    shape = *wider;
  }
  c.set_output(0, {c.input(0).element, shape});
}

template <BinaryOp operation, bool mean>
void compute_variadic(ComputeContext& c) {
  ElementType out = c.output_type(0).element;
  c.set_output(0, c.builder.compute("variadic", out, c.output_type(0).shape, [&](Axes i) {
    Expr value = widen(broadcast_at(c, 0, i));
    for (int k = 1; k < c.num_inputs(); ++k)
      value = binary(operation, value, widen(broadcast_at(c, k, i)));
    if (mean) value = value / number_like(value, c.num_inputs());
    return cast(out, value);
  }));
}

template <TypeSet set, BinaryOp operation, bool mean = false>
OpDef variadic(std::string_view name) {
  OpDef op = onnx_op(name, FusionClass::elementwise, 1, infer_variadic<set>, compute_variadic<operation, mean>);
  op.axis_use = AxisUse::any;
  op.scalar_inputs = ~0U;
  op.layout_agnostic = true;
  return op;
}

// ---- Where ----

void infer_where(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::boolean) || !expect_type(c, 1, TypeSet::any) || !expect_same_type(c, 1, 2))
    return;
  auto shape = broadcast_shapes(c, c.input(1).shape, c.input(2).shape);
  if (shape) shape = broadcast_shapes(c, *shape, c.input(0).shape);
  if (shape) c.set_output(0, {c.input(1).element, *shape});
}

void compute_where(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("where", out.element, out.shape, [&](Axes i) {
    return select(broadcast_at(c, 0, i), broadcast_at(c, 1, i), broadcast_at(c, 2, i));
  }));
}

OpDef where_op() {
  OpDef op = onnx_op("Where", FusionClass::elementwise, 3, infer_where, compute_where);
  op.axis_use = AxisUse::any;
  op.scalar_inputs = 0b111;
  op.layout_agnostic = true;
  return op;
}

// ---- Clip: bounds are inputs 1 and 2, before opset 11 the attributes min and max ----

void infer_clip(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  for (int i = 1; i <= 2; ++i) {
    if (!c.has_input(i)) continue;
    if (!expect_same_type(c, 0, i)) return;
    int64_t one = 1;
    bool is_scalar = c.rank(i) == 0 || (c.rank(i) == 1 && static_dim(c.input(i).shape[0]) == one);
    if (!expect(c, is_scalar, "input ", i, ": expected a scalar, got ", to_text(c.input(i)))) return;
  }
  c.set_output(0, c.input(0));
}

void compute_clip(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto bound = [&](int input, const std::string& attribute, const Expr& like) {
    if (c.has_input(input)) {
      std::vector<Expr> index(c.input_type(input).shape.size(), 0);
      return widen(c.at(input, index));
    }
    return c.attributes().has(attribute) ? tensor::constant(like.type(), c.attributes().number(attribute, 0))
                                         : Expr();
  };
  c.set_output(0, c.builder.compute("clip", out.element, out.shape, [&](Axes i) {
    Expr value = widen(c.at(0, to_vector(i)));
    if (Expr low = bound(1, "min", value); low.defined()) value = tensor::max(value, low);
    if (Expr high = bound(2, "max", value); high.defined()) value = tensor::min(value, high);
    return cast(out.element, value);
  }));
}

OpDef clip_op() {
  OpDef op = onnx_op("Clip", FusionClass::elementwise, 1, infer_clip, compute_clip);
  op.axis_use = AxisUse::any;
  op.scalar_inputs = 0b110;
  op.layout_agnostic = true;
  return op;
}

}  // namespace

std::span<const OpDef> variadic_ops() {
  static const OpDef ops[] = {
      variadic<TypeSet::number, BinaryOp::min>("Min"),
      variadic<TypeSet::number, BinaryOp::max>("Max"),
      variadic<TypeSet::floating, BinaryOp::add>("Sum"),
      variadic<TypeSet::floating, BinaryOp::add, true>("Mean"),
      where_op(),
      clip_op(),
  };
  return ops;
}

}  // namespace mcc::graph
