#include <cstring>

#include "tensor/interpret/compile.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"

namespace mcc::tensor::interpreter {
namespace {

// ---- Operations lane by lane ----

template <class F>
struct Map1 final : ExprCode {
  Map1(F g, Operand x) : f(g), a(x) {}
  Value scalar(Value* frame) const override { return f(a.get(frame)); }
  void vector(Value* frame, Value* out) const override {
    const Lanes x = a.get_lanes(frame);
    for (int k = 0; k < a.lanes; ++k)
      out[k] = f(x[k]);
  }
  F f;
  Operand a;
};

template <class F>
struct Map2 final : ExprCode {
  Map2(F g, Operand x, Operand y) : f(g), a(x), b(y) {}
  Value scalar(Value* frame) const override {
    const Value x = a.get(frame);
    return f(x, b.get(frame));
  }
  void vector(Value* frame, Value* out) const override {
    const Lanes x = a.get_lanes(frame), y = b.get_lanes(frame);
    for (int k = 0; k < a.lanes; ++k)
      out[k] = f(x[k], y[k]);
  }
  F f;
  Operand a, b;
};

template <class F>
struct Map3 final : ExprCode {
  Map3(F g, Operand x, Operand y, Operand z) : f(g), a(x), b(y), c(z) {}
  Value scalar(Value* frame) const override {
    const Value x = a.get(frame), y = b.get(frame);
    return f(x, y, c.get(frame));
  }
  void vector(Value* frame, Value* out) const override {
    const Lanes x = a.get_lanes(frame), y = b.get_lanes(frame), z = c.get_lanes(frame);
    for (int k = 0; k < a.lanes; ++k)
      out[k] = f(x[k], y[k], z[k]);
  }
  F f;
  Operand a, b, c;
};

// ---- The other nodes ----

struct SelectCode final : ExprCode {
  Value scalar(Value* frame) const override {
    return condition.get(frame).i ? on_true.get(frame) : on_false.get(frame);
  }
  void vector(Value* frame, Value* out) const override {
    if (condition.lanes == 1) {
      const Lanes taken = (condition.get(frame).i ? on_true : on_false).get_lanes(frame);
      for (int k = 0; k < on_true.lanes; ++k)
        out[k] = taken[k];
      return;
    }
    const Lanes c = condition.get_lanes(frame), x = on_true.get_lanes(frame), y = on_false.get_lanes(frame);
    for (int k = 0; k < on_true.lanes; ++k)
      out[k] = c[k].i ? x[k] : y[k];
  }
  Operand condition, on_true, on_false;
};

struct RampCode final : ExprCode {
  void vector(Value* frame, Value* out) const override {
    const auto first = static_cast<uint64_t>(base.get(frame).i),
               step = static_cast<uint64_t>(stride.get(frame).i);
    for (int k = 0; k < lanes; ++k) {
      out[k] = int_value(wrap_int(element, static_cast<int64_t>(first + static_cast<uint64_t>(k) * step)));
    }
  }
  Operand base, stride;
  ElementType element;
  int lanes;
};

struct BroadcastCode final : ExprCode {
  void vector(Value* frame, Value* out) const override { std::fill_n(out, lanes, value.get(frame)); }
  Operand value;
  int lanes;
};

struct ShuffleCode final : ExprCode {
  Value scalar(Value* frame) const override {
    Value out;
    vector(frame, &out);
    return out;
  }
  void vector(Value* frame, Value* out) const override {
    for (size_t v = 0; v < vectors.size(); ++v)
      parts[v] = vectors[v].get_lanes(frame);
    for (const auto& [vector, lane] : picks)
      *out++ = parts[vector][lane];
  }
  std::vector<Operand> vectors;
  std::vector<std::pair<size_t, int>> picks;  // vector and its lane, for each lane of the result
  mutable std::vector<Lanes> parts;
};

// sums[lane] + left[0..4] . right[4 * lane..], in i32.
struct Dot4Code final : ExprCode {
  Dot4Code(Operand c, Operand a, Operand b) : sums(c), left(a), right(b) {}
  Value scalar(Value* frame) const override {
    Value out;
    vector(frame, &out);
    return out;
  }
  void vector(Value* frame, Value* out) const override {
    const Lanes c = sums.get_lanes(frame), a = left.get_lanes(frame), b = right.get_lanes(frame);
    for (int lane = 0; lane < sums.lanes; ++lane) {
      int64_t sum = c[lane].i;
      for (int q = 0; q < 4; ++q)
        sum += a[q].i * b[4 * lane + q].i;
      out[lane] = int_value(wrap_int(ElementType::i32, sum));
    }
  }
  Operand sums, left, right;
};

template <class F>
struct ReduceCode final : ExprCode {
  ReduceCode(F g, Operand v) : f(g), value(v) {}
  Value scalar(Value* frame) const override {
    const Lanes lanes = value.get_lanes(frame);
    Value out = lanes[0];
    for (int k = 1; k < value.lanes; ++k)
      out = f(out, lanes[k]);
    return out;
  }
  F f;
  Operand value;
};

template <ElementType element>
Value read_element(const std::byte* data, int64_t index) {
  // The caller's memory need not be aligned.
  const auto read = [&]<class T>(T x) {
    std::memcpy(&x, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  };
  if constexpr (element == ElementType::boolean) return int_value(read(uint8_t{}) != 0);
  if constexpr (element == ElementType::i4) return int_value(wrap_int(element, read(int8_t{})));
  if constexpr (element == ElementType::u4) return int_value(wrap_int(element, read(uint8_t{})));
  if constexpr (element == ElementType::i8) return int_value(read(int8_t{}));
  if constexpr (element == ElementType::i16) return int_value(read(int16_t{}));
  if constexpr (element == ElementType::i32) return int_value(read(int32_t{}));
  if constexpr (element == ElementType::i64 || element == ElementType::u64) return int_value(read(int64_t{}));
  if constexpr (element == ElementType::u8) return int_value(read(uint8_t{}));
  if constexpr (element == ElementType::u16) return int_value(read(uint16_t{}));
  if constexpr (element == ElementType::u32) return int_value(read(uint32_t{}));
  if constexpr (element == ElementType::f8e4m3 || element == ElementType::f8e5m2) {
    return float_value(float_from_bits(element, read(uint8_t{})));
  }
  if constexpr (element == ElementType::bf16 || element == ElementType::f16) {
    return float_value(float_from_bits(element, read(uint16_t{})));
  }
  if constexpr (element == ElementType::f32 || element == ElementType::tf32) {
    return float_value(static_cast<double>(read(float{})));
  }
  if constexpr (element == ElementType::f64) return float_value(read(double{}));
  if constexpr (element == ElementType::string) MCC_UNREACHABLE("strings are not computed with");
}

template <ElementType element>
struct LoadCode final : LoadBase {
  using LoadBase::LoadBase;
  Value scalar(Value* frame) const override {
    const bool is_active = access.is_active(frame);
    const int64_t index = is_active ? access.element(frame) : -1;
    if (is_copied) elements[0] = index;
    return is_active ? read(frame, index) : Value{.i = 0};
  }
  void vector(Value* frame, Value* out) const override {
    access.elements(frame, elements.data());
    for (size_t k = 0; k < elements.size(); ++k)
      out[k] = elements[k] < 0 ? Value{.i = 0} : read(frame, elements[k]);
  }
  Value read(Value* frame, int64_t index) const {
    if (!is_copied) access.check_written(frame, index);
    access.note_read(frame, index);
    return read_element<element>(access.memory->data, index);
  }
};

// ---- Rounding and conversion ----

struct NoRounding {
  double operator()(double x) const { return x; }
};
struct RoundToF32 {
  double operator()(double x) const { return static_cast<double>(static_cast<float>(x)); }
};
struct RoundToNarrow {
  FloatFormat format;
  double operator()(double x) const { return round_narrow(format, x); }
};

double int_to_float(ElementType from, ElementType to, int64_t value) {
  const auto large = static_cast<uint64_t>(value);
  if (to == ElementType::f32) {
    return static_cast<double>(from == ElementType::u64 ? static_cast<float>(large)
                                                        : static_cast<float>(value));
  }
  return round_float(to, from == ElementType::u64 ? static_cast<double>(large) : static_cast<double>(value));
}

int64_t float_to_int(ElementType to, IntLimits limits, double value) {
  if (std::isnan(value)) return 0;
  if (to == ElementType::u64) {
    if (value <= 0) return 0;
    return value >= 0x1p64 ? limits.high : static_cast<int64_t>(static_cast<uint64_t>(value));
  }
  if (value <= static_cast<double>(limits.low)) return limits.low;
  if (value >= static_cast<double>(limits.high)) return limits.high;
  return static_cast<int64_t>(value);
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double inverse_sqrt(double x) { return 1.0 / std::sqrt(x); }

[[noreturn]] void fail_type(std::string_view what, ElementType element) {
  throw Fault{text(what, " of ", mcc::to_text(element))};
}

}  // namespace

// ---- Building ----

int Compiler::new_slots(int count) {
  const size_t first = program_.frame.size();
  program_.frame.resize(first + static_cast<size_t>(count), Value{.i = 0});
  return static_cast<int>(first);
}

Operand Compiler::constant(Value value) {
  Operand out;
  out.slot = new_slots(1);
  program_.frame[static_cast<size_t>(out.slot)] = value;
  return out;
}

template <class F>
Operand Compiler::map(F f, Operand a) {
  return add_expr(std::make_unique<Map1<F>>(f, a), a.lanes);
}
template <class F>
Operand Compiler::map(F f, Operand a, Operand b) {
  return add_expr(std::make_unique<Map2<F>>(f, a, b), a.lanes);
}
template <class F>
Operand Compiler::map(F f, Operand a, Operand b, Operand c) {
  return add_expr(std::make_unique<Map3<F>>(f, a, b, c), a.lanes);
}

template <class F>
Operand Compiler::with_rounding(ElementType element, F with) {
  if (element == ElementType::f64) return with(NoRounding{});
  if (element == ElementType::f32) return with(RoundToF32{});
  return with(RoundToNarrow{float_format(element)});
}

Operand Compiler::expr(const Expr& e) {
  return dispatch(e, [this](const auto& n) { return compile(n); });
}

Operand Compiler::compile(const IntImm& n) {
  auto [it, inserted] = int_constants_.emplace(n.value, 0);
  if (inserted) it->second = constant(int_value(n.value)).slot;
  return Operand{it->second, 1, nullptr};
}

Operand Compiler::compile(const FloatImm& n) { return constant(float_value(n.value)); }

Operand Compiler::compile(const VarNode& n) {
  auto it = slots_.find(&n);
  if (it == slots_.end()) throw Fault{text("variable ", n.name, " is not bound here")};
  return Operand{it->second, n.type.lanes, nullptr};
}

Operand Compiler::compile(const Cast& n) { return cast(n.value.element(), n.type.element, expr(n.value)); }

Operand Compiler::cast(ElementType from, ElementType to, Operand value) {
  if (is_float(from) && is_float(to)) {
    return with_rounding(
        to, [&](auto round) { return map([round](Value x) { return float_value(round(x.f)); }, value); });
  }
  if (is_float(to)) {
    return map([from, to](Value x) { return float_value(int_to_float(from, to, x.i)); }, value);
  }
  if (is_bool(to)) {
    if (is_float(from)) return map([](Value x) { return int_value(x.f != 0); }, value);
    return map([](Value x) { return int_value(x.i != 0); }, value);
  }
  if (is_float(from)) {
    const IntLimits limits = int_limits(to);
    return map([to, limits](Value x) { return int_value(float_to_int(to, limits, x.f)); }, value);
  }
  return map([to](Value x) { return int_value(wrap_int(to, x.i)); }, value);
}

template <BinaryOp op>
Operand Compiler::binary(ElementType element, Operand a, Operand b) {
  if (is_float(element)) {
    if constexpr (is_comparison(op)) {
      return map([](Value x, Value y) { return int_value(float_compare<op>(x.f, y.f)); }, a, b);
    } else if constexpr (is_float_op(op)) {
      return with_rounding(element, [&](auto round) {
        return map([round](Value x, Value y) { return float_value(round(float_op<op>(x.f, y.f))); }, a, b);
      });
    } else {
      fail_type(to_text(op), element);
    }
  }
  const int width = bit_width(element);
  if (element == ElementType::u64) {
    return map([width](Value x, Value y) { return int_value(int_op<op, true>(x.i, y.i, width)); }, a, b);
  }
  if (element == ElementType::i64 || is_comparison(op) || is_logical(op)) {
    return map([width](Value x, Value y) { return int_value(int_op<op, false>(x.i, y.i, width)); }, a, b);
  }
  return map(
      [element, width](Value x, Value y) {
        return int_value(wrap_int(element, int_op<op, false>(x.i, y.i, width)));
      },
      a, b);
}

Operand Compiler::compile(const Binary& n) {
  const Operand a = expr(n.a), b = expr(n.b);
  switch (n.op) {
#define X(name, text)  \
  case BinaryOp::name: \
    return binary<BinaryOp::name>(n.a.element(), a, b);
    MCC_BINARY_OPS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown operator");
}

Operand Compiler::compile(const Select& n) {
  auto code = std::make_unique<SelectCode>();
  code->condition = expr(n.condition);
  code->on_true = expr(n.on_true);
  code->on_false = expr(n.on_false);
  return add_expr(std::move(code), n.type.lanes);
}

Operand Compiler::compile(const Load& n) {
  Access a = access(n.buffer, n.indices, n.predicate, n.type.lanes);
  switch (n.type.element) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return add_expr(std::make_unique<LoadCode<ElementType::name>>(std::move(a)), n.type.lanes);
    MCC_ELEMENT_TYPES(X)
#undef X
  }
  MCC_UNREACHABLE("unknown element type");
}

Operand Compiler::compile(const Ramp& n) {
  auto code = std::make_unique<RampCode>();
  code->base = expr(n.base);
  code->stride = expr(n.stride);
  code->element = n.type.element;
  code->lanes = n.type.lanes;
  return add_expr(std::move(code), n.type.lanes);
}

Operand Compiler::compile(const Broadcast& n) {
  auto code = std::make_unique<BroadcastCode>();
  code->value = expr(n.value);
  code->lanes = n.type.lanes;
  return add_expr(std::move(code), n.type.lanes);
}

Operand Compiler::compile(const Shuffle& n) {
  auto code = std::make_unique<ShuffleCode>();
  std::vector<std::pair<size_t, int>> all;
  for (size_t v = 0; v < n.vectors.size(); ++v) {
    code->vectors.push_back(expr(n.vectors[v]));
    for (int lane = 0; lane < n.vectors[v].lanes(); ++lane)
      all.emplace_back(v, lane);
  }
  for (int index : n.indices)
    code->picks.push_back(all[static_cast<size_t>(index)]);
  code->parts.resize(n.vectors.size());
  return add_expr(std::move(code), n.type.lanes);
}

template <BinaryOp op>
Operand Compiler::vector_reduce(const VectorReduce& n) {
  const Operand value = expr(n.value);
  const ElementType element = n.type.element;
  const auto reduce = [&](auto f) {
    return add_expr(std::make_unique<ReduceCode<decltype(f)>>(f, value), 1);
  };
  if (!is_float(element)) {
    const int width = bit_width(element);
    return reduce([element, width](Value x, Value y) {
      const int64_t result = element == ElementType::u64 ? int_op<op, true>(x.i, y.i, width)
                                                         : int_op<op, false>(x.i, y.i, width);
      return int_value(wrap_int(element, result));
    });
  }
  if constexpr (is_float_op(op)) {
    return with_rounding(element, [&](auto round) {
      return reduce([round](Value x, Value y) { return float_value(round(float_op<op>(x.f, y.f))); });
    });
  } else {
    fail_type(to_text(op), element);
  }
}

Operand Compiler::compile(const VectorReduce& n) {
  switch (n.op) {
#define X(name, text)  \
  case BinaryOp::name: \
    return vector_reduce<BinaryOp::name>(n);
    MCC_BINARY_OPS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown operator");
}

// ---- Intrinsics ----

// Computed in double, then rounded.
Operand Compiler::float_function(const Call& n, double (*function)(double)) {
  if (!is_float(n.type.element)) fail_type(to_text(n.function), n.type.element);
  const Operand value = expr(n.args[0]);
  return with_rounding(n.type.element, [&](auto round) {
    return map([function, round](Value x) { return float_value(round(function(x.f))); }, value);
  });
}

Operand Compiler::fused_multiply_add(const Call& n) {
  const ElementType element = n.type.element;
  const Operand a = expr(n.args[0]), b = expr(n.args[1]), c = expr(n.args[2]);
  if (!is_float(element)) return binary<BinaryOp::add>(element, binary<BinaryOp::mul>(element, a, b), c);
  return map([element](Value x, Value y,
                       Value z) { return float_value(tensor::fused_multiply_add(element, x.f, y.f, z.f)); },
             a, b, c);
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

Operand Compiler::dot4(const Call& n) {
  if (n.type.element != ElementType::i32 || n.args[1].type() != Type{left_bytes(n.function), 4} ||
      n.args[2].type() != Type{ElementType::i8, 4 * n.type.lanes}) {
    throw Fault{text(to_text(n.function), " of ", to_text(n.args[0].type()), ", ", to_text(n.args[1].type()), " and ",
                     to_text(n.args[2].type()))};
  }
  return add_expr(std::make_unique<Dot4Code>(expr(n.args[0]), expr(n.args[1]), expr(n.args[2])), n.type.lanes);
}

// The value is in the slot when the statement runs.
Operand Compiler::exchange(const Call& n) {
  if (!in_launch_) throw Fault{text(to_text(n.function), " is for the threads of a launch")};
  Exchange e;
  e.function = n.function;
  e.element = n.args[0].element();
  e.place = place();
  int64_t number = 0;
  if (class_of(n.function) == IntrinsicClass::mma) {
    for (const Expr& a : n.args)
      e.values.push_back(expr(a));
  } else {
    bool is_constant = as_int(n.args[1], &number);
    bool is_shuffle = class_of(n.function) == IntrinsicClass::exchange;
    if (is_shuffle && (!is_constant || number < 1 || number > 31 || n.type.lanes != 1)) {
      throw Fault{text(to_text(n.function), " is of scalars, at a constant distance of 1 to 31")};
    }
    if (!is_shuffle && byte_size(e.element) * n.args[0].lanes() != 16) {
      throw Fault{text(to_text(n.function), " of rows of other than 16 bytes")};
    }
    e.values.push_back(expr(n.args[0]));
    e.number = static_cast<int>(number);
  }
  e.slot = new_slots(n.type.lanes);
  program_.exchanges.push_back(std::move(e));
  exchanges_.push_back(&program_.exchanges.back());
  return Operand{program_.exchanges.back().slot, n.type.lanes, nullptr};
}

Operand Compiler::compile(const Call& n) {
  if (is_exchange(n.function)) return exchange(n);
  if (is_statement(n.function)) throw Fault{text(to_text(n.function), " is a statement, it has no value")};
  const ElementType element = n.args[0].element();
  const auto math = [&](double (*function)(double)) { return float_function(n, function); };
  const auto float_test = [&](bool (*test)(double)) {
    if (!is_float(element)) fail_type(to_text(n.function), element);
    return map([test](Value x) { return int_value(test(x.f)); }, expr(n.args[0]));
  };
  switch (n.function) {
    case Intrinsic::exp:
      return math(std::exp);
    case Intrinsic::exp2:
      return math(std::exp2);
    case Intrinsic::log:
      return math(std::log);
    case Intrinsic::log2:
      return math(std::log2);
    case Intrinsic::log1p:
      return math(std::log1p);
    case Intrinsic::expm1:
      return math(std::expm1);
    case Intrinsic::sqrt:
      return math(std::sqrt);
    case Intrinsic::rsqrt:
      return math(inverse_sqrt);
    case Intrinsic::tanh:
      return math(std::tanh);
    case Intrinsic::erf:
      return math(std::erf);
    case Intrinsic::sigmoid:
      return math(sigmoid);
    case Intrinsic::sin:
      return math(std::sin);
    case Intrinsic::cos:
      return math(std::cos);
    case Intrinsic::tan:
      return math(std::tan);
    case Intrinsic::asin:
      return math(std::asin);
    case Intrinsic::acos:
      return math(std::acos);
    case Intrinsic::atan:
      return math(std::atan);
    case Intrinsic::sinh:
      return math(std::sinh);
    case Intrinsic::cosh:
      return math(std::cosh);
    case Intrinsic::asinh:
      return math(std::asinh);
    case Intrinsic::acosh:
      return math(std::acosh);
    case Intrinsic::atanh:
      return math(std::atanh);
    case Intrinsic::floor:
      return math(std::floor);
    case Intrinsic::ceil:
      return math(std::ceil);
    case Intrinsic::round:
      return math(std::nearbyint);
    case Intrinsic::trunc:
      return math(std::trunc);
    case Intrinsic::abs:
      return absolute(n);
    case Intrinsic::pow: {
      if (!is_float(element)) fail_type(to_text(n.function), element);
      const Operand base = expr(n.args[0]), exponent = expr(n.args[1]);
      return with_rounding(element, [&](auto round) {
        return map([round](Value x, Value y) { return float_value(round(std::pow(x.f, y.f))); }, base,
                   exponent);
      });
    }
    case Intrinsic::fma:
      return fused_multiply_add(n);
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
      return map([mask](Value x) { return int_value(std::popcount(static_cast<uint64_t>(x.i) & mask)); },
                 expr(n.args[0]));
    }
    case Intrinsic::bit_cast:
      return bit_cast(n);
    case Intrinsic::likely:
      return expr(n.args[0]);
    case Intrinsic::dot4_u8i8:
    case Intrinsic::dot4_i8i8:
      return dot4(n);
#define X(name) case Intrinsic::name:
      MCC_THREAD_INTRINSICS(X)
#undef X
    case Intrinsic::prefetch:  // above
      break;
  }
  MCC_UNREACHABLE("unknown intrinsic");
}

}  // namespace mcc::tensor::interpreter
