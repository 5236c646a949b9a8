#include "tensor/passes/lower_math.h"

#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "tensor/intrinsics.h"
#include "tensor/passes/math/builder.h"
#include "tensor/visit.h"

namespace mcc::tensor {

namespace {

using math::MathBuilder;

// Expansion in f64; also serves f32 where there is no shorter one.
Expr expand_f64(MathBuilder& b, Intrinsic function, const std::vector<Expr>& args) {
  const Expr& x = args[0];
  switch (function) {
    case Intrinsic::exp:
      return math::exp(b, x);
    case Intrinsic::exp2:
      return math::exp2(b, x);
    case Intrinsic::expm1:
      return math::expm1(b, x);
    case Intrinsic::log:
      return math::log(b, x);
    case Intrinsic::log2:
      return math::log2(b, x);
    case Intrinsic::log1p:
      return math::log1p(b, x);
    case Intrinsic::sigmoid:
      return math::sigmoid(b, x);
    case Intrinsic::rsqrt:
      return math::rsqrt(b, x);
    case Intrinsic::tanh:
      return math::tanh_f64(b, x);
    case Intrinsic::erf:
      return math::erf_f64(b, x);
    case Intrinsic::pow:
      return math::pow(b, x, args[1]);
    case Intrinsic::sin:
      return math::sin(b, x);
    case Intrinsic::cos:
      return math::cos(b, x);
    case Intrinsic::tan:
      return math::tan(b, x);
    case Intrinsic::asin:
      return math::asin_f64(b, x);
    case Intrinsic::acos:
      return math::acos_f64(b, x);
    case Intrinsic::atan:
      return math::atan_f64(b, x);
    case Intrinsic::sinh:
      return math::sinh_f64(b, x);
    case Intrinsic::cosh:
      return math::cosh_f64(b, x);
    case Intrinsic::asinh:
      return math::asinh_f64(b, x);
    case Intrinsic::acosh:
      return math::acosh_f64(b, x);
    case Intrinsic::atanh:
      return math::atanh_f64(b, x);
#define X(name) case Intrinsic::name:
      MCC_RANDOM_INTRINSICS(X)
      MCC_NATIVE_INTRINSICS(X)
      MCC_THREAD_INTRINSICS(X)
      MCC_TILE_INTRINSICS(X)
#undef X
      break;
  }
  MCC_UNREACHABLE(to_text(function), " needs no expansion");
}

// Functions that have an f32 form of their own; undefined for the others.
Expr expand_f32(MathBuilder& b, Intrinsic function, const std::vector<Expr>& args) {
  const Expr& x = args[0];
  if (function == Intrinsic::exp) return math::exp(b, x);
  if (function == Intrinsic::exp2) return math::exp2(b, x);
  if (function == Intrinsic::expm1) return math::expm1(b, x);
  if (function == Intrinsic::log) return math::log(b, x);
  if (function == Intrinsic::log2) return math::log2(b, x);
  if (function == Intrinsic::log1p) return math::log1p(b, x);
  if (function == Intrinsic::sigmoid) return math::sigmoid(b, x);
  if (function == Intrinsic::rsqrt) return math::rsqrt(b, x);
  if (function == Intrinsic::tanh) return math::tanh_f32(b, x);
  if (function == Intrinsic::erf) return math::erf_f32(b, x);
  // CPUs compute these in f64 at half the rate, and then have all digits; many GPUs have a sixty-fourth of their rate in f64.
  if (!b.approximates(x)) return nullptr;
  if (function == Intrinsic::pow) return math::pow(b, x, args[1]);
  if (function == Intrinsic::sin) return math::sin(b, x);
  if (function == Intrinsic::cos) return math::cos(b, x);
  if (function == Intrinsic::tan) return math::tan(b, x);
  return nullptr;
}

// x to a constant power as products; undefined when the exponent is none of these.
Expr expand_constant_power(MathBuilder& b, const Expr& x, double exponent) {
  Expr one = b.number(x, 1);
  if (exponent == 0) return one;
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == -1) return one / x;
  if (exponent == -2) return one / (x * x);
  if (exponent == 4) {
    Expr square = b.let("square", x * x);
    return square * square;
  }
  // The square root of -infinity is NaN and of -0 is -0, their powers are not.
  if (exponent == 0.5) {
    return select(x == b.minus_infinity(x), b.infinity(x), b.sqrt(x + b.number(x, 0)));
  }
  return nullptr;
}

// Whether a relative error of its argument is one of its result that is no larger.
bool passes_errors_on(Intrinsic function) {
  return function == Intrinsic::erf || function == Intrinsic::tanh;
}

// The argument of such a function: x / c of a constant c as x * (1 / c), which is at most 1 ULP off. Narrower floats have few ULPs.
Expr without_division(const Expr& argument) {
  const auto* division = argument.as<Binary>();
  double divisor = 0;
  if (!division || division->op != BinaryOp::div || argument.element() != ElementType::f32 ||
      !as_number(division->b, &divisor)) {
    return argument;
  }
  const double reciprocal = 1 / divisor;
  const bool is_normal = std::fabs(reciprocal) > std::numeric_limits<float>::min() &&
                         std::fabs(reciprocal) < std::numeric_limits<float>::max();
  return is_normal ? division->a * MathBuilder::number(division->a, reciprocal) : argument;
}

class MathLowerer : public Mutator {
 public:
  explicit MathLowerer(const Target& target)
      : has_fma_(target.has_fma), approximates_(target.kind == TargetKind::cuda) {}

 protected:
  using Mutator::on;

