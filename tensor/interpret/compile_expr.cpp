#include "tensor/interpret/element.h"
#include "tensor/interpret/lanewise.h"
#include "tensor/numeric.h"

namespace mcc::tensor::interpreter {
namespace {

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

// ---- Conversion ----

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
  return binary(n.op, n.a.element(), a, b);
}

Operand Compiler::binary(BinaryOp op, ElementType element, Operand a, Operand b) {
  switch (op) {
#define X(name, text)  \
  case BinaryOp::name: \
    return binary<BinaryOp::name>(element, a, b);
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

}  // namespace mcc::tensor::interpreter
