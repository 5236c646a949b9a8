// Cast, CastLike, BitCast.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

void set_converted(InferContext& c, std::optional<ElementType> element) {
  if (element) c.set_output(0, {*element, c.input(0).shape});
}

void infer_cast(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  set_converted(c, element_attribute(c, "to"));
}

void infer_cast_like(InferContext& c) {
  if (expect_type(c, 0, TypeSet::any)) set_converted(c, c.input(1).element);
}

void infer_bit_cast(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  auto to = element_attribute(c, "to");
  if (!to) return;
  ElementType from = c.input(0).element;
  if (!expect(c, bit_width(from) == bit_width(*to), "cannot reinterpret ", mcc::to_text(from), " as ",
              mcc::to_text(*to), ": their widths differ")) {
    return;
  }
  set_converted(c, to);
}

// The largest finite value of an 8-bit float.
double largest(ElementType element) { return element == ElementType::f8e4m3 ? 448.0 : 57344.0; }

void compute_cast(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  bool is_f8 = is_float(out.element) && bit_width(out.element) == 8;
  bool saturate = is_f8 && c.attributes().integer("saturate", 1) != 0;
  c.set_output(0, c.builder.compute("cast", out.element, out.shape, [&](Axes i) {
    Expr value = c.at(0, to_vector(i));
    if (saturate && value.element() != out.element) {
      value = is_float(value.element()) ? widen(value) : cast(ElementType::f32, value);
      Expr limit = number_like(value, largest(out.element));
      value = tensor::min(tensor::max(value, -limit), limit);
    }
    // Out of range, 4-bit integers take the low bits; the others saturate.
    if (is_float(value.element()) && is_int(out.element) && bit_width(out.element) == 4) {
      value = cast(ElementType::i32, value);
    }
    return cast(out.element, value);
  }));
}

// Operands of products in the narrower type that a pass asks for, among them tf32, which ONNX has no number for.
void infer_narrow(InferContext& c) {
  std::optional<ElementType> to = parse_element_type(c.attributes().text("to", ""));
  MCC_CHECK(to && is_float(*to), "mcc.Narrow to ", c.attributes().text("to", ""));
  set_converted(c, to);
}

void compute_bit_cast(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("bit_cast", out.element, out.shape, [&](Axes i) {
    Expr value = c.at(0, to_vector(i));
    if (value.element() == out.element) return value;
    // A bool is a byte of 0 or 1 in memory, one bit in an expression.
    if (is_bool(value.element()) || is_bool(out.element)) return cast(out.element, value);
    return tensor::Call::make({out.element, 1}, Intrinsic::bit_cast, {value});
  }));
}

OpDef converting(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::elementwise, 1, infer, compute);
  op.axis_use = AxisUse::any;
  op.layout_agnostic = true;
  return op;
}

OpDef narrow_op() {
  OpDef op = converting("Narrow", infer_narrow, compute_cast);
  op.domain = "mcc";
  return op;
}

OpDef cast_like_op() {
  OpDef op = converting("CastLike", infer_cast_like, compute_cast);
  op.required_inputs = 2;
  op.constant_inputs = 0b10;  // only its type matters
  op.layout_agnostic = false;
  return op;
}

}  // namespace

std::span<const OpDef> cast_ops() {
  static const OpDef ops[] = {
      converting("Cast", infer_cast, compute_cast),
      cast_like_op(),
      converting("BitCast", infer_bit_cast, compute_bit_cast),
      narrow_op(),
  };
  return ops;
}

}  // namespace mcc::graph