  Expr on(const Call& n, const Expr& self) override {
    if (!is_expanded(n.function)) return Mutator::on(n, self);
    if (auto it = done_.find(&n); it != done_.end()) return it->second;
    std::vector<Expr> args;
    for (const Expr& a : n.args)
      args.push_back(mutate(passes_errors_on(n.function) ? without_division(a) : a));
    Expr result = expand(n, std::move(args));
    if (!guard_.defined()) done_[&n] = result;
    return result;
  }

  // GPUs divide by some 20 instructions and a branch.
  Expr on(const Binary& n, const Expr& self) override {
    double divisor = 0;
    if (!approximates_ || n.op != BinaryOp::div || n.type.element != ElementType::f32 ||
        !as_number(n.b, &divisor) || !MathBuilder::has_exact_reciprocal(divisor)) {
      return Mutator::on(n, self);
    }
    MathBuilder b(has_fma_, approximates_, &bindings_);
    return b.multiply_by_reciprocal(b.let("x", guarded(mutate(n.a))), divisor);
  }

  // Bindings are made outside of the statement, so what they load must be guarded as it is here.
  Expr on(const Select& n, const Expr& self) override {
    if (n.condition.lanes() > 1) return Mutator::on(n, self);
    Expr condition = mutate(n.condition);
    Expr outer = guard_;
    guard_ = outer.defined() ? outer && condition : condition;
    Expr on_true = mutate(n.on_true);
    guard_ = outer.defined() ? outer && logical_not(condition) : logical_not(condition);
    Expr on_false = mutate(n.on_false);
    guard_ = outer;
    if (condition.same_as(n.condition) && on_true.same_as(n.on_true) && on_false.same_as(n.on_false))
      return self;
    return select(condition, on_true, on_false);
  }

  Stmt on(const Store& n, const Stmt& self) override {
    return bind([&] { return Mutator::on(n, self); });
  }
  Stmt on(const Evaluate& n, const Stmt& self) override {
    return bind([&] { return Mutator::on(n, self); });
  }
  // Only what stands in the statement itself is bound around it; its body has statements of its own.
  Stmt on(const Let& n, const Stmt& self) override {
    Expr value;
    Bindings bindings = collect([&] { value = mutate(n.value); });
    Stmt body = mutate(n.body);
    if (value.same_as(n.value) && body.same_as(n.body)) return self;
    return wrap(std::move(bindings), Let::make(n.var, value, body));
  }
  Stmt on(const If& n, const Stmt& self) override {
    Expr condition;
    Bindings bindings = collect([&] { condition = mutate(n.condition); });
    Stmt then_body = mutate(n.then_body), else_body = mutate(n.else_body);
    if (condition.same_as(n.condition) && then_body.same_as(n.then_body) && else_body.same_as(n.else_body)) {
      return self;
    }
    return wrap(std::move(bindings), If::make(condition, then_body, else_body));
  }

 private:
  using Bindings = MathBuilder::Bindings;

  template <class F>
  Bindings collect(F rewrite) {
    Bindings outer = std::exchange(bindings_, {});
    auto outer_done = std::exchange(done_, {});
    rewrite();
    done_ = std::move(outer_done);
    return std::exchange(bindings_, std::move(outer));
  }

  static Stmt wrap(Bindings bindings, Stmt s) {
    for (size_t i = bindings.size(); i-- > 0;)
      s = Let::make(bindings[i].first, bindings[i].second, s);
    return s;
  }

  template <class F>
  Stmt bind(F rewrite) {
    Stmt s;
    Bindings bindings = collect([&] { s = rewrite(); });
    return wrap(std::move(bindings), s);
  }

  Expr expand(const Call& n, std::vector<Expr> args) {
    ElementType element = n.type.element;
    MathBuilder b(has_fma_, approximates_, &bindings_);
    for (Expr& a : args)
      a = b.let("x", guarded(a));
    if (class_of(n.function) == IntrinsicClass::random)
      return b.let("bits", math::philox(b, args[0], args[1], args[2], n.function == Intrinsic::philox_rest));
    MCC_CHECK(is_float(element), to_text(n.function), " of ", to_text(n.type));
    if (element != ElementType::f64 && element != ElementType::f32) {
      for (Expr& a : args)
        a = b.let("x", cast(ElementType::f32, a));
    }
    Expr result;
    double exponent = 0;
    if (n.function == Intrinsic::pow && as_number(args[1], &exponent)) {
      result = expand_constant_power(b, args[0], exponent);
    }
    bool is_double = element == ElementType::f64;
    if (!result.defined() && !is_double) result = expand_f32(b, n.function, args);
    if (!result.defined()) {
      if (!is_double) {
        for (Expr& a : args)
          a = b.let("x", cast(ElementType::f64, a));
      }
      result = expand_f64(b, n.function, args);
      if (!is_double) result = cast(ElementType::f32, b.let(to_text(n.function).data(), result));
    }
    result = b.let(to_text(n.function).data(), result);
    return cast(element, result);
  }

  // The value where the place of the call is reached, and 1 otherwise.
  Expr guarded(const Expr& value) const {
    if (!guard_.defined() || !loads(value)) return value;
    return select(guard_, value, constant(value.type(), 1));
  }

  static bool loads(const Expr& e) {
    bool found = false;
    for_each_expr(Evaluate::make(e), [&](const Expr& x) { found |= x.kind() == ExprKind::Load; });
    return found;
  }

  const bool has_fma_, approximates_;
  Bindings bindings_;
  std::unordered_map<const Call*, Expr> done_;  // in this statement; looked up only
  Expr guard_;                                  // of the place, if it is under a scalar Select
};

}  // namespace

Func lower_math(const Func& f, const Target& target) {
  Func g = f;
  g.body = MathLowerer(target).mutate(f.body);
  return g;
}

}  // namespace mcc::tensor
