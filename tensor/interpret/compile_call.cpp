// Calls of intrinsics.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "tensor/interpret/lanewise.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/philox.h"

namespace mcc::tensor::interpreter {
namespace {

// sums[lane] + left[0..n] . right[n * lane..], in i32 or f32.
struct DotCode final : ExprCode {
  DotCode(Operand c, Operand a, Operand b, ElementType sum)
      : sums(c), left(a), right(b), of_floats(is_float(sum)) {}
  Value scalar(Value* frame) const override {
    Value out;
    vector(frame, &out);
    return out;
  }
  void vector(Value* frame, Value* out) const override {
    const Lanes c = sums.get_lanes(frame), a = left.get_lanes(frame), b = right.get_lanes(frame);
    const int n = left.lanes;
    for (int lane = 0; lane < sums.lanes; ++lane) {
      if (of_floats) {
        double sum = c[lane].f;
        for (int q = 0; q < n; ++q)
          sum += a[q].f * b[n * lane + q].f;
        out[lane] = float_value(static_cast<float>(sum));
        continue;
      }
      int64_t sum = c[lane].i;
      for (int q = 0; q < n; ++q)
        sum += a[q].i * b[n * lane + q].i;
      out[lane] = int_value(wrap_int(ElementType::i32, sum));
    }
  }
  Operand sums, left, right;
  bool of_floats;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double inverse_sqrt(double x) { return 1.0 / std::sqrt(x); }
double exp2_or_zero(double x) { return x < -126 ? 0 : std::exp2(x); }
double or_zero(double x) { return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; }
double reciprocal_or_zero(double x) { return or_zero(1.0 / or_zero(x)); }

struct FloatFunction {
  Intrinsic name;
  double (*of)(double);
};
const FloatFunction kFloatFunctions[] = {
    {Intrinsic::exp, std::exp},
    {Intrinsic::exp2, std::exp2},
    {Intrinsic::log, std::log},
    {Intrinsic::log2, std::log2},
    {Intrinsic::log1p, std::log1p},
    {Intrinsic::expm1, std::expm1},
    {Intrinsic::sqrt, std::sqrt},
    {Intrinsic::rsqrt, inverse_sqrt},
    {Intrinsic::erf, std::erf},
    {Intrinsic::tanh, std::tanh},
    {Intrinsic::sigmoid, sigmoid},
    {Intrinsic::sin, std::sin},
    {Intrinsic::cos, std::cos},
    {Intrinsic::tan, std::tan},
    {Intrinsic::asin, std::asin},
    {Intrinsic::acos, std::acos},
    {Intrinsic::atan, std::atan},
    {Intrinsic::sinh, std::sinh},
    {Intrinsic::cosh, std::cosh},
    {Intrinsic::asinh, std::asinh},
    {Intrinsic::acosh, std::acosh},
    {Intrinsic::atanh, std::atanh},
    {Intrinsic::floor, std::floor},
    {Intrinsic::ceil, std::ceil},
    {Intrinsic::trunc, std::trunc},
    {Intrinsic::round, std::nearbyint},
    {Intrinsic::exp2_approx, exp2_or_zero},
    {Intrinsic::reciprocal_approx, reciprocal_or_zero},
    {Intrinsic::rsqrt_approx, inverse_sqrt},
};

}  // namespace

// Computed in double, then rounded.
Operand Compiler::float_function(const Call& n) {
  if (n.function == Intrinsic::fma) return fused_multiply_add(n);
  if (n.function == Intrinsic::mul_sum) return multiply_by_sum(n);
  const ElementType element = n.type.element;
  if (!is_float(element)) fail_type(to_text(n.function), element);
  if (n.function == Intrinsic::pow) {
    const Operand base = expr(n.args[0]), exponent = expr(n.args[1]);
    return with_rounding(element, [&](auto round) {
      return map([round](Value x, Value y) { return float_value(round(std::pow(x.f, y.f))); }, base, exponent);
    });
  }
  const auto* row = std::find_if(std::begin(kFloatFunctions), std::end(kFloatFunctions),
                                 [&](const FloatFunction& f) { return f.name == n.function; });
  MCC_CHECK(row != std::end(kFloatFunctions), "no function for ", to_text(n.function));
  const Operand value = expr(n.args[0]);
  return with_rounding(element, [&](auto round) {
    return map([function = row->of, round](Value x) { return float_value(round(function(x.f))); }, value);
  });
}

Operand Compiler::fused_multiply_add(const Call& n) {
  const ElementType element = n.type.element;
  const Operand a = expr(n.args[0]), b = expr(n.args[1]), c = expr(n.args[2]);
  if (!is_float(element)) return binary(BinaryOp::add, element, binary(BinaryOp::mul, element, a, b), c);
  return map([element](Value x, Value y,
                       Value z) { return float_value(tensor::fused_multiply_add(element, x.f, y.f, z.f)); },
             a, b, c);
}

Operand Compiler::multiply_by_sum(const Call& n) {
  const ElementType element = n.type.element;
  const Operand a = expr(n.args[0]), b = expr(n.args[1]), c = expr(n.args[2]);
  return with_rounding(element, [&](auto round) {
    return map([element, round](Value x, Value y, Value z) {
                 return float_value(tensor::fused_multiply_add(element, x.f, y.f, round(x.f * z.f)));
               },
               a, b, c);
  });
}

Operand Compiler::absolute(const Call& n) {
  const ElementType element = n.type.element;
  const Operand value = expr(n.args[0]);
  if (is_float(element)) return map([](Value x) { return float_value(std::fabs(x.f)); }, value);
  if (!is_signed_int(element)) return value;
  return map(
      [element](Value x) {
        return int_value(
            wrap_int(element, x.i < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(x.i)) : x.i));
      },
      value);
}

Operand Compiler::bit_cast(const Call& n) {
  const ElementType from = n.args[0].element(), to = n.type.element;
  if (bit_width(from) != bit_width(to) || n.args[0].lanes() != n.type.lanes) {
    throw Fault{text("bit_cast from ", to_text(n.args[0].type()), " to ", to_text(n.type))};
  }
  return map(
      [from, to](Value x) {
        const uint64_t bits = is_float(from) ? float_to_bits(from, x.f) : static_cast<uint64_t>(x.i);
        return is_float(to) ? float_value(float_from_bits(to, bits))
                            : int_value(wrap_int(to, static_cast<int64_t>(bits)));
      },
      expr(n.args[0]));
}

Operand Compiler::dot(const Call& n) {
  const ElementType left = left_element(n.function), right = right_element(n.function);
  if (n.type.element != sum_element(n.function) || n.args[1].type() != Type{left, dot_elements(n.function)} ||
      n.args[2].type() != Type{right, dot_elements(n.function) * n.type.lanes}) {
    throw Fault{text(to_text(n.function), " of ", to_text(n.args[0].type()), ", ", to_text(n.args[1].type()), " and ",
                     to_text(n.args[2].type()))};
  }
  return add_expr(std::make_unique<DotCode>(expr(n.args[0]), expr(n.args[1]), expr(n.args[2]), n.type.element),
                  n.type.lanes);
}

Operand Compiler::random_bits(const Call& n) {
  if (n.type.element != ElementType::u64) fail_type(to_text(n.function), n.type.element);
  const size_t first = n.function == Intrinsic::philox ? 0 : 2;
  return map(
      [first](Value a, Value b, Value key) {
        const std::array<uint32_t, 4> words =
            philox(static_cast<uint64_t>(a.i), static_cast<uint64_t>(b.i), static_cast<uint64_t>(key.i));
        return int_value(static_cast<int64_t>(uint64_t{words[first + 1]} << 32 | words[first]));
      },
      expr(n.args[0]), expr(n.args[1]), expr(n.args[2]));
}

Operand Compiler::compile(const Call& n) {
  if (is_exchange(n.function)) return exchange(n);
  if (is_statement(n.function)) throw Fault{text(to_text(n.function), " is a statement, it has no value")};
  const ElementType element = n.args[0].element();
  const auto float_test = [&](bool (*test)(double)) {
    if (!is_float(element)) fail_type(to_text(n.function), element);
    return map([test](Value x) { return int_value(test(x.f)); }, expr(n.args[0]));
  };
  switch (n.function) {
#define X(name) case Intrinsic::name:
    MCC_EXPANDED_INTRINSICS(X)
    MCC_FLOAT_INTRINSICS(X)
#undef X
      return float_function(n);
      case Intrinsic::philox:
      case Intrinsic::philox_rest:
        return random_bits(n);
      case Intrinsic::abs:
        return absolute(n);
      case Intrinsic::is_nan:
        return float_test([](double x) { return std::isnan(x); });
      case Intrinsic::is_inf:
        return float_test([](double x) { return std::isinf(x); });
      case Intrinsic::logical_not:
        if (!is_bool(element)) fail_type(to_text(n.function), element);
        return map([](Value x) { return int_value(x.i == 0); }, expr(n.args[0]));
      case Intrinsic::bit_not:
        if (!is_int(element)) fail_type(to_text(n.function), element);
        return map([element](Value x) { return int_value(wrap_int(element, ~x.i)); }, expr(n.args[0]));
      case Intrinsic::popcount: {
        if (!is_int(element)) fail_type(to_text(n.function), element);
        const uint64_t mask = ~uint64_t{0} >> (64 - bit_width(element));
        return map(
            [element, mask](Value x) {
              return int_value(wrap_int(element, std::popcount(static_cast<uint64_t>(x.i) & mask)));
            },
            expr(n.args[0]));
    }
    case Intrinsic::bit_cast:
      return bit_cast(n);
    case Intrinsic::likely:
      return expr(n.args[0]);
    case Intrinsic::dot4_u8i8:
    case Intrinsic::dot4_i8u8:
    case Intrinsic::dot4_i8i8:
    case Intrinsic::dot2_i16i8:
    case Intrinsic::dot2_bf16:
      return dot(n);
#define X(name) case Intrinsic::name:
      MCC_THREAD_INTRINSICS(X)
      MCC_TILE_INTRINSICS(X)
#undef X
    case Intrinsic::prefetch:  // above
      break;
  }
  MCC_UNREACHABLE("unknown intrinsic");
}

}  // namespace mcc::tensor::interpreter
