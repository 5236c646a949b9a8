// Operations lane by lane: a function of one, two or three values becomes code for scalars and vectors of them.
#pragma once

#include "tensor/interpret/compile.h"
#include "tensor/numeric.h"

namespace mcc::tensor::interpreter {

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

// ---- What an element type does to a result ----

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

[[noreturn]] inline void fail_type(std::string_view what, ElementType element) {
  throw Fault{text(what, " of ", mcc::to_text(element))};
}

}  // namespace mcc::tensor::interpreter
