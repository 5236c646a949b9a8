#include "tensor/verify/sample.h"

#include "tensor/numeric.h"

namespace mcc::tensor::verifier {
namespace {

int64_t binary_value(const Binary& n, int64_t a, int64_t b) {
  const ElementType element = n.a.element();
  const int width = bit_width(element);
  switch (n.op) {
#define X(name, text)                                                               \
  case BinaryOp::name:                                                              \
    return wrap_int(n.type.element, element == ElementType::u64                     \
                                        ? int_op<BinaryOp::name, true>(a, b, width) \
                                        : int_op<BinaryOp::name, false>(a, b, width));
    MCC_BINARY_OPS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown operator");
}

std::optional<int64_t> call_value(const Call& n, const Point& point) {
  const std::optional<int64_t> value = evaluate(n.args[0], point);
  if (!value) return std::nullopt;
  if (n.function == Intrinsic::likely) return value;
  if (n.function == Intrinsic::logical_not) return *value == 0;
  return std::nullopt;
}

// A fixed sequence of pseudo-random numbers (xorshift, Marsaglia 2003).
struct Random {
  uint64_t state = 0x9e3779b97f4a7c15u;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
};

enum class Corner { first, last, random };

// Fills in one variable after the other; false if a range is not known or empty.
bool sample(const std::vector<SampledVar>& vars, Corner corner, Random& random, Point* point) {
  point->clear();
  for (const SampledVar& v : vars) {
    const std::optional<int64_t> min = evaluate(v.min, *point), extent = evaluate(v.extent, *point);
    if (!min || !extent || *extent <= 0) return false;
    const uint64_t dice = corner == Corner::random ? random.next() : 0;
    const bool first = corner == Corner::first || dice % 4 == 1;
    const bool last = corner == Corner::last || dice % 4 == 2;
    const auto within = static_cast<int64_t>((dice >> 2) % static_cast<uint64_t>(*extent));
    (*point)[v.var.get()] = *min + (first ? 0 : last ? *extent - 1 : within);
  }
  return true;
}

}  // namespace

std::optional<int64_t> evaluate(const Expr& e, const Point& point) {
  if (e.lanes() != 1 || is_float(e.element())) return std::nullopt;
  if (const auto* imm = e.as<IntImm>()) return imm->value;
  if (e.kind() == ExprKind::Var) {
    auto it = point.find(e.get());
    return it == point.end() ? std::nullopt : std::optional(it->second);
  }
  if (const auto* n = e.as<Binary>()) {
    const auto a = evaluate(n->a, point), b = evaluate(n->b, point);
    if (!a || !b) return std::nullopt;
    return binary_value(*n, *a, *b);
  }
  if (const auto* n = e.as<Select>()) {
    const auto condition = evaluate(n->condition, point);
    if (!condition) return std::nullopt;
    return evaluate(*condition ? n->on_true : n->on_false, point);
  }
  if (const auto* n = e.as<Cast>()) {
    const auto value = evaluate(n->value, point);
    return value ? std::optional(wrap_int(n->type.element, *value)) : std::nullopt;
  }
  if (const auto* n = e.as<Call>()) return call_value(*n, point);
  return std::nullopt;
}

void for_each_sample(const std::vector<SampledVar>& vars, const std::function<bool(const Point&)>& visit) {
  constexpr int kRandomPoints = 24;
  Random random;
  Point point;
  for (Corner corner : {Corner::first, Corner::last}) {
    if (!sample(vars, corner, random, &point) || !visit(point)) return;
  }
  for (int i = 0; i < kRandomPoints; ++i) {
    if (sample(vars, Corner::random, random, &point) && !visit(point)) return;
  }
}

bool all_hold(const std::vector<Expr>& conditions, const Point& point) {
  for (const Expr& c : conditions) {
    if (evaluate(c, point).value_or(0) == 0) return false;
  }
  return true;
}

std::string point_text(const std::vector<SampledVar>& vars, const Point& point) {
  std::vector<std::string> parts;
  for (const SampledVar& v : vars)
    parts.push_back(text(v.var.name(), " = ", point.at(v.var.get())));
  return join(parts, ", ");
}

}  // namespace mcc::tensor::verifier
