// Products with weights of few bits.
//
//   mcc.MatMulNBits    x [..., M, K] times weights -> [..., M, N], in f32 (then x's type, or f32 with the attribute wide_result)
//     bytes   u8 or u32 [ceil(N/c), ceil(K/e), c]  e weights of neighbouring rows in each, as many as have room, the first in its lowest bits
//     scales  f32 [ceil(N/c), ceil(K/block), c]
//     zeros   u8, as scales; without it the attribute zero is that of all
//   mcc.MatMulRounded  the same of an x that is first rounded to bytes, each block of each row by its largest number: then blocks are dot
//                      products of bytes. K is a multiple of block, block one of 8, bits are 4 or 8
//     words   u8 [ceil(N/c), K/(4 e), c, 4]        words of four rows; e = 2: of eight, the first four of them in the lower halves
//     scales, zeros as above
//   mcc.MayRound       x -> x: whoever multiplies it by such weights may round it so. Passes make nothing else of it
//
// Weight (k, n) is (number - zero) * scale of its block along K; with the attribute in_type_of_rows rounded to x's type, as tensor cores
// multiply it.
// Columns past N have scale 0. Attributes columns (N), bits (2, 4, 8), block, zero.
// With an index input 4, of x's batch [...], there are several such matrices, bytes (words), scales and zeros [E, ..], of which it says one for
// each batch item (mcc.SelectedMatMul).
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int kBytes = 1, kScales = 2, kZeros = 3, kSelector = 4;

void infer_matmul(InferContext& c) {
  TensorType type = c.input(0);
  type.shape.back() = Expr(c.attributes().integer("columns", 0));
  if (c.attributes().integer(kWideResult, 0) != 0) type.element = ElementType::f32;
  c.set_output(0, type);
}

// ---- Of several matrices ----

// The shape of what one of them has in input i.
Shape shape_of_one(const ComputeContext& c, int i) {
  const Shape& shape = c.input_type(i).shape;
  return {shape.begin() + (c.has_input(kSelector) ? 1 : 0), shape.end()};
}

// The axes of batch items that have a matrix of their own, [B...].
Shape selecting_axes(const ComputeContext& c) {
  return c.has_input(kSelector) ? c.input_type(kSelector).shape : Shape();
}

// An element of input i, at [B..., panel, ..].
Expr weight_at(const ComputeContext& c, int i, const std::vector<Expr>& at) {
  if (!c.has_input(kSelector)) return c.at(i, at);
  const auto batch = static_cast<std::ptrdiff_t>(selecting_axes(c).size());
  std::vector<Expr> of_one(at.begin() + batch, at.end());
  of_one.insert(of_one.begin(), selected_matrix(c, kSelector, Axes(at).first(static_cast<size_t>(batch) + 2),
                                                c.input_type(i).shape[0]));
  return c.at(i, of_one);
}

// [B..., inner...], for a place of the result.
std::vector<Expr> of_item(const ComputeContext& c, Axes s, std::vector<Expr> inner) {
  inner.insert(inner.begin(), s.begin(), s.begin() + static_cast<std::ptrdiff_t>(selecting_axes(c).size()));
  return inner;
}

// ---- MatMulNBits ----

