// QuantizeLinear, DequantizeLinear (for a tensor, along an axis, in blocks), DynamicQuantizeLinear; mcc.Quantize.
#include "graph/ops/common.h"
#include "graph/ops/row_rounding.h"
#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// ---- Scales and zero points: one for all, one for each position of `axis`, or one for each block along it ----

bool check_scale_shape(InferContext& c) {
  const Shape& x = c.input(0).shape;
  const Shape& scale = c.input(1).shape;
  int64_t block = c.attributes().integer("block_size", 0);
  auto is_one = [](const Shape& s) { return s.empty() || (s.size() == 1 && tensor::is_int(s[0], 1)); };
  bool is_scalar = is_one(scale);
  bool both_scalars = c.has_input(2) && is_scalar && is_one(c.input(2).shape);
  if (c.has_input(2) && !both_scalars &&
      !expect(c, same_shape(scale, c.input(2).shape), "zero point: expected the scale's shape ",
              to_text(c.input(1)), ", got ", to_text(c.input(2)))) {
    return false;
  }
  if (is_scalar && block == 0) return true;
  auto axis = checked_axis(c, c.attributes().integer("axis", 1), c.rank(0));
  if (!axis) return false;
  auto k = static_cast<size_t>(*axis);
  if (scale.size() == 1 && block == 0) return expect_same_dim(c, x[k], scale[0], "length of the scale");
  if (!expect(c, scale.size() == x.size() && block >= 0, "scale: ", to_text(c.input(1)), " does not fit ",
              to_text(c.input(0)))) {
    return false;
  }
  for (size_t d = 0; d < x.size(); ++d) {
    if (d != k && !expect_same_dim(c, x[d], scale[d], text("dimension ", d, " of the scale"))) return false;
  }
  auto extent = static_dim(x[k]), blocks = static_dim(scale[k]);
  if (!extent || !blocks || block == 0) return expect(c, block > 0, "block_size is missing");
  return expect(c, (*extent + block - 1) / block == *blocks, "block_size of ", block, " for ", *extent,
                " elements and ", *blocks, " scales");
}

// The scale (input 1) or zero point (input 2) for element i.
Expr parameter(const ComputeContext& c, int input, Axes i) {
  const Shape& shape = c.input_type(input).shape;
  if (shape.empty()) return c.at(input, {});
  int64_t block = c.attributes().integer("block_size", 0);
  auto axis = [&] {
    return static_cast<size_t>(normal_axis(c.attributes().integer("axis", 1), static_cast<int>(i.size())));
  };
  if (block == 0) return c.at(input, {tensor::is_int(shape[0], 1) ? Expr(0) : i[axis()]});
  std::vector<Expr> at = to_vector(i);
  at[axis()] = tensor::floor_div(at[axis()], block);
  return c.at(input, at);
}

struct Range {
  double low, high;
};

Range range_of(ElementType t) {
  if (is_float(t)) return {-tensor::float_format(t).largest, tensor::float_format(t).largest};
  double span = static_cast<double>(int64_t{1} << bit_width(t));
  return is_signed_int(t) ? Range{-span / 2, span / 2 - 1} : Range{0, span - 1};
}

// x / scale rounded to even (for integers), plus the zero point, saturated; floats only where `saturate` says so.
Expr quantized(const Expr& x, const Expr& scale, const Expr& zero, ElementType to, bool saturate = true) {
  Expr q = x / scale;
  if (!is_float(to)) q = call(Intrinsic::round, {q});
  if (zero.defined()) q = q + cast(q.element(), zero);
  if (!saturate && is_float(to)) return cast(to, q);
  Range r = range_of(to);
  return cast(to, tensor::max(tensor::min(q, number_like(q, r.high)), number_like(q, r.low)));
}

// ---- QuantizeLinear ----

bool is_quantized(ElementType t) {
  return (is_int(t) && bit_width(t) <= 16) || (is_float(t) && bit_width(t) <= 8 && t != ElementType::f8e8m0);
}

std::optional<ElementType> quantized_type(InferContext& c) {
  if (c.has_input(2)) return c.input(2).element;
  if (c.attributes().integer("output_dtype", 0) == 0) return ElementType::u8;
  return element_attribute(c, "output_dtype");
}

void infer_quantize(InferContext& c) {
  bool is_number = is_float(c.input(0).element) || c.input(0).element == ElementType::i32;
  if (!expect(c, is_number, "input 0: expected a floating-point type or i32, got ",
              mcc::to_text(c.input(0).element)) ||
      !expect_type(c, 1, TypeSet::floating) || !check_scale_shape(c)) {
    return;
  }
  auto element = quantized_type(c);
  if (!element) return;
  if (!is_quantized(*element)) return c.unsupported(text("quantisation to ", mcc::to_text(*element)));
  c.set_output(0, {*element, c.input(0).shape});
}

// The type of the division: the wider of f32 and the scale's; f16 divides as f32 rounded to f16, as ONNX defines it.
void compute_quantize(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const bool saturate = c.attributes().integer("saturate", 1) != 0;
  c.set_output(0, c.builder.compute("quantize", out.element, out.shape, [&](Axes i) {
    Expr scale = widen(parameter(c, 1, i));
    Expr x = cast(scale.element(), c.at(0, to_vector(i)));
    return quantized(x, scale, c.has_input(2) ? parameter(c, 2, i) : Expr(), out.element, saturate);
  }));
}

