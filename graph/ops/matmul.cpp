// Matrix products: MatMul, MatMulInteger, QLinearMatMul over broadcast batches, and Gemm.
#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// ---- The product of [..., m, k] and [..., k, n]; a vector on either side has no m or n ----

std::optional<Shape> product_shape(InferContext& c, int a, int b) {
  const Shape& x = c.input(a).shape;
  const Shape& y = c.input(b).shape;
  for (int i : {a, b}) {
    if (!expect(c, c.rank(i) >= 1, "input ", i, ": expected at least one dimension")) return std::nullopt;
  }
  const Expr& k = y.size() == 1 ? y[0] : y[y.size() - 2];
  if (!expect_same_dim(c, x.back(), k,
                       text("inner dimension of ", to_text(c.input(a)), " times ", to_text(c.input(b))))) {
    return std::nullopt;
  }
  Shape x_batch(x.begin(), x.end() - (x.size() == 1 ? 1 : 2));
  Shape y_batch(y.begin(), y.end() - (y.size() == 1 ? 1 : 2));
  auto out = broadcast_shapes(c, x_batch, y_batch);
  if (!out) return std::nullopt;
  if (x.size() > 1) out->push_back(x[x.size() - 2]);
  if (y.size() > 1) out->push_back(y.back());
  return out;
}

// Of one type; or, where the result has their wide type, of any that have the same one.
bool expect_factors(InferContext& c) {
  const bool is_wide = c.attributes().integer(kWideResult, 0) != 0;
  return (is_wide && wide_type(c.input(0).element) == wide_type(c.input(1).element)) || expect_same_type(c, 0, 1);
}

// How the axes of the product index its operands.
struct Operands {
  std::vector<Expr> a, b;
  Expr m, n;  // undefined for a vector
};

Operands operand_indices(const Shape& a, const Shape& b, Axes i, const Expr& k) {
  bool has_m = a.size() > 1, has_n = b.size() > 1;
  size_t batch = i.size() - (has_m ? 1 : 0) - (has_n ? 1 : 0);
  Axes outer = i.subspan(0, batch);
  auto batch_of = [](const Shape& s) { return Shape(s.begin(), s.end() - (s.size() > 1 ? 2 : 1)); };
  Operands o{broadcast_index(batch_of(a), outer), broadcast_index(batch_of(b), outer), {}, {}};
  if (has_m) {
    o.m = i[batch];
    o.a.push_back(o.m);
  }
  o.a.push_back(k);
  o.b.push_back(k);
  if (has_n) {
    o.n = i.back();
    o.b.push_back(o.n);
  }
  return o;
}

using Factor = std::function<Expr(const Expr& element, const Operands& at)>;
Buffer sum_products(ComputeContext& c, int a, int b, ElementType sum, const Factor& a_factor,
                    const Factor& b_factor) {
  const Shape& x = c.input_type(a).shape;
  const Shape& y = c.input_type(b).shape;
  return c.builder.reduce("matmul", sum, c.output_type(0).shape, {x.back()}, Reducer::sum,
                          [&](Axes i, Axes r) {
                            Operands o = operand_indices(x, y, i, r[0]);
                            return a_factor(c.at(a, o.a), o) * b_factor(c.at(b, o.b), o);
                          });
}

// ---- MatMul ----

void infer_matmul(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !expect_factors(c)) return;
  if (auto shape = product_shape(c, 0, 1)) c.set_output(0, {contraction_result(c), *shape});
}

void compute_matmul(ComputeContext& c) {
  ElementType out = c.output_type(0).element;
  auto factor = [](const Expr& value, const Operands&) { return widen(value); };
  c.set_output(0, cast_buffer(c, sum_products(c, 0, 1, wide_type(out), factor, factor), out));
}

// ---- Quantised products: i32 sums of (a - a_zero) * (b - b_zero) ----