Buffer unpacked(ComputeContext& c) {
  const int64_t bits = c.attributes().integer("bits", 4), block = c.attributes().integer("block", 32);
  const int64_t each = bit_width(c.input_type(kBytes).element) / bits, mask = (int64_t{1} << bits) - 1;
  const Shape bytes = shape_of_one(c, kBytes);
  Shape shape = selecting_axes(c);
  const size_t batch = shape.size();
  shape.insert(shape.end(), {bytes[0], c.input_type(0).shape.back(), bytes[2]});
  auto whole = [](const Expr& e) { return cast(ElementType::i32, e); };
  auto number = [](int64_t value) { return tensor::constant(ElementType::i32, static_cast<double>(value)); };
  const bool is_rounded = c.attributes().integer("in_type_of_rows", 0) != 0;
  const ElementType type = is_rounded ? c.input_type(0).element : ElementType::f32;
  return c.builder.compute("weights", type, shape, [&](Axes i) {
    const Expr& k = i[batch + 1];
    auto for_several = [&](int64_t rows) {
      std::vector<Expr> at = to_vector(i);
      at[batch + 1] = floor_div(k, Expr(rows));
      return at;
    };
    Expr q = whole(weight_at(c, kBytes, for_several(each)));
    if (each > 1) {
      const Expr shift = whole(floor_mod(k, Expr(each)) * Expr(bits));
      q = tensor::Binary::make(BinaryOp::bit_and, tensor::Binary::make(BinaryOp::shr, q, shift),
                               number(mask));
    }
    const std::vector<Expr> at = for_several(block);
    auto real = [](const Expr& e) { return cast(ElementType::f32, e); };
    const Expr zero =
        c.has_input(kZeros) ? weight_at(c, kZeros, at) : number(c.attributes().integer("zero", 0));
    // CPUs look up what a number of few bits is alone; a conversion for each weight is enough for GPUs.
    const bool is_apart = c.has_input(kZeros) && !is_rounded;
    const Expr distance = is_apart ? real(q) - real(zero) : real(q - whole(zero));
    return cast(type, distance * weight_at(c, kScales, at));
  });
}

void compute_matmul(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Expr& k = c.input_type(0).shape.back();
  const Expr width = shape_of_one(c, kBytes)[2];
  const Buffer weights = unpacked(c);
  const Buffer y =
      c.builder.reduce("matmul", ElementType::f32, out.shape, {k}, Reducer::sum, [&](Axes s, Axes r) {
        std::vector<Expr> at = to_vector(s);
        at.back() = r[0];
        const Expr weight =
            load(weights, of_item(c, s, {floor_div(s.back(), width), r[0], floor_mod(s.back(), width)}));
        return cast(ElementType::f32, c.at(0, at)) * cast(ElementType::f32, weight);
      });
  c.set_output(0, cast_buffer(c, y, out.element));
}

// ---- MatMulRounded ----

constexpr int64_t kWord = 4;

// A number of the words [B..., panel, word, column, 4].
Expr number_at(const ComputeContext& c, const std::vector<Expr>& i, bool is_packed) {
  if (!is_packed) return weight_at(c, kBytes, i);
  std::vector<Expr> pair = i;
  Expr& word = pair[pair.size() - 3];
  const Expr shift = cast(ElementType::u8, floor_mod(word, Expr(2)) * Expr(4));
  word = floor_div(word, Expr(2));
  const Expr byte = weight_at(c, kBytes, pair);
  return tensor::Binary::make(BinaryOp::bit_and, tensor::Binary::make(BinaryOp::shr, byte, shift),
                              tensor::constant(ElementType::u8, 15));
}

// What the dot products of blocks are made of.
struct RoundedRows {
  Shape by_block;  // rows, and blocks in place of columns
  Expr block;
  Buffer peak, numbers, sums;  // the largest of a block, its bytes, their sum
};

RoundedRows rounded_rows(ComputeContext& c, double largest) {
  const Shape& x = c.input_type(0).shape;
  RoundedRows r{x, Expr(c.attributes().integer("block", 32)), {}, {}, {}};
  r.by_block.back() = shape_of_one(c, kScales)[1];
  auto inside = [&](Axes i, const Expr& at) {
    std::vector<Expr> place = to_vector(i);
    place.back() = place.back() * r.block + at;
    return place;
  };
  auto of_block = [&](Axes i) {
    std::vector<Expr> place = to_vector(i);
    place.back() = floor_div(place.back(), r.block);
    return place;
  };
  auto wide = [&](const std::vector<Expr>& i) { return cast(ElementType::f32, c.at(0, i)); };
  r.peak = c.builder.reduce("peak", ElementType::f32, r.by_block, {r.block}, Reducer::max,
                            [&](Axes s, Axes k) { return call(Intrinsic::abs, {wide(inside(s, k[0]))}); });
  const Buffer inverse = c.builder.compute("inverse", ElementType::f32, r.by_block, [&](Axes i) {
    const Expr most = load(r.peak, to_vector(i)), none = number_like(most, 0);
    return select(most > none, number_like(most, largest) / most, none);
  });
  r.numbers = c.builder.compute("rounded", ElementType::i8, x, [&](Axes i) {
    return cast(ElementType::i8, call(Intrinsic::round, {wide(to_vector(i)) * load(inverse, of_block(i))}));
  });
  r.sums = c.builder.reduce(
      "sums", ElementType::i32, r.by_block, {r.block}, Reducer::sum,
      [&](Axes s, Axes k) { return cast(ElementType::i32, load(r.numbers, inside(s, k[0]))); });
  return r;
}

