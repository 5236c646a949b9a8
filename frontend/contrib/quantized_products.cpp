// Products of bytes: in real numbers between DequantizeLinear and QuantizeLinear where scales are known, as MatMulInteger where
// activations are quantised at run time; of weights in groups of 2, 4 or 8 bits with f32.
#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// Scales and zero points i and i + 1 of weights: one for all, or one for each of `columns`.
bool expect_columns(Expansion& e, std::initializer_list<int> inputs, int64_t columns) {
  for (int i : inputs)
    if (e.has(i) && e.count(i) != 1 && !e.expect_shape(i, {columns})) return false;
  return true;
}

// ---- QGemm: alpha * A B + C, where C is of integers with the product's scale ----

void gemm(Expansion& e) {
  constexpr int kA = 0, kB = 3, kC = 6, kY = 7;
  if (!e.expect_rank(kA, 2) || !e.expect_rank(kB, 2) || !e.expect_single({1, 2, kY, kY + 1}) ||
      !e.expect(e.has(kY) == e.has(kY + 1), "inputs 'y_scale' and 'y_zero_point': expected both or none"))
    return;
  const int64_t columns_axis = e.integer("transB") != 0 ? 0 : 1;
  if (!expect_columns(e, {kB + 1, kB + 2}, e.shape(kB)[static_cast<size_t>(columns_axis)])) return;
  Operand b_scale = e.in(kB + 1);
  if (e.number("alpha") != 1) b_scale = e.op("Mul", {b_scale, e.scalar(ElementType::f32, e.number("alpha"))});
  Operand b = e.op("DequantizeLinear", {e.in(kB), b_scale, e.in(kB + 2)}, {{"axis", columns_axis}}), c;
  if (e.has(kC)) c = e.op("Mul", {e.converted(e.in(kC), ElementType::f32), e.op("Mul", {e.in(kA + 1), b_scale})});
  Operand y = e.op("Gemm", {dequantized(e, kA), b, c}, e.passed_on({"transA", "transB"}));
  e.result(0, e.has(kY) ? quantized(e, y, kY, e.element(kA)) : y);
}

// ---- Sums of integers, scaled ----

void integer_to_float(Expansion& e) {
  if (!e.expect_single({2, 4}) || !e.expect(e.rank(1) >= 1, "input 'B': expected a matrix, got one element")) return;
  if (!expect_columns(e, {3, 5}, e.last_size(1))) return;
  e.result(0, integer_product(e, {e.in(0), e.in(1), e.in(2), e.in(3), e.in(4), e.in(5), e.in(6), e.element(2)}));
}

void dynamic(Expansion& e) {
  if (!e.expect(e.rank(1) >= 1, "input 'B': expected a matrix, got one element") || !expect_columns(e, {2, 3}, e.last_size(1)))
    return;
  std::vector<Operand> a = e.ops("DynamicQuantizeLinear", {e.in(0)}, {}, 3);
  e.result(0, integer_product(e, {a[0], e.in(1), a[1], e.in(2), a[2], e.in(3), e.in(4), ElementType::f32}));
}

// ---- Weights in blocks of neighbours ----

bool expect_blocks(Expansion& e) {
  const int64_t block = e.integer("block_size");
  return e.expect(block >= 16 && (block & (block - 1)) == 0,
                  "attribute 'block_size': expected a power of two from 16 on, got ", block);
}

// K and N, whose product is a number of weights.
bool expect_matrix_sizes(Expansion& e) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t k = e.integer("K"), n = e.integer("N");
  return e.expect(0 < k && 0 < n, "attributes 'K' and 'N': expected positive numbers, got ", k, " and ", n) &&
         e.expect(k < kMost && n < kMost, "attributes 'K' and 'N': expected less than ", kMost, ", got ", k,
                  " and ", n);
}

// ---- MatMulNBits: weights [N, blocks of K], several to a byte, the first in its lowest bits ----

