// Elementwise functions of two tensors, broadcast against each other: one row each.
#include <cmath>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using Function = Expr (*)(const Expr& a, const Expr& b, const Attributes& attributes);

template <TypeSet set>
void infer_arithmetic(InferContext& c) {
  if (!expect_type(c, 0, set) || !expect_same_type(c, 0, 1)) return;
  if (auto shape = broadcast_shapes(c, c.input(0).shape, c.input(1).shape)) {
    c.set_output(0, {c.input(0).element, *shape});
  }
}

template <TypeSet set>
void infer_comparison(InferContext& c) {
  if (!expect_type(c, 0, set) || !expect_same_type(c, 0, 1)) return;
  if (auto shape = broadcast_shapes(c, c.input(0).shape, c.input(1).shape)) {
    c.set_output(0, {ElementType::boolean, *shape});
  }
}

template <Function f>
void compute_binary(ComputeContext& c) {
  ElementType out = c.output_type(0).element;
  c.set_output(0, c.builder.compute("binary", out, c.output_type(0).shape, [&](Axes i) {
    return cast(out, f(widen(broadcast_at(c, 0, i)), widen(broadcast_at(c, 1, i)), c.attributes()));
  }));
}

template <TypeSet set, Function f>
OpDef arithmetic(std::string_view name) {
  OpDef op = onnx_op(name, FusionClass::elementwise, 2, infer_arithmetic<set>, compute_binary<f>);
  op.scalar_inputs = 0b11;
  op.axis_use = AxisUse::any;
  // Division, remainder and powers of finite numbers may be infinite or NaN.
  op.layout_agnostic = name != "Div" && name != "Mod" && name != "Pow";
  return op;
}

// A row whose function is one operation of the tensor IR.
template <BinaryOp operation>
Expr apply(const Expr& a, const Expr& b, const Attributes&) {
  return binary(operation, a, b);
}

template <TypeSet set, BinaryOp operation>
OpDef direct(std::string_view name) {
  return arithmetic<set, apply<operation>>(name);
}

template <TypeSet set, BinaryOp operation>
OpDef comparison(std::string_view name) {
  OpDef op = direct<set, operation>(name);
  op.infer = infer_comparison<set>;
  return op;
}

// ---- Pow ----

void infer_pow(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !expect_type(c, 1, TypeSet::number)) return;
  if (auto shape = broadcast_shapes(c, c.input(0).shape, c.input(1).shape)) {
    c.set_output(0, {c.input(0).element, *shape});
  }
}

// x^n by squaring, n >= 1.
Expr integer_power(const Expr& x, int64_t n) {
  Expr half = n > 1 ? integer_power(x, n / 2) : x;
  if (n == 1) return x;
  return n % 2 == 0 ? half * half : half * half * x;
}

constexpr int64_t kUnrolledExponent = 8;  // powers up to this are products

Expr power(const Expr& x, const Expr& y, const Attributes&) {
  double n = 0;
  if (as_number(y, &n)) {
    bool is_whole = n == std::floor(n) && std::fabs(n) <= kUnrolledExponent;
    if (n == 0) return tensor::constant_int(x.type(), 1);
    if (is_whole && n > 0) return integer_power(x, static_cast<int64_t>(n));
    if (is_whole && is_float(x.element()))
      return number_like(x, 1) / integer_power(x, static_cast<int64_t>(-n));
    if (n == 0.5 && is_float(x.element())) return call(Intrinsic::sqrt, {x});
  }
  ElementType type = is_float(x.element()) ? x.element() : ElementType::f64;
  return call(Intrinsic::pow, {cast(type, x), cast(type, y)});
}

OpDef pow_op() {
  OpDef op = arithmetic<TypeSet::number, power>("Pow");
  op.infer = infer_pow;
  return op;
}

// ---- The others ----

// With fmod the remainder has the sign of the dividend, else that of the divisor (a zero remainder, too).
Expr modulo(const Expr& a, const Expr& b, const Attributes& attributes) {
  if (attributes.integer("fmod", 0) != 0) return binary(BinaryOp::mod, a, b);
  if (!is_float(a.element())) return tensor::floor_mod(a, b);
  Expr remainder = binary(BinaryOp::mod, a, b);
  Expr adjusted = select((remainder < 0) != (b < 0), remainder + b, remainder);
  Expr zero = select(b < 0, number_like(b, -0.0), number_like(b, 0));
  return select(remainder == 0, zero, adjusted);
}

void infer_prelu(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !expect_same_type(c, 0, 1)) return;
  if (expect_broadcasts_to(c, 1, c.input(0).shape)) c.set_output(0, c.input(0));
}

Expr prelu(const Expr& x, const Expr& slope, const Attributes&) { return select(x < 0, x * slope, x); }

OpDef prelu_op() {
  OpDef op = arithmetic<TypeSet::number, prelu>("PRelu");
  op.infer = infer_prelu;
  return op;
}

void infer_shift(InferContext& c) {
  std::string direction = c.attributes().text("direction", "");
  if (!expect(c, direction == "LEFT" || direction == "RIGHT", "direction: expected LEFT or RIGHT, got ",
              direction)) {
    return;
  }
  infer_arithmetic<TypeSet::integer>(c);
}

// A shift by the width or more leaves nothing; to the right, of a negative number, -1.
Expr shift(const Expr& x, const Expr& count, const Attributes& a) {
  bool left = a.text("direction", "") == "LEFT";
  Expr limit = tensor::constant_int(count.type(), bit_width(x.element()) - 1);
  Expr in_range = count >= 0 && count <= limit;
  Expr shifted = binary(left ? BinaryOp::shl : BinaryOp::shr, x, select(in_range, count, limit));
  if (left || is_unsigned_int(x.element())) return select(in_range, shifted, 0);
  return shifted;
}

OpDef shift_op() {
  OpDef op = arithmetic<TypeSet::integer, shift>("BitShift");
  op.infer = infer_shift;
  return op;
}

}  // namespace

std::span<const OpDef> binary_ops() {
  static const OpDef ops[] = {
      direct<TypeSet::number, BinaryOp::add>("Add"),
      direct<TypeSet::number, BinaryOp::sub>("Sub"),
      direct<TypeSet::number, BinaryOp::mul>("Mul"),
      direct<TypeSet::number, BinaryOp::div>("Div"),
      pow_op(),
      arithmetic<TypeSet::number, modulo>("Mod"),
      prelu_op(),
      comparison<TypeSet::any, BinaryOp::eq>("Equal"),
      comparison<TypeSet::number, BinaryOp::lt>("Less"),
      comparison<TypeSet::number, BinaryOp::le>("LessOrEqual"),
      comparison<TypeSet::number, BinaryOp::gt>("Greater"),
      comparison<TypeSet::number, BinaryOp::ge>("GreaterOrEqual"),
      direct<TypeSet::boolean, BinaryOp::logical_and>("And"),
      direct<TypeSet::boolean, BinaryOp::logical_or>("Or"),
      direct<TypeSet::boolean, BinaryOp::ne>("Xor"),
      direct<TypeSet::integer, BinaryOp::bit_and>("BitwiseAnd"),
      direct<TypeSet::integer, BinaryOp::bit_or>("BitwiseOr"),
      direct<TypeSet::integer, BinaryOp::bit_xor>("BitwiseXor"),
      shift_op(),
  };
  return ops;
}

}  // namespace mcc::graph