// i32 [rows.., blocks, columns]
Buffer dots_of_blocks(ComputeContext& c, const RoundedRows& x) {
  const Shape words = shape_of_one(c, kBytes);
  const bool is_packed = c.attributes().integer("bits", 4) == 4;
  const Expr& width = words[2];
  Shape unpacked_shape = selecting_axes(c);
  unpacked_shape.insert(
      unpacked_shape.end(),
      {words[0], tensor::floor_div(c.input_type(0).shape.back(), Expr(kWord)), width, Expr(kWord)});
  Buffer weights;
  if (is_packed) {
    weights = c.builder.compute("weights", ElementType::u8, unpacked_shape,
                                [&](Axes i) { return number_at(c, to_vector(i), true); });
  }
  Shape shape = x.by_block;
  shape.push_back(c.output_type(0).shape.back());
  const Expr words_of_block = tensor::floor_div(x.block, Expr(kWord));
  return c.builder.reduce(
      "dots", ElementType::i32, shape, {words_of_block, Expr(kWord)}, Reducer::sum, [&](Axes s, Axes r) {
        const Expr &b = s[s.size() - 2], &n = s.back();
        std::vector<Expr> at(s.begin(), s.end() - 1);
        at.back() = b * x.block + r[0] * Expr(kWord) + r[1];
        const std::vector<Expr> place =
            of_item(c, s, {floor_div(n, width), b * words_of_block + r[0], floor_mod(n, width), r[1]});
        const Expr weight = is_packed ? load(weights, place) : number_at(c, place, false);
        return cast(ElementType::i32, load(x.numbers, at)) * cast(ElementType::i32, weight);
      });
}

void compute_rounded(ComputeContext& c) {
  constexpr double kLargest = 127;
  const TensorType& out = c.output_type(0);
  const Expr width = shape_of_one(c, kBytes)[2];
  const RoundedRows x = rounded_rows(c, kLargest);
  const Buffer dots = dots_of_blocks(c, x);
  const Buffer y = c.builder.reduce(
      "matmul", ElementType::f32, out.shape, {x.by_block.back()}, Reducer::sum, [&](Axes s, Axes r) {
        const Expr &b = r[0], &n = s.back();
        std::vector<Expr> row = to_vector(s), both = row;
        row.back() = b;
        both.insert(both.end() - 1, b);
        const std::vector<Expr> place = of_item(c, s, {floor_div(n, width), b, floor_mod(n, width)});
        const auto same = static_cast<double>(c.attributes().integer("zero", 0));
        const Expr zero = c.has_input(kZeros) ? cast(ElementType::i32, weight_at(c, kZeros, place))
                                              : tensor::constant(ElementType::i32, same);
        const Expr whole = cast(ElementType::f32, load(dots, both) - zero * load(x.sums, row)),
                   most = load(x.peak, row);
        return whole * weight_at(c, kScales, place) * (most * number_like(most, 1 / kLargest));
      });
  c.set_output(0, cast_buffer(c, y, out.element));
}

// ---- MayRound ----

void infer_same(InferContext& c) { c.set_output(0, c.input(0)); }

void compute_same(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(
      0, c.builder.compute("copy", out.element, out.shape, [&](Axes i) { return c.at(0, to_vector(i)); }));
}

OpDef may_round() {
  OpDef op = own_op("MayRound", FusionClass::elementwise, 1, infer_same, compute_same);
  op.is_view = true;
  op.axis_use = AxisUse::any;
  return op;
}

}  // namespace

std::span<const OpDef> mcc_matmul_nbits_ops() {
  static const OpDef ops[] = {
      own_op("MatMulNBits", FusionClass::contraction, 3, infer_matmul, compute_matmul),
      own_op("MatMulRounded", FusionClass::contraction, 3, infer_matmul, compute_rounded),
      may_round(),
  };
  return ops;
}

}  // namespace mcc::graph