void few_bits(Expansion& e) {
  constexpr int kWeights = 1, kScales = 2, kZeros = 3, kGroups = 4, kBias = 5;
  const int64_t k = e.integer("K"), n = e.integer("N"), bits = e.integer("bits"), block = e.integer("block_size");
  if (!e.supports(bits == 2 || bits == 4 || bits == 8, "attribute 'bits': expected 2, 4 or 8, got ", bits) ||
      !expect_blocks(e) || !expect_matrix_sizes(e) ||
      !e.supports(!e.has(kGroups), "input 'g_idx' is not supported") ||
      !e.supports_only("weight_prepacked", 0))
    return;
  const int64_t blocks = (k + block - 1) / block, packed_zeros = (blocks * bits + 7) / 8;
  const std::vector<int64_t> packed{n, blocks, block * bits / 8};
  if (!e.expect(e.count(kWeights) == n * blocks * packed[2], "input 'B': expected shape ", shape_text(packed), ", got ",
                shape_text(e.shape(kWeights))) ||
      !e.expect(e.count(kScales) == n * blocks, "input 'scales': expected shape ", shape_text({n, blocks}), ", got ",
                shape_text(e.shape(kScales))))
    return;
  const bool has_real_zeros = e.has(kZeros) && e.element(kZeros) != ElementType::u8;
  const std::vector<int64_t> zeros{n, has_real_zeros ? blocks : packed_zeros};
  if (e.has(kZeros) &&
      !e.expect(e.count(kZeros) == zeros[0] * zeros[1], "input 'zero_points': expected shape ",
                shape_text(zeros), ", got ", shape_text(e.shape(kZeros))))
    return;
  Operand weights = unpacked(e, e.reshaped(e.in(kWeights), packed), packed, bits);
  if (has_real_zeros) {
    const ElementType real = e.element(0);
    const std::vector<int64_t> each_block{n, blocks, 1};
    weights = e.op("Sub", {e.converted(weights, real), e.reshaped(e.in(kZeros), each_block)});
    weights = e.op("Mul", {weights, e.reshaped(e.in(kScales), each_block)});
    weights = e.transposed(e.slice(e.reshaped(weights, {n, blocks * block}), 1, 0, k), {1, 0});
  } else {
    // What says that they have few bits, so that they may keep them.
    const ElementType number = number_of_bits(bits);
    weights = e.transposed(e.slice(e.reshaped(weights, {n, blocks * block}), 1, 0, k), {1, 0});
    Operand zero =
        e.has(kZeros)
            ? e.transposed(e.slice(unpacked(e, e.reshaped(e.in(kZeros), zeros), zeros, bits), 1, 0, blocks),
                           {1, 0})
            : e.op("Expand", {e.scalar(ElementType::u8, static_cast<double>(int64_t{1} << (bits - 1))),
                              e.ints({blocks, n})});
    weights = e.op("DequantizeLinear",
                   {e.converted(weights, number),
                    e.transposed(e.reshaped(e.in(kScales), {n, blocks}), {1, 0}), e.converted(zero, number)},
                   {{"axis", int64_t{0}}, {"block_size", block}});
  }
  Operand x = e.in(0);
  if (e.integer("accuracy_level") == kBytesWillDo) x = e.own("MayRound", {x});
  Operand y = e.op("MatMul", {x, weights});
  e.result(0, e.has(kBias) ? e.op("Add", {y, e.in(kBias)}) : y);
}

// ---- MatMulBnb4: weights [N, K] as places in a list of 16 levels, two to a byte, the first in its upper bits; blocks of neighbours in that
// order have a scale in common, whatever rows they are of ----