// ---- DequantizeLinear: (x - zero point) * scale ----

void infer_dequantize(InferContext& c) {
  ElementType x = c.input(0).element;
  if (!expect(c, is_quantized(x) || x == ElementType::i32, "input 0: expected a quantised type, got ",
              mcc::to_text(x)) ||
      !expect_type(c, 1, TypeSet::floating) || !check_scale_shape(c)) {
    return;
  }
  if (c.has_input(2) && !expect_same_type(c, 0, 2)) return;
  std::optional<ElementType> element = c.input(1).element;
  if (c.attributes().integer("output_dtype", 0) != 0) element = element_attribute(c, "output_dtype");
  if (element) c.set_output(0, {*element, c.input(0).shape});
}

// Integers subtract in i32, where nothing is lost.
void compute_dequantize(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("dequantize", out.element, out.shape, [&](Axes i) {
    Expr x = c.at(0, to_vector(i));
    Expr wide = is_float(x.element()) ? widen(x) : cast(ElementType::i32, x);
    if (c.has_input(2)) wide = wide - cast(wide.element(), parameter(c, 2, i));
    Expr scale = widen(parameter(c, 1, i));
    return cast(out.element, cast(scale.element(), wide) * scale);
  }));
}

// ---- DynamicQuantizeLinear: u8 with a scale from the range of the input, which includes 0 ----

void infer_dynamic(InferContext& c) {
  if (!expect(c, c.input(0).element == ElementType::f32, "input 0: expected f32, got ",
              mcc::to_text(c.input(0).element))) {
    return;
  }
  c.set_output(0, {ElementType::u8, c.input(0).shape});
  c.set_output(1, {ElementType::f32, {}});
  c.set_output(2, {ElementType::u8, {}});
}

void compute_dynamic(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  auto extreme = [&](const std::string& name, Reducer reducer) {
    return c.builder.reduce(name, in.element, {}, in.shape, reducer,
                            [&](Axes, Axes r) { return c.at(0, to_vector(r)); });
  };
  Buffer low = extreme("low", Reducer::min), high = extreme("high", Reducer::max);
  Buffer scale = c.builder.compute("scale", in.element, {},
                                   [&](Axes) { return scale_to_bytes(load(low, {}), load(high, {})); });
  Buffer zero_point = c.builder.compute("zero_point", ElementType::u8, {}, [&](Axes) {
    Expr s = load(scale, {});
    // A constant 0 has no range: any scale would do.
    return cast(ElementType::u8, select(s == 0, number_like(s, 0), zero_of_bytes(load(low, {}), s)));
  });
  c.set_output(0, c.builder.compute("quantize", ElementType::u8, in.shape, [&](Axes i) {
    Expr s = load(scale, {});
    return quantized(c.at(0, to_vector(i)), select(s == 0, number_like(s, 1), s), load(zero_point, {}),
                     ElementType::u8);
  }));
  if (c.has_output(1)) c.set_output(1, scale);
  if (c.has_output(2)) c.set_output(2, zero_point);
}

// ---- mcc.Quantize: f32 x, f, r -> round(x * f + x * r) + zero point, saturated; x * f is not rounded ----
// For QuantizeLinear by a scale of 1 / (f + r) (graph/passes/quantize_by_products.cpp). Attributes to, zero_point. x stands once in
// it: what makes x is not inlined where it would be computed twice.

void infer_quantize_by_products(InferContext& c) {
  c.set_output(0, {*parse_element_type(c.attributes().text("to", "")), c.input(0).shape});
}

void compute_quantize_by_products(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("quantize", out.element, out.shape, [&](Axes i) {
    const Expr quotient = call(Intrinsic::mul_sum, {c.at(0, to_vector(i)), c.at(1, {}), c.at(2, {})});
    const Expr rounded = call(Intrinsic::round, {quotient});
    return cast(out.element, rounded + number_like(rounded, static_cast<double>(c.attributes().integer("zero_point", 0))));
  }));
}

OpDef quantization(std::string_view name, FusionClass fusion, void (*infer)(InferContext&),
                   void (*compute)(ComputeContext&), int required) {
  OpDef op = onnx_op(name, fusion, required, infer, compute);
  op.scalar_inputs = 0b100;
  op.axis_use = fusion == FusionClass::elementwise ? AxisUse::scalars : AxisUse::own;
  return op;
}

OpDef folded_late(OpDef op) {
  op.is_folded_late = true;
  return op;
}

}  // namespace

std::span<const OpDef> quantize_ops() {
  static const OpDef ops[] = {
      quantization("QuantizeLinear", FusionClass::elementwise, infer_quantize, compute_quantize, 2),
      folded_late(quantization("DequantizeLinear", FusionClass::elementwise, infer_dequantize, compute_dequantize, 2)),
      quantization("DynamicQuantizeLinear", FusionClass::reduction, infer_dynamic, compute_dynamic, 1),
      own_op("Quantize", FusionClass::elementwise, 3, infer_quantize_by_products, compute_quantize_by_products),
  };
  return ops;
}

}  // namespace mcc::graph
