// Cast, CastLike, BitCast.
#include <limits>

#include "graph/ops/common.h"
#include "tensor/numeric.h"

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

// x as f32, a power of two that f8e8m0 has, or what becomes NaN there. "up" and "down": to the next one; "nearest": to the nearer
// one, upwards from the middle.
Expr rounded_to_power(const Expr& x, const std::string& mode, bool saturate) {
  const double largest = tensor::float_format(ElementType::f8e8m0).largest;
  const Expr value = cast(ElementType::f32, x), least = number_like(value, 1 / largest);
  const Expr positive = tensor::max(value, least);
  const Expr in_range = saturate ? tensor::min(positive, number_like(value, largest)) : positive;
  // The exponent of what is normal.
  const Expr bits = tensor::Call::make({ElementType::u32, 1}, Intrinsic::bit_cast, {in_range});
  const Expr exponent = tensor::binary(tensor::BinaryOp::bit_and, bits, tensor::constant_int({ElementType::u32, 1}, 0x7f800000));
  const Expr power = tensor::max(tensor::Call::make({ElementType::f32, 1}, Intrinsic::bit_cast, {exponent}), least);
  Expr rounded = power;
  if (mode == "up") rounded = select(in_range > power, power + power, power);
  if (mode == "nearest") rounded = select(in_range >= power * number_like(power, 1.5), power + power, power);
  if (saturate) return select(call(Intrinsic::is_nan, {value}), value, rounded);
  const Expr nan = number_like(value, std::numeric_limits<double>::quiet_NaN());
  return select(value >= least, rounded, nan);
}

void compute_cast(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const bool is_power = out.element == ElementType::f8e8m0;
  const bool is_f8 = is_float(out.element) && bit_width(out.element) == 8;
  const bool saturate = is_f8 && c.attributes().integer("saturate", 1) != 0;
  const std::string mode = c.attributes().text("round_mode", "up");
  c.set_output(0, c.builder.compute("cast", out.element, out.shape, [&](Axes i) {
    Expr value = c.at(0, to_vector(i));
    if (is_power && value.element() != out.element) value = rounded_to_power(value, mode, saturate);
    if (saturate && !is_power && value.element() != out.element) {
      value = is_float(value.element()) ? widen(value) : cast(ElementType::f32, value);
      Expr limit = number_like(value, tensor::float_format(out.element).largest);
      value = tensor::min(tensor::max(value, -limit), limit);
    }
    // Out of range, integers of less than a byte take the low bits; the others saturate.
    if (is_float(value.element()) && is_int(out.element) && bit_width(out.element) < 8) {
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