void listed_levels(Expansion& e) {
  constexpr int kWeights = 1, kScales = 2;
  constexpr int64_t kNormalFloat = 1;
  // Of FP4 and NF4 (Dettmers et al., QLoRA, 2023).
  static const std::vector<double> fp4{
      0,    5.208333333e-03,  0.66666667,  1,  0.33333333,  0.5,  0.16666667,  0.25,
      -0.0, -5.208333333e-03, -0.66666667, -1, -0.33333333, -0.5, -0.16666667, -0.25};
  static const std::vector<double> nf4{-1,
                                       -0.6961928009986877,
                                       -0.5250730514526367,
                                       -0.39491748809814453,
                                       -0.28444138169288635,
                                       -0.18477343022823334,
                                       -0.09105003625154495,
                                       0,
                                       0.07958029955625534,
                                       0.16093020141124725,
                                       0.24611230194568634,
                                       0.33791524171829224,
                                       0.44070982933044434,
                                       0.5626170039176941,
                                       0.7229568362236023,
                                       1};
  const int64_t k = e.integer("K"), n = e.integer("N"), block = e.integer("block_size"),
                kind = e.integer("quant_type");
  if (!e.expect(kind == 0 || kind == kNormalFloat, "attribute 'quant_type': expected 0 or 1, got ", kind) ||
      !expect_blocks(e) || !expect_matrix_sizes(e))
    return;
  const int64_t count = k * n, bytes = (count + 1) / 2, blocks = (count + block - 1) / block;
  if (!e.expect(e.count(kWeights) == bytes, "input 'B': expected ", bytes, " bytes, got shape ",
                shape_text(e.shape(kWeights))) ||
      !e.expect(e.count(kScales) == blocks, "input 'absmax': expected ", blocks, " numbers, got shape ",
                shape_text(e.shape(kScales))))
    return;
  Operand packed = e.reshaped(e.in(kWeights), {bytes, 1});
  Operand places =
      e.op("BitShift", {packed, e.tensor(ElementType::u8, {2}, {4, 0})}, {{"direction", "RIGHT"}});
  places = e.op("BitwiseAnd", {places, e.scalar(ElementType::u8, 15)});
  places = e.slice(e.reshaped(places, {2 * bytes}), 0, 0, count);
  const ElementType real = e.element(0);
  Operand levels = e.converted(e.reals(ElementType::f32, {16}, kind == kNormalFloat ? nf4 : fp4), real);
  Operand weights = e.op("Gather", {levels, e.converted(places, ElementType::i32)});
  const bool is_whole = count % block == 0;
  if (!is_whole) weights = e.op("Pad", {weights, e.ints({0, blocks * block - count})});
  weights = e.op("Mul", {e.reshaped(weights, {blocks, block}), e.reshaped(e.in(kScales), {blocks, 1})});
  if (!is_whole) weights = e.slice(e.reshaped(weights, {blocks * block}), 0, 0, count);
  weights = e.reshaped(weights, {n, k});
  e.result(0, e.op("MatMul", {e.in(0), e.integer("transB") != 0 ? e.transposed(weights, {1, 0}) : weights}));
}

// ---- GatherBlockQuantized: rows of such weights, [N, ..., K], as real numbers ----

