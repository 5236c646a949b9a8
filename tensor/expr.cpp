#include "tensor/expr.h"

#include "tensor/intrinsics.h"
#include "tensor/numeric.h"

namespace mcc::tensor {

Expr::Expr(int64_t value) : Expr(IntImm::make(kIndex, value)) {}

Var::Var(std::string name, Type type) : Expr(new VarNode(type, std::move(name))) {}

Buffer::Buffer(std::string name, ElementType element, std::vector<Expr> shape, Scope scope, int alignment) {
  auto* node = new BufferNode;
  node->name = std::move(name);
  node->element = element;
  node->shape = std::move(shape);
  node->scope = scope;
  node->alignment = alignment;
  static_cast<Ref<const BufferNode>&>(*this) = Ref<const BufferNode>(node);
}

Expr IntImm::make(Type type, int64_t value) {
  MCC_CHECK(type.lanes == 1 && (is_int(type.element) || is_bool(type.element)), "IntImm of type ",
            to_text(type));
  return Expr(new IntImm(type, wrap_int(type.element, value)));
}

Expr FloatImm::make(Type type, double value) {
  MCC_CHECK(type.lanes == 1 && is_float(type.element), "FloatImm of type ", to_text(type));
  return Expr(new FloatImm(type, round_float(type.element, value)));
}

Expr Cast::make(Type type, Expr value) {
  MCC_CHECK(type.lanes == value.lanes(), "cast from ", to_text(value.type()), " to ", to_text(type));
  if (type == value.type()) return value;
  return Expr(new Cast(type, std::move(value)));
}

Expr Binary::make(BinaryOp op, Expr a, Expr b) {
  MCC_CHECK(a.type() == b.type(), to_text(op), ": operands of type ", to_text(a.type()), " and ",
            to_text(b.type()));
  if (is_logical(op)) MCC_CHECK(is_bool(a.element()), to_text(op), " of ", to_text(a.type()));
  if (op == BinaryOp::floor_div || op == BinaryOp::floor_mod) {
    MCC_CHECK(is_int(a.element()), to_text(op), " of ", to_text(a.type()));
  }
  Type type = is_comparison(op) ? Type{ElementType::boolean, a.lanes()} : a.type();
  return Expr(new Binary(type, op, std::move(a), std::move(b)));
}

Expr Select::make(Expr condition, Expr on_true, Expr on_false) {
  MCC_CHECK(is_bool(condition.element()), "select on ", to_text(condition.type()));
  MCC_CHECK(on_true.type() == on_false.type(), "select of ", to_text(on_true.type()), " and ",
            to_text(on_false.type()));
  MCC_CHECK(condition.lanes() == 1 || condition.lanes() == on_true.lanes(), "select lanes");
  Type type = on_true.type();
  return Expr(new Select(type, std::move(condition), std::move(on_true), std::move(on_false)));
}

namespace {

int access_lanes(const Buffer& buffer, const std::vector<Expr>& indices) {
  MCC_CHECK(static_cast<int>(indices.size()) == buffer.rank(), "access of ", buffer.name(), " with ",
            indices.size(), " indices, rank is ", buffer.rank());
  int lanes = 1;
  for (const Expr& index : indices) {
    MCC_CHECK(is_int(index.element()), "index of ", buffer.name(), " is ", to_text(index.type()));
    if (index.lanes() == 1) continue;
    MCC_CHECK(lanes == 1 || lanes == index.lanes(), "indices of ", buffer.name(), " differ in lanes");
    lanes = index.lanes();
  }
  return lanes;
}

}  // namespace

Expr Load::make(Buffer buffer, std::vector<Expr> indices, Expr predicate) {
  int lanes = access_lanes(buffer, indices);
  if (predicate.defined()) {
    MCC_CHECK(is_bool(predicate.element()) && (predicate.lanes() == lanes), "load predicate");
  }
  Type type{buffer.element(), lanes};
  return Expr(new Load(type, std::move(buffer), std::move(indices), std::move(predicate)));
}

Expr Ramp::make(Expr base, Expr stride, int lanes) {
  MCC_CHECK(lanes > 1 && base.lanes() == 1 && base.type() == stride.type() && is_int(base.element()),
            "ramp of ", to_text(base.type()), " and ", to_text(stride.type()));
  Type type = base.type().with_lanes(lanes);
  return Expr(new Ramp(type, std::move(base), std::move(stride)));
}

Expr Broadcast::make(Expr value, int lanes) {
  MCC_CHECK(value.lanes() == 1, "broadcast of a vector");
  if (lanes == 1) return value;
  Type type = value.type().with_lanes(lanes);
  return Expr(new Broadcast(type, std::move(value)));
}

Expr Shuffle::make(std::vector<Expr> vectors, std::vector<int> indices) {
  MCC_CHECK(!vectors.empty() && !indices.empty(), "empty shuffle");
  int total = 0;
  for (const Expr& v : vectors) {
    MCC_CHECK(v.element() == vectors[0].element(), "shuffle of different element types");
    total += v.lanes();
  }
  for (int i : indices)
    MCC_CHECK(0 <= i && i < total, "shuffle index ", i, " of ", total, " lanes");
  Type type{vectors[0].element(), static_cast<int>(indices.size())};
  return Expr(new Shuffle(type, std::move(vectors), std::move(indices)));
}

Expr VectorReduce::make(BinaryOp op, Expr value) {
  MCC_CHECK(op == BinaryOp::add || op == BinaryOp::mul || op == BinaryOp::min || op == BinaryOp::max ||
                is_logical(op),
            "vector reduction by ", to_text(op));
  if (value.lanes() == 1) return value;
  Type type = value.type().scalar();
  return Expr(new VectorReduce(type, op, std::move(value)));
}

namespace {

size_t arity(Intrinsic function) {
  switch (function) {
#define X(name, count)  \
  case Intrinsic::name: \
    return count;
    MCC_INTRINSICS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown intrinsic");
}

}  // namespace

Expr Call::make(Intrinsic function, std::vector<Expr> args) {
  MCC_CHECK(function != Intrinsic::bit_cast, "bit_cast needs its type");
  if (arity(function) == 0) return make(kBool, function, std::move(args));
  MCC_CHECK(!args.empty(), to_text(function), " without arguments");
  if (class_of(function) == IntrinsicClass::rows) {
    int64_t count = 0;
    MCC_CHECK(args.size() == 2 && as_int(args[1], &count) && (count == 1 || count == 2 || count == 4),
              to_text(function), " of a number of matrices other than 1, 2, 4");
    return make({ElementType::i32, static_cast<int>(count)}, function, std::move(args));
  }
  if (class_of(function) == IntrinsicClass::mma) {
    MCC_CHECK(args.size() == 3, to_text(function), " takes 3 arguments");
    Type type = args[2].type();
    return make(type, function, std::move(args));
  }
  Type type = args[0].type();
  if (function == Intrinsic::is_nan || function == Intrinsic::is_inf) {
    type.element = ElementType::boolean;
  }
  return make(type, function, std::move(args));
}

Expr Call::make(Type type, Intrinsic function, std::vector<Expr> args) {
  MCC_CHECK(args.size() == arity(function), to_text(function), " takes ", arity(function), " arguments, got ",
            args.size());
  if (is_lanewise(function)) {
    for (const Expr& a : args) {
      MCC_CHECK(a.type() == args[0].type(), to_text(function), ": arguments differ in type");
    }
  }
  return Expr(new Call(type, function, std::move(args)));
}

std::string_view to_text(BinaryOp op) {
  switch (op) {
#define X(name, text)  \
  case BinaryOp::name: \
    return text;
    MCC_BINARY_OPS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown operator");
}

std::string_view to_text(Intrinsic function) {
  switch (function) {
#define X(name, arity)  \
  case Intrinsic::name: \
    return #name;
    MCC_INTRINSICS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown intrinsic");
}

std::string_view to_text(Scope scope) {
  switch (scope) {
    case Scope::global:
      return "global";
    case Scope::local:
      return "local";
    case Scope::registers:
      return "registers";
    case Scope::shared:
      return "shared";
    case Scope::warp:
      return "warp";
  }
  MCC_UNREACHABLE("unknown scope");
}

std::string to_text(Type type) {
  std::string out(mcc::to_text(type.element));
  if (type.lanes > 1) out += text("x", type.lanes);
  return out;
}

// ---- Convenience ----

Expr constant(Type type, double value) {
  Expr scalar;
  if (is_float(type.element)) {
    scalar = FloatImm::make(type.scalar(), value);
  } else {
    scalar = IntImm::make(type.scalar(), static_cast<int64_t>(value));
  }
  return Broadcast::make(scalar, type.lanes);
}

Expr constant(ElementType element, double value) { return constant(Type{element, 1}, value); }

Expr constant_int(Type type, int64_t value) {
  if (is_float(type.element)) return constant(type, static_cast<double>(value));
  return Broadcast::make(IntImm::make(type.scalar(), value), type.lanes);
}

Expr true_value() { return IntImm::make(kBool, 1); }
Expr false_value() { return IntImm::make(kBool, 0); }

bool as_int(const Expr& e, int64_t* value) {
  if (const auto* imm = e.as<IntImm>()) {
    *value = imm->value;
    return true;
  }
  return false;
}

bool is_int(const Expr& e, int64_t value) {
  int64_t v = 0;
  return as_int(e, &v) && v == value;
}

bool is_true(const Expr& e) {
  if (const auto* b = e.as<Broadcast>()) return is_true(b->value);
  return e.defined() && is_bool(e.element()) && is_int(e, 1);
}

bool is_false(const Expr& e) {
  if (const auto* b = e.as<Broadcast>()) return is_false(b->value);
  return e.defined() && is_bool(e.element()) && is_int(e, 0);
}

bool as_number(const Expr& e, double* value) {
  if (const auto* b = e.as<Broadcast>()) return as_number(b->value, value);
  if (const auto* i = e.as<IntImm>()) {
    *value = static_cast<double>(i->value);
    return true;
  }
  if (const auto* f = e.as<FloatImm>()) {
    *value = f->value;
    return true;
  }
  return false;
}

namespace {

// Folds two integer constants; the result is still to be wrapped.
int64_t fold_ints(BinaryOp op, ElementType element, int64_t a, int64_t b) {
  bool wide_unsigned = element == ElementType::u64;
  int width = bit_width(element);
  switch (op) {
#define X(name, text)  \
  case BinaryOp::name: \
    return wide_unsigned ? int_op<BinaryOp::name, true>(a, b, width) : int_op<BinaryOp::name, false>(a, b, width);
    MCC_BINARY_OPS(X)
#undef X
  }
  MCC_UNREACHABLE("unknown operator");
}

// x op identity and the like, for integers and booleans; undefined when nothing applies.
Expr integer_identity(BinaryOp op, const Expr& a, const Expr& b) {
  switch (op) {
    case BinaryOp::add:
      if (is_int(a, 0)) return b;
      if (is_int(b, 0)) return a;
      break;
    case BinaryOp::sub:
      if (is_int(b, 0)) return a;
      break;
    case BinaryOp::mul:
      if (is_int(a, 0) || is_int(b, 1)) return a;
      if (is_int(b, 0) || is_int(a, 1)) return b;
      break;
    case BinaryOp::div:
    case BinaryOp::floor_div:
      if (is_int(b, 1)) return a;
      break;
    case BinaryOp::mod:
    case BinaryOp::floor_mod:
      if (is_int(b, 1)) return constant_int(a.type(), 0);
      break;
    case BinaryOp::min:
    case BinaryOp::max:
      if (a.same_as(b)) return a;
      break;
    case BinaryOp::logical_and:
      if (is_true(a) || is_false(b)) return b;
      if (is_true(b) || is_false(a)) return a;
      break;
    case BinaryOp::logical_or:
      if (is_false(a) || is_true(b)) return b;
      if (is_false(b) || is_true(a)) return a;
      break;
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      break;
  }
  return nullptr;
}

// An i64 literal next to another type becomes a constant of that type; scalars are broadcast.
void adapt(Expr& a, Expr& b) {
  auto literal = [](Expr& x, const Expr& like) {
    const auto* imm = x.as<IntImm>();
    if (imm && x.type() == kIndex && like.element() != ElementType::i64) {
      x = constant_int(like.type().scalar(), imm->value);
    }
  };
  literal(a, b);
  literal(b, a);
  if (a.lanes() < b.lanes()) a = Broadcast::make(a, b.lanes());
  if (b.lanes() < a.lanes()) b = Broadcast::make(b, a.lanes());
}

}  // namespace

Expr binary(BinaryOp op, const Expr& left, const Expr& right) {
  Expr a = left, b = right;
  adapt(a, b);
  if (a.type() == b.type() && !is_float(a.element())) {
    const auto* x = a.as<IntImm>();
    const auto* y = b.as<IntImm>();
    if (x && y) {
      return IntImm::make(is_comparison(op) ? kBool : a.type(), fold_ints(op, a.element(), x->value, y->value));
    }
    if (Expr simple = integer_identity(op, a, b); simple.defined()) return simple;
  }
  return Binary::make(op, a, b);
}

Expr operator+(const Expr& a, const Expr& b) { return binary(BinaryOp::add, a, b); }
Expr operator-(const Expr& a, const Expr& b) { return binary(BinaryOp::sub, a, b); }
Expr operator*(const Expr& a, const Expr& b) { return binary(BinaryOp::mul, a, b); }
Expr operator/(const Expr& a, const Expr& b) { return binary(BinaryOp::div, a, b); }
Expr operator-(const Expr& a) {
  // -0.0 - x keeps the sign of zero; 0 - x would not.
  return binary(BinaryOp::sub, constant(a.type(), is_float(a.element()) ? -0.0 : 0.0), a);
}
Expr floor_div(const Expr& a, const Expr& b) { return binary(BinaryOp::floor_div, a, b); }
Expr floor_mod(const Expr& a, const Expr& b) { return binary(BinaryOp::floor_mod, a, b); }
Expr ceil_div(const Expr& a, const Expr& b) { return floor_div(a + (b - 1), b); }
Expr min(const Expr& a, const Expr& b) { return binary(BinaryOp::min, a, b); }
Expr max(const Expr& a, const Expr& b) { return binary(BinaryOp::max, a, b); }
Expr operator==(const Expr& a, const Expr& b) { return binary(BinaryOp::eq, a, b); }
Expr operator!=(const Expr& a, const Expr& b) { return binary(BinaryOp::ne, a, b); }
Expr operator<(const Expr& a, const Expr& b) { return binary(BinaryOp::lt, a, b); }
Expr operator<=(const Expr& a, const Expr& b) { return binary(BinaryOp::le, a, b); }
Expr operator>(const Expr& a, const Expr& b) { return binary(BinaryOp::gt, a, b); }
Expr operator>=(const Expr& a, const Expr& b) { return binary(BinaryOp::ge, a, b); }
Expr operator&&(const Expr& a, const Expr& b) { return binary(BinaryOp::logical_and, a, b); }
Expr operator||(const Expr& a, const Expr& b) { return binary(BinaryOp::logical_or, a, b); }

Expr logical_not(const Expr& a) {
  if (is_true(a)) return constant_int(a.type(), 0);
  if (is_false(a)) return constant_int(a.type(), 1);
  return Call::make(Intrinsic::logical_not, {a});
}

Expr select(const Expr& condition, const Expr& on_true, const Expr& on_false) {
  if (is_true(condition)) return on_true;
  if (is_false(condition)) return on_false;
  Expr a = on_true, b = on_false;
  adapt(a, b);
  return Select::make(condition, a, b);
}

Expr cast(ElementType element, const Expr& value) {
  Type type{element, value.lanes()};
  if (const auto* imm = value.as<IntImm>()) {
    if (!is_float(element)) return IntImm::make(type, imm->value);
    bool is_unsigned = imm->type.element == ElementType::u64;
    return constant(type, is_unsigned ? static_cast<double>(static_cast<uint64_t>(imm->value))
                                      : static_cast<double>(imm->value));
  }
  if (const auto* imm = value.as<FloatImm>(); imm && is_float(element)) {
    return FloatImm::make(type, imm->value);
  }
  return Cast::make(type, value);
}

Expr call(Intrinsic function, std::vector<Expr> args) { return Call::make(function, std::move(args)); }

Expr load(const Buffer& buffer, std::vector<Expr> indices) { return Load::make(buffer, std::move(indices)); }

std::vector<Expr> conjuncts(const Expr& condition) {
  if (is_true(condition)) return {};
  const auto* both = condition.as<Binary>();
  if (!both || both->op != BinaryOp::logical_and) return {condition};
  std::vector<Expr> list = conjuncts(both->a);
  for (Expr& e : conjuncts(both->b))
    list.push_back(std::move(e));
  return list;
}

Expr conjunction(const std::vector<Expr>& terms) {
  Expr all = true_value();
  for (const Expr& term : terms)
    all = all && term;
  return all;
}

}  // namespace mcc::tensor