// A scale or zero point of an operand: one for all, or one for each row of a (column of b); `line` is that row or
// column, and batches have their own when it has the operand's rank.
Expr per_line(const ComputeContext& c, int i, const Operands& o, bool of_a) {
  const Shape& shape = c.input_type(i).shape;
  const Expr& line = of_a ? o.m : o.n;
  if (shape.empty()) return c.at(i, {});
  if (shape.size() == 1) return c.at(i, {tensor::is_int(shape[0], 1) || !line.defined() ? Expr(0) : line});
  std::vector<Expr> index = of_a ? o.a : o.b;
  for (size_t k = 0; k < index.size(); ++k) {
    if (tensor::is_int(shape[k], 1)) index[k] = 0;
  }
  return c.at(i, index);
}

bool check_per_line(InferContext& c, int i, int operand) {
  if (!c.has_input(i)) return true;
  const Shape& shape = c.input(i).shape;
  const Shape& of = c.input(operand).shape;
  if (shape.empty() || (shape.size() == 1 && tensor::is_int(shape[0], 1))) return true;
  bool is_a = operand == 0;
  Expr lines = of.size() == 1 ? Expr(1) : is_a ? of[of.size() - 2] : of.back();
  if (shape.size() == 1) return expect_same_dim(c, lines, shape[0], text("length of input ", i));
  if (!expect_rank(c, i, c.rank(operand))) return false;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (tensor::is_int(shape[k], 1)) continue;
    bool is_inner = k + (is_a ? 1 : 2) == shape.size();
    if (!expect(c, !is_inner && tensor::structurally_equal(shape[k], of[k]), "input ", i, ": ",
                to_text(c.input(i)), " does not fit ", to_text(c.input(operand)))) {
      return false;
    }
  }
  return true;
}

bool expect_byte(InferContext& c, int i) {
  ElementType t = c.input(i).element;
  return expect(c, t == ElementType::u8 || t == ElementType::i8, "input ", i, ": expected u8 or i8, got ",
                mcc::to_text(t));
}

Buffer sum_integers(ComputeContext& c, int a, int b, int a_zero, int b_zero) {
  auto minus = [&](int zero, bool of_a) {
    return [&c, zero, of_a](const Expr& value, const Operands& o) {
      Expr wide = cast(ElementType::i32, value);
      return c.has_input(zero) ? wide - cast(ElementType::i32, per_line(c, zero, o, of_a)) : wide;
    };
  };
  return sum_products(c, a, b, ElementType::i32, minus(a_zero, true), minus(b_zero, false));
}

void infer_matmul_integer(InferContext& c) {
  if (!expect_byte(c, 0) || !expect_byte(c, 1) || !check_per_line(c, 2, 0) || !check_per_line(c, 3, 1))
    return;
  if (auto shape = product_shape(c, 0, 1)) c.set_output(0, {ElementType::i32, *shape});
}

void compute_matmul_integer(ComputeContext& c) { c.set_output(0, sum_integers(c, 0, 1, 2, 3)); }

// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
void infer_qlinear_matmul(InferContext& c) {
  for (int i : {1, 4, 6}) {
    if (!expect_type(c, i, TypeSet::floating)) return;
  }
  for (int i : {0, 3, 7}) {
    if (!expect(c, bit_width(c.input(i).element) == 8, "input ", i, ": expected an 8-bit type, got ",
                mcc::to_text(c.input(i).element))) {
      return;
    }
    if (is_float(c.input(i).element)) return c.unsupported("products of 8-bit floats are not supported");
  }
  if (!check_per_line(c, 1, 0) || !check_per_line(c, 2, 0)) return;
  for (int i : {4, 5}) {
    bool is_scalar = c.rank(i) == 0 || (c.rank(i) == 1 && tensor::is_int(c.input(i).shape[0], 1));
    bool is_line = c.rank(i) == 1 && c.rank(3) > 1 &&
                   tensor::structurally_equal(c.input(i).shape[0], c.input(3).shape.back());
    if (!is_scalar && !is_line) return c.unsupported(text("input ", i, " of shape ", to_text(c.input(i))));
  }
  for (int i : {6, 7}) {
    bool is_scalar = c.rank(i) == 0 || (c.rank(i) == 1 && tensor::is_int(c.input(i).shape[0], 1));
    if (!is_scalar) return c.unsupported(text("input ", i, " of shape ", to_text(c.input(i))));
  }
  if (auto shape = product_shape(c, 0, 3)) c.set_output(0, {c.input(7).element, *shape});
}