void gather_few_bits(Expansion& e) {
  constexpr int kIndices = 1, kScales = 2, kZeros = 3;
  const int64_t bits = e.integer("bits"), block = e.integer("block_size"), rank = e.rank(0);
  const std::vector<int64_t> data = e.shape(0);
  if (!e.supports(e.element(0) == ElementType::u8, "data of ", mcc::to_text(e.element(0)),
                  " is not supported: expected u8") ||
      !e.supports(bits == 2 || bits == 4 || bits == 8, "attribute 'bits': expected 2, 4 or 8, got ", bits) ||
      !expect_blocks(e) ||
      !e.expect(rank >= 2, "input 'data': expected at least 2 dimensions, got shape ", shape_text(data)))
    return;
  for (const auto& [name, wanted] :
       {std::pair{"gather_axis", int64_t{0}}, std::pair{"quantize_axis", rank - 1}}) {
    const std::optional<int64_t> axis = e.expect_axis(name);
    if (!axis ||
        !e.supports(*axis == wanted, "attribute '", name, "': only ", wanted, " is supported, got ", *axis))
      return;
  }
  const int64_t columns = data.back() * 8 / bits, blocks = columns / block;
  std::vector<int64_t> scales = data;
  scales.back() = blocks;
  if (!e.supports(columns % block == 0, "rows of ", columns,
                  " numbers are not supported: expected whole blocks of ", block) ||
      !e.expect_shape(kScales, scales))
    return;
  // Of a tensor [N, ..., last]: the rows that are taken, [indices..., ..., last].
  auto taken = [&](int i) { return e.op("Gather", {e.in(i), e.in(kIndices)}, {{"axis", int64_t{0}}}); };
  auto shape_of = [&](std::initializer_list<int64_t> inner) {
    std::vector<int64_t> shape = e.sizes(kIndices);
    shape.insert(shape.end(), data.begin() + 1, data.end() - 1);
    shape.insert(shape.end(), inner);
    return shape;
  };
  const ElementType real = e.element(kScales);
  Operand zero = e.scalar(real, static_cast<double>(int64_t{1} << (bits - 1)));
  if (e.has(kZeros)) {
    const int64_t packed = (blocks * bits + 7) / 8;
    std::vector<int64_t> zeros = data;
    zeros.back() = packed;
    if (!e.supports(e.element(kZeros) == ElementType::u8, "zero points of ", mcc::to_text(e.element(kZeros)),
                    " are not supported: expected u8") ||
        !e.expect_shape(kZeros, zeros))
      return;
    const std::vector<int64_t> shape = shape_of({packed});
    zero =
        e.slice(unpacked(e, taken(kZeros), shape, bits), static_cast<int64_t>(shape.size()) - 1, 0, blocks);
    zero = e.reshaped(e.converted(zero, real), shape_of({blocks, 1}));
  }
  Operand numbers = e.converted(unpacked(e, taken(0), shape_of({data.back()}), bits), real);
  numbers = e.op("Sub", {e.reshaped(numbers, shape_of({blocks, block})), zero});
  e.result(0, e.reshaped(e.op("Mul", {numbers, e.reshaped(taken(kScales), shape_of({blocks, 1}))}),
                         shape_of({columns})));
}

}  // namespace

std::span<const ContribOp> quantized_product_ops() {
  static const std::vector<ContribOp> ops{
      {"QGemm",
       "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?",
       "Y",
       {{"transA", 0}, {"transB", 0}, {"alpha", 1.0f}},
       gemm},
      {"MatMulIntegerToFloat",
       "A B a_scale b_scale a_zero_point? b_zero_point? bias?",
       "Y",
       {},
       integer_to_float},
      {"DynamicQuantizeMatMul", "A B b_scale b_zero_point? bias?", "Y", {}, dynamic},
      {"MatMulNBits",
       "A B scales zero_points? g_idx? bias?",
       "Y",
       {required("K", AttributeProto::INT),
        required("N", AttributeProto::INT),
        {"bits", 4},
        required("block_size", AttributeProto::INT),
        {"accuracy_level", 0},
        {"weight_prepacked", 0}},
       few_bits},
      {"MatMulBnb4",
       "A B absmax",
       "Y",
       {required("K", AttributeProto::INT),
        required("N", AttributeProto::INT),
        required("block_size", AttributeProto::INT),
        required("quant_type", AttributeProto::INT),
        {"training_mode", 0},
        {"transB", 1}},
       listed_levels},
      {"GatherBlockQuantized",
       "data indices scales zero_points?",
       "output",
       {{"bits", 4}, {"block_size", 128}, {"gather_axis", 0}, {"quantize_axis", 1}},
       gather_few_bits},
  };
  return ops;
}

}  // namespace mcc::frontend
