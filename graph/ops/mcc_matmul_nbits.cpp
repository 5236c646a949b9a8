// mcc.MatMulNBits: x [..., M, K] times weights of few bits -> [..., M, N], in f32 (then x's type).
//   bytes   u8 [ceil(N/c), ceil(K/e), c]         e = 8 / bits weights of neighbouring rows in each, the first in its lowest bits
//   scales  f32 [ceil(N/c), ceil(K/block), c]
//   zeros   u8, as scales; without it the attribute zero is that of all
// Weight (k, n) is (number - zero) * scale of its block along K. Columns past N have scale 0. Attributes columns (N), bits (2, 4, 8), block,
// zero.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int kBytes = 1, kScales = 2, kZeros = 3;

void infer_matmul(InferContext& c) {
  TensorType type = c.input(0);
  type.shape.back() = Expr(c.attributes().integer("columns", 0));
  c.set_output(0, type);
}

Buffer unpacked(ComputeContext& c) {
  const int64_t bits = c.attributes().integer("bits", 4), block = c.attributes().integer("block", 32);
  const int64_t each = 8 / bits, mask = (int64_t{1} << bits) - 1;
  const Shape& bytes = c.input_type(kBytes).shape;
  const Shape shape{bytes[0], c.input_type(0).shape.back(), bytes[2]};
  auto whole = [](const Expr& e) { return cast(ElementType::i32, e); };
  auto number = [](int64_t value) { return tensor::constant(ElementType::i32, static_cast<double>(value)); };
  return c.builder.compute("weights", ElementType::f32, shape, [&](Axes i) {
    Expr q = whole(c.at(kBytes, {i[0], floor_div(i[1], Expr(each)), i[2]}));
    if (bits < 8) {
      const Expr shift = whole(floor_mod(i[1], Expr(each)) * Expr(bits));
      q = tensor::Binary::make(BinaryOp::bit_and, tensor::Binary::make(BinaryOp::shr, q, shift),
                               number(mask));
    }
    const std::vector<Expr> at{i[0], floor_div(i[1], Expr(block)), i[2]};
    const Expr zero =
        c.has_input(kZeros) ? whole(c.at(kZeros, at)) : number(c.attributes().integer("zero", 0));
    return cast(ElementType::f32, q - zero) * c.at(kScales, at);
  });
}

void compute_matmul(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Expr& k = c.input_type(0).shape.back();
  const Expr& width = c.input_type(kBytes).shape[2];
  const Buffer weights = unpacked(c);
  const Buffer y =
      c.builder.reduce("matmul", ElementType::f32, out.shape, {k}, Reducer::sum, [&](Axes s, Axes r) {
        std::vector<Expr> at = to_vector(s);
        at.back() = r[0];
        const Expr weight = load(weights, {floor_div(s.back(), width), r[0], floor_mod(s.back(), width)});
        return cast(ElementType::f32, c.at(0, at)) * weight;
      });
  c.set_output(0, cast_buffer(c, y, out.element));
}

}  // namespace

std::span<const OpDef> mcc_matmul_nbits_ops() {
  static const OpDef ops[] = {
      own_op("MatMulNBits", FusionClass::contraction, 3, infer_matmul, compute_matmul)};
  return ops;
}

}  // namespace mcc::graph
