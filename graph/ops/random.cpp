#include "graph/ops/random.h"

#include <cmath>
#include <numbers>

#include "graph/ops/common.h"
#include "tensor/numeric.h"

namespace mcc::graph {
namespace {

// ---- Draw ----

void infer_draw(InferContext& c) {
  const int64_t stream = c.attributes().integer("stream", -1);
  if (expect(c, 0 <= stream && stream < kMostStreams, "stream: expected less than ", kMostStreams, ", got ",
             stream))
    c.set_output(0, {ElementType::i64, {2}});
}

// ---- Random ----

std::optional<ElementType> wide_attribute(InferContext& c, const std::string& name) {
  const std::optional<ElementType> element = element_attribute(c, name);
  if (element && !expect(c, *element == ElementType::f32 || *element == ElementType::f64, name,
                         ": expected f32 or f64, got ", to_text(*element)))
    return std::nullopt;
  return element;
}

void infer_random(InferContext& c) {
  if (!expect_shape(c, 0, {2}, "a key and a position")) return;
  const std::optional<Shape> shape = known_ints(c, 1, "shape");
  const std::optional<ElementType> element = wide_attribute(c, "dtype");
  if (!shape || !element) return;
  const std::string narrow = c.attributes().text("rounds_to", "f32");
  const std::optional<ElementType> result = parse_element_type(narrow);
  if (!expect(c, result && is_float(*result), "rounds_to: expected a float, got '", narrow, "'")) return;
  for (const Expr& dim : *shape) {
    const std::optional<int64_t> d = static_dim(dim);
    if (!expect(c, !d || *d >= 0, "a dimension of ", d.value_or(0))) return;
  }
  c.set_output(0, {*element, *shape});
}

// The largest number of the type below `high`, or `low` if that is none.
double largest_below(ElementType element, double low, double high) {
  const double end = tensor::round_float(element, high);
  if (std::isnan(end) || end <= low) return low;
  const uint64_t bits = tensor::float_to_bits(element, end);
  const uint64_t sign = uint64_t{1} << (bit_width(element) - 1);
  // Bits of positive numbers are in their order, those of negative ones the other way round.
  const double below = end == 0  ? tensor::float_from_bits(element, sign | 1)
                       : end > 0 ? tensor::float_from_bits(element, bits - 1)
                                 : tensor::float_from_bits(element, bits + 1);
  return std::max(low, below);
}

// Random bits of each element.
struct Bits {
  Expr counter, position, key;

  // The first or the last two words of the block.
  Expr pair(bool is_rest) const {
    return call(is_rest ? Intrinsic::philox_rest : Intrinsic::philox, {counter, position, key});
  }
};

Expr shifted_right(const Expr& x, int count) {
  return binary(tensor::BinaryOp::shr, x, tensor::constant_int(x.type(), count));
}

// In [0, 1): as many bits as the type has digits.
Expr unit_interval(ElementType element, const Bits& bits) {
  const Expr pair = bits.pair(false);
  if (element == ElementType::f64)
    return cast(element, cast(ElementType::i64, shifted_right(pair, 11))) *
           tensor::constant(element, 0x1p-53);
  const Expr word = cast(ElementType::u32, pair);
  return cast(element, cast(ElementType::i32, shifted_right(word, 8))) * tensor::constant(element, 0x1p-24);
}

// Box and Muller: A Note on the Generation of Random Normal Deviates (1958), one of the two numbers. The radius is made of 32 bits (53
// of f64) and never infinite: no number is beyond 6.8 (8.7).
Expr standard_normal(ElementType element, const Bits& bits) {
  const bool is_double = element == ElementType::f64;
  auto number = [&](double x) { return tensor::constant(element, x); };
  const Expr pair = bits.pair(false);
  const Expr uniform =
      is_double
          ? cast(element, cast(ElementType::i64, shifted_right(pair, 11))) * number(0x1p-53) + number(0x1p-54)
          : cast(element, cast(ElementType::u32, pair)) * number(0x1p-32) + number(0x1p-33);
  const Expr radius = call(Intrinsic::sqrt, {number(-2) * call(Intrinsic::log, {uniform})});
  const Expr turn = is_double ? cast(element, cast(ElementType::i64, bits.pair(true))) *
                                    number(2 * std::numbers::pi * 0x1p-64)
                              : cast(element, cast(ElementType::i32, shifted_right(pair, 32))) *
                                    number(2 * std::numbers::pi * 0x1p-32);
  return radius * call(Intrinsic::cos, {turn});
}

Expr uniform(ComputeContext& c, ElementType element, const Bits& bits) {
  const double low = tensor::round_float(element, c.attributes().number("low", 0)),
               high = tensor::round_float(element, c.attributes().number("high", 1));
  const ElementType result =
      c.attributes().has("rounds_to") ? *parse_element_type(c.attributes().text("rounds_to", "")) : element;
  const Expr unit = unit_interval(element, bits);
  const bool is_unit = low == 0 && high == 1;
  if (is_unit && result == element) return unit;
  const Expr x =
      is_unit ? unit : tensor::constant(element, low) + unit * tensor::constant(element, high - low);
  // Rounding may give the end of the interval, which is not part of it.
  return tensor::min(x, tensor::constant(element, largest_below(result, low, high)));
}

void compute_random(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto word = [&](int64_t i) { return cast(ElementType::u64, c.at(0, {Expr(i)})); };
  c.set_output(0, c.builder.compute("random", out.element, out.shape, [&](Axes i) {
    const Bits bits{cast(ElementType::u64, linear_index(out.shape, to_vector(i))), word(1), word(0)};
    if (!c.attributes().has("scale")) return uniform(c, out.element, bits);
    const double mean = c.attributes().number("mean", 0), scale = c.attributes().number("scale", 1);
    const Expr x = standard_normal(out.element, bits);
    if (mean == 0 && scale == 1) return x;
    return tensor::constant(out.element, mean) + x * tensor::constant(out.element, scale);
  }));
}

}  // namespace

bool is_draw(const OpDef& op) { return op.domain == "mcc" && op.name == "Draw"; }

Constant draw(const Node& node, const Draws& draws) {
  const int64_t key = node.attributes.integer("seed", static_cast<int64_t>(draws.seed));
  const auto execution = static_cast<int64_t>(draws.execution & ((uint64_t{1} << kExecutionBits) - 1));
  return Constant::ints({key, node.attributes.integer("stream", 0) << kExecutionBits | execution});
}

std::span<const OpDef> random_ops() {
  static const OpDef ops[] = {
      own_op("Draw", FusionClass::host, 0, infer_draw, nullptr),
      [] {
        OpDef op = own_op("Random", FusionClass::injective, 2, infer_random, compute_random);
        op.constant_inputs = 0b10;
        return op;
      }(),
  };
  return ops;
}

}  // namespace mcc::graph
