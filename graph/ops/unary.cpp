// Elementwise functions of one tensor: one row each.
#include <cmath>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// The function of an element; floats narrower than f32 arrive as f32, and the result is rounded back.
using Function = Expr (*)(const Expr& x, const Attributes& attributes);

template <TypeSet set>
void infer_same(InferContext& c) {
  if (expect_type(c, 0, set)) c.set_output(0, c.input(0));
}

template <TypeSet set>
void infer_predicate(InferContext& c) {
  if (expect_type(c, 0, set)) c.set_output(0, {ElementType::boolean, c.input(0).shape});
}

template <Function f>
void compute_unary(ComputeContext& c) {
  ElementType out = c.output_type(0).element;
  c.set_output(0, c.builder.compute("unary", out, c.input_type(0).shape, [&](Axes i) {
    return cast(out, f(widen(c.at(0, to_vector(i))), c.attributes()));
  }));
}

// Whether finite operands give finite results.
bool is_total(std::string_view name) {
  return name != "Log" && name != "Sqrt" && name != "Reciprocal" && name != "Asin" && name != "Acos" &&
         name != "Acosh" && name != "Atanh";
}

template <TypeSet set, Function f>
OpDef unary(std::string_view name) {
  OpDef op = onnx_op(name, FusionClass::elementwise, 1, infer_same<set>, compute_unary<f>);
  op.axis_use = AxisUse::any;
  op.layout_agnostic = is_total(name);
  return op;
}

template <TypeSet set, Function f>
OpDef predicate(std::string_view name) {
  OpDef op = unary<set, f>(name);
  op.infer = infer_predicate<set>;
  return op;
}

// A row whose function is one intrinsic.
template <Intrinsic intrinsic>
Expr apply(const Expr& x, const Attributes&) {
  return call(intrinsic, {x});
}

template <Intrinsic intrinsic>
OpDef direct(std::string_view name) {
  return unary<TypeSet::floating, apply<intrinsic>>(name);
}

Expr relu(const Expr& x, const Attributes&) { return tensor::max(x, 0); }
Expr negate(const Expr& x, const Attributes&) { return -x; }
Expr reciprocal(const Expr& x, const Attributes&) { return number_like(x, 1) / x; }
Expr invert(const Expr& x, const Attributes&) { return tensor::logical_not(x); }
Expr bitwise_not(const Expr& x, const Attributes&) { return call(Intrinsic::bit_not, {x}); }
Expr is_nan(const Expr& x, const Attributes&) { return call(Intrinsic::is_nan, {x}); }

Expr absolute(const Expr& x, const Attributes&) {
  if (is_float(x.element())) return call(Intrinsic::abs, {x});
  return is_unsigned_int(x.element()) ? x : select(x < 0, -x, x);
}

// NaN stays NaN.
Expr sign(const Expr& x, const Attributes&) {
  Expr one = tensor::constant_int(x.type(), 1), zero = tensor::constant_int(x.type(), 0);
  if (is_unsigned_int(x.element())) return select(x > 0, one, zero);
  return select(x > 0, one, select(x < 0, -one, is_float(x.element()) ? x : zero));
}

Expr is_inf(const Expr& x, const Attributes& a) {
  Expr infinite = call(Intrinsic::is_inf, {x});
  bool positive = a.integer("detect_positive", 1) != 0, negative = a.integer("detect_negative", 1) != 0;
  if (positive && negative) return infinite;
  if (positive) return infinite && x > 0;
  return negative ? infinite && x < 0 : tensor::false_value();
}

// ---- Activations ----

Expr clamp_unit(const Expr& x) { return tensor::max(tensor::min(x, 1), 0); }

Expr leaky_relu(const Expr& x, const Attributes& a) {
  return select(x < 0, x * number_like(x, a.number("alpha", 0.01)), x);
}

Expr thresholded_relu(const Expr& x, const Attributes& a) {
  return select(x > number_like(x, a.number("alpha", 1.0)), x, 0);
}

Expr elu(const Expr& x, const Attributes& a) {
  return select(x < 0, number_like(x, a.number("alpha", 1.0)) * call(Intrinsic::expm1, {x}), x);
}

Expr selu(const Expr& x, const Attributes& a) {
  double alpha = a.number("alpha", 1.67326319217681884765625),
         gamma = a.number("gamma", 1.05070102214813232421875);
  return select(x > 0, number_like(x, gamma) * x,
                number_like(x, gamma * alpha) * call(Intrinsic::expm1, {x}));
}

Expr celu(const Expr& x, const Attributes& a) {
  Expr alpha = number_like(x, a.number("alpha", 1.0));
  return tensor::max(x, 0) + tensor::min(alpha * call(Intrinsic::expm1, {x / alpha}), 0);
}

Expr hard_sigmoid(const Expr& x, const Attributes& a) {
  return clamp_unit(x * number_like(x, a.number("alpha", 0.2)) + number_like(x, a.number("beta", 0.5)));
}