void compute_qlinear_matmul(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  Buffer sum = sum_integers(c, 0, 3, 2, 5);
  c.set_output(0, c.builder.compute("requantize", out.element, out.shape, [&](Axes i) {
    Operands o = operand_indices(c.input_type(0).shape, c.input_type(3).shape, i, 0);
    auto scale = [&](const Expr& e) { return cast(ElementType::f32, e); };
    Expr factor =
        scale(per_line(c, 1, o, true)) * scale(per_line(c, 4, o, false)) / scale(per_line(c, 6, o, true));
    Expr rounded = call(Intrinsic::round, {scale(load(sum, to_vector(i))) * factor});
    return cast(out.element, rounded + scale(per_line(c, 7, o, true)));
  }));
}

// ---- Gemm: alpha * A' * B' + beta * C ----

void infer_gemm(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !expect_factors(c) || !expect_rank(c, 0, 2) || !expect_rank(c, 1, 2)) {
    return;
  }
  bool trans_a = c.attributes().integer("transA", 0) != 0, trans_b = c.attributes().integer("transB", 0) != 0;
  const Shape& a = c.input(0).shape;
  const Shape& b = c.input(1).shape;
  if (!expect_same_dim(c, a[trans_a ? 0 : 1], b[trans_b ? 1 : 0],
                       text("inner dimension of ", to_text(c.input(0)), " times ", to_text(c.input(1))))) {
    return;
  }
  Shape out{a[trans_a ? 1 : 0], b[trans_b ? 0 : 1]};
  const ElementType result = contraction_result(c);
  if (c.has_input(2) && result == c.input(0).element && !expect_same_type(c, 0, 2)) return;
  if (c.has_input(2) && !expect_broadcasts_to(c, 2, out)) return;
  c.set_output(0, {result, out});
}

// factor * value, which for integers rounds down as a cast does.
Expr scaled(const Expr& value, double factor) {
  if (factor == 1.0) return value;
  if (is_float(value.element())) return value * number_like(value, factor);
  return cast(value.element(), cast(ElementType::f64, value) * tensor::constant(ElementType::f64, factor));
}

void compute_gemm(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  bool trans_a = c.attributes().integer("transA", 0) != 0, trans_b = c.attributes().integer("transB", 0) != 0;
  double alpha = c.attributes().number("alpha", 1), beta = c.attributes().number("beta", 1);
  const Expr& k = c.input_type(0).shape[trans_a ? 0 : 1];
  ElementType wide = wide_type(out.element);
  Buffer sum = c.builder.reduce("matmul", wide, out.shape, {k}, Reducer::sum, [&](Axes i, Axes r) {
    Expr a = trans_a ? c.at(0, {r[0], i[0]}) : c.at(0, {i[0], r[0]});
    Expr b = trans_b ? c.at(1, {i[1], r[0]}) : c.at(1, {r[0], i[1]});
    return widen(a) * widen(b);
  });
  bool has_bias = c.has_input(2) && beta != 0;
  if (!has_bias && alpha == 1.0) return c.set_output(0, cast_buffer(c, sum, out.element));
  c.set_output(0, c.builder.compute(has_bias ? "bias" : "scale", out.element, out.shape, [&](Axes i) {
    Expr value = scaled(load(sum, to_vector(i)), alpha);
    if (has_bias) value = value + scaled(widen(broadcast_at(c, 2, i)), beta);
    return cast(out.element, value);
  }));
}

OpDef matrix_product(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&),
                     int required = 2, uint32_t scalars = 0) {
  OpDef op = onnx_op(name, FusionClass::contraction, required, infer, compute);
  op.scalar_inputs = scalars;
  return op;
}

}  // namespace

std::span<const OpDef> matmul_ops() {
  static const OpDef ops[] = {
      laid_out(matrix_product("MatMul", infer_matmul, compute_matmul), LayoutRole::matmul),
      matrix_product("MatMulInteger", infer_matmul_integer, compute_matmul_integer, 2, 0b1100),
      matrix_product("QLinearMatMul", infer_qlinear_matmul, compute_qlinear_matmul, 8, 0b10100100),
      laid_out(matrix_product("Gemm", infer_gemm, compute_gemm), LayoutRole::gemm),
  };
  return ops;
}

}  // namespace mcc::graph