Expr hard_swish(const Expr& x, const Attributes&) {
  return x * clamp_unit(x * number_like(x, 1.0 / 6.0) + number_like(x, 0.5));
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), where nothing overflows.
Expr softplus(const Expr& x, const Attributes&) {
  return tensor::max(x, 0) + call(Intrinsic::log1p, {call(Intrinsic::exp, {-call(Intrinsic::abs, {x})})});
}

Expr softsign(const Expr& x, const Attributes&) { return x / (call(Intrinsic::abs, {x}) + 1); }
Expr mish(const Expr& x, const Attributes& a) { return x * call(Intrinsic::tanh, {softplus(x, a)}); }

Expr swish(const Expr& x, const Attributes& a) {
  double alpha = a.number("alpha", 1.0);
  return x * call(Intrinsic::sigmoid, {alpha == 1.0 ? x : x * number_like(x, alpha)});
}

Expr gelu(const Expr& x, const Attributes& a) {
  Expr half = number_like(x, 0.5);
  if (a.text("approximate", "none") == "tanh") {
    Expr inner = number_like(x, std::sqrt(2 / M_PI)) * (x + number_like(x, 0.044715) * x * x * x);
    return half * x * (call(Intrinsic::tanh, {inner}) + 1);
  }
  return half * x * (call(Intrinsic::erf, {x * number_like(x, M_SQRT1_2)}) + 1);
}

// Integers go through f64, where all of practical size are exact.
Expr shrink(const Expr& value, const Attributes& a) {
  Expr x = is_float(value.element()) ? value : cast(ElementType::f64, value);
  Expr lambd = number_like(x, a.number("lambd", 0.5)), bias = number_like(x, a.number("bias", 0.0));
  Expr shrunk = select(x < -lambd, x + bias, select(x > lambd, x - bias, 0));
  return cast(value.element(), shrunk);
}

void infer_gelu(InferContext& c) {
  std::string approximate = c.attributes().text("approximate", "none");
  expect(c, approximate == "none" || approximate == "tanh", "approximate: expected none or tanh, got ",
         approximate);
  infer_same<TypeSet::floating>(c);
}

OpDef gelu_op() {
  OpDef op = unary<TypeSet::floating, gelu>("Gelu");
  op.infer = infer_gelu;
  return op;
}

}  // namespace

std::span<const OpDef> unary_ops() {
  static const OpDef ops[] = {
      unary<TypeSet::number, relu>("Relu"),
      unary<TypeSet::number, negate>("Neg"),
      unary<TypeSet::number, absolute>("Abs"),
      unary<TypeSet::number, sign>("Sign"),
      unary<TypeSet::floating, reciprocal>("Reciprocal"),
      unary<TypeSet::boolean, invert>("Not"),
      unary<TypeSet::integer, bitwise_not>("BitwiseNot"),
      predicate<TypeSet::floating, is_nan>("IsNaN"),
      predicate<TypeSet::floating, is_inf>("IsInf"),
      direct<Intrinsic::exp>("Exp"),
      direct<Intrinsic::log>("Log"),
      direct<Intrinsic::sqrt>("Sqrt"),
      direct<Intrinsic::erf>("Erf"),
      direct<Intrinsic::tanh>("Tanh"),
      direct<Intrinsic::sigmoid>("Sigmoid"),
      direct<Intrinsic::sin>("Sin"),
      direct<Intrinsic::cos>("Cos"),
      direct<Intrinsic::tan>("Tan"),
      direct<Intrinsic::asin>("Asin"),
      direct<Intrinsic::acos>("Acos"),
      direct<Intrinsic::atan>("Atan"),
      direct<Intrinsic::sinh>("Sinh"),
      direct<Intrinsic::cosh>("Cosh"),
      direct<Intrinsic::asinh>("Asinh"),
      direct<Intrinsic::acosh>("Acosh"),
      direct<Intrinsic::atanh>("Atanh"),
      direct<Intrinsic::floor>("Floor"),
      direct<Intrinsic::ceil>("Ceil"),
      direct<Intrinsic::round>("Round"),
      unary<TypeSet::floating, leaky_relu>("LeakyRelu"),
      unary<TypeSet::floating, thresholded_relu>("ThresholdedRelu"),
      unary<TypeSet::floating, elu>("Elu"),
      unary<TypeSet::floating, selu>("Selu"),
      unary<TypeSet::floating, celu>("Celu"),
      unary<TypeSet::floating, hard_sigmoid>("HardSigmoid"),
      unary<TypeSet::floating, hard_swish>("HardSwish"),
      unary<TypeSet::floating, softplus>("Softplus"),
      unary<TypeSet::floating, softsign>("Softsign"),
      unary<TypeSet::floating, mish>("Mish"),
      unary<TypeSet::floating, swish>("Swish"),
      gelu_op(),
      unary<TypeSet::number, shrink>("Shrink"),
  };
  return ops;
}

}  // namespace mcc::graph
