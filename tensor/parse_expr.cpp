#include <charconv>
#include <limits>

#include "tensor/intrinsics.h"
#include "tensor/parser.h"
#include "tensor/syntax.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Bounds on what a text may ask for, as Parser::kMaxDepth is one.
constexpr int kMaxChain = 5000;  // operators in a row
constexpr int64_t kMaxLanes = 65536;

constexpr Named<BinaryOp> kInfix[] = {
#define X(op, symbol) {symbol, BinaryOp::op},
    MCC_BINARY_OPS(X)
#undef X
};
constexpr Named<BinaryOp> kReductions[] = {
#define X(op, symbol) {"reduce_" #op, BinaryOp::op},
    MCC_BINARY_OPS(X)
#undef X
};
constexpr Named<Intrinsic> kIntrinsics[] = {
#define X(name, arity) {#name, Intrinsic::name},
    MCC_INTRINSICS(X)
#undef X
};

// "f32", "f32x16"
std::optional<Type> parse_type(std::string_view name) {
  size_t x = name.find('x');
  auto element = parse_element_type(name.substr(0, x));
  if (!element) return std::nullopt;
  Type type{*element, 1};
  if (x == std::string_view::npos) return type;
  std::string_view digits = name.substr(x + 1);
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), type.lanes);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (type.lanes < 2 || type.lanes > kMaxLanes) return std::nullopt;
  return type;
}

}  // namespace

Expr Parser::lone_expr(const std::vector<Var>& vars, const std::vector<Buffer>& buffers) {
  for (const Var& v : vars)
    declare(v.name(), v);
  for (const Buffer& b : buffers)
    declare(b.name(), b);
  Expr e = expr();
  if (peek().kind != TokenKind::end) unexpected("the end of the text");
  return e;
}

Buffer Parser::buffer() {
  const Token& token = peek();
  name("a buffer");
  const auto* b = std::get_if<Buffer>(&lookup(token));
  if (!b) fail(text("'", token.text, "' is not a buffer"), token.offset);
  return *b;
}

// ---- Expressions ----

Expr Parser::expr(int min_precedence) {
  enter();
  Expr left = unary();
  for (int chain = 0;; ++chain) {
    auto op = peek().kind == TokenKind::symbol ? find_named(kInfix, peek().text) : std::nullopt;
    if (!op || precedence(*op) < min_precedence) break;
    if (chain > kMaxChain) fail("an expression too long", peek().offset);
    size_t place = at_++;
    Expr right = expr(precedence(*op) + 1);
    adapt(left, right);
    if (left.type() != right.type()) {
      fail(text("'", to_text(*op), "' of ", to_text(left.type()), " and ", to_text(right.type())),
           tokens_[place].offset);
    }
    left = Binary::make(*op, left, right);
    if (is_comparison(*op)) no_chain(*op);
  }
  leave();
  return left;
}

void Parser::no_chain(BinaryOp op) const {
  auto next = peek().kind == TokenKind::symbol ? find_named(kInfix, peek().text) : std::nullopt;
  if (next && is_comparison(*next)) {
    fail(text("comparisons do not chain: '", to_text(op), "' before '", peek().text, "'"), peek().offset);
  }
}

Expr Parser::unary() {
  if (!accept("-")) return primary();
  if (peek().kind == TokenKind::integer || peek().kind == TokenKind::floating) {
    return literal(tokens_[at_++], true);
  }
  enter();
  Expr operand = unary();
  leave();
  return -operand;
}

Expr Parser::primary() {
  const Token& token = peek();
  if (token.kind == TokenKind::integer || token.kind == TokenKind::floating) {
    ++at_;
    return literal(token, false);
  }
  if (accept("(")) {
    Expr inner = expr();
    expect(")");
    return inner;
  }
  if (token.kind != TokenKind::name) unexpected("an expression");
  if (token.text == "true" || token.text == "false") {
    ++at_;
    return token.text == "true" ? true_value() : false_value();
  }
  if (is_symbol("(", 1)) return call_or_cast();
  if (is_symbol("<", 1) && is_symbol(">", 3) && is_symbol("(", 4)) return typed_call();
  if (is_symbol("[", 1)) {
    Buffer b = buffer();
    Expr predicate;
    std::vector<Expr> indices = access(&predicate);
    return Load::make(b, std::move(indices), predicate);
  }
  const auto* var = std::get_if<Var>(&lookup(token));
  if (!var) fail(text("buffer '", token.text, "' without indices"), token.offset);
  ++at_;
  return *var;
}

// "[i, j]" or "[i, j; predicate]"
std::vector<Expr> Parser::access(Expr* predicate) {
  std::vector<Expr> indices;
  expect("[");
  while (!is_symbol("]") && !is_symbol(";")) {
    indices.push_back(expr());
    if (!accept(",")) break;
  }
  if (accept(";")) *predicate = expr();
  expect("]");
  return indices;
}

std::vector<Expr> Parser::arguments() {
  std::vector<Expr> args;
  list(")", [&] { args.push_back(expr()); });
  for (size_t i = 0; i < args.size(); ++i) {
    for (const Expr& other : args) {
      if (!is_bare_integer(other)) adapt(args[i], other.type());
    }
  }
  return args;
}

// After "NAME (": the arguments, exactly count of them.
std::vector<Expr> Parser::arguments(const Token& function, size_t count) {
  std::vector<Expr> args = arguments();
  if (args.size() != count) {
    fail(text(function.text, " takes ", count, " arguments, got ", args.size()), function.offset);
  }
  return args;
}

Expr Parser::call_or_cast() {
  const Token& token = tokens_[at_];
  at_ += 2;
  if (auto type = parse_type(token.text)) return Cast::make(*type, arguments(token, 1)[0]);
  if (token.text == "min" || token.text == "max") {
    std::vector<Expr> args = arguments(token, 2);
    return Binary::make(token.text == "min" ? BinaryOp::min : BinaryOp::max, args[0], args[1]);
  }
  if (token.text == "select") return select_call();
  if (token.text == "ramp") return ramp_call();
  if (token.text == "shuffle") return shuffle_call();
  if (token.text == "broadcast") {
    Expr value = expr();
    expect(",");
    int count = lanes();
    expect(")");
    return Broadcast::make(value, count);
  }
  if (auto op = find_named(kReductions, token.text)) return VectorReduce::make(*op, arguments(token, 1)[0]);
  auto function = find_named(kIntrinsics, token.text);
  if (!function) fail(text("unknown function '", token.text, "'"), token.offset);
  if (!is_lanewise(*function)) return mixed_call(*function);
  return Call::make(*function, arguments());
}

// NAME<TYPE>(arguments)
Expr Parser::typed_call() {
  const Token& token = tokens_[at_];
  auto function = find_named(kIntrinsics, token.text);
  if (!function) fail(text("unknown function '", token.text, "'"), token.offset);
  auto type = parse_type(peek(2).text);
  if (!type) fail(text("unknown type '", peek(2).text, "'"), peek(2).offset);
  at_ += 5;
  return Call::make(*type, *function, arguments());
}

// Arguments of different types.
Expr Parser::mixed_call(Intrinsic function) {
  std::vector<Expr> args;
  list(")", [&] { args.push_back(expr()); });
  return Call::make(function, std::move(args));
}

Expr Parser::select_call() {
  Expr condition = expr();
  expect(",");
  Expr a = expr();
  expect(",");
  Expr b = expr();
  expect(")");
  adapt(a, b);
  return Select::make(condition, a, b);
}

Expr Parser::ramp_call() {
  Expr base = expr();
  expect(",");
  Expr stride = expr();
  expect(",");
  int count = lanes();
  expect(")");
  adapt(base, stride);
  return Ramp::make(base, stride, count);
}

Expr Parser::shuffle_call() {
  std::vector<Expr> vectors;
  list(";", [&] { vectors.push_back(expr()); });
  std::vector<int> picks;
  list(")", [&] {
    size_t start = peek().offset;
    int64_t pick = number();
    if (pick < 0 || pick > std::numeric_limits<int>::max()) fail("a lane out of range", start);
    picks.push_back(static_cast<int>(pick));
  });
  return Shuffle::make(std::move(vectors), std::move(picks));
}

// ---- Literals ----

int64_t Parser::number() {
  bool negative = accept("-");
  if (peek().kind != TokenKind::integer) unexpected("a number");
  return integer_value(tokens_[at_++], negative);
}

int Parser::lanes() {
  size_t start = peek().offset;
  int64_t n = number();
  if (n < 1 || n > kMaxLanes) fail("a number of lanes outside 1 .. 65536", start);
  return static_cast<int>(n);
}

int64_t Parser::integer_value(const Token& token, bool negative) const {
  uint64_t magnitude = 0;
  const char* end = token.text.data() + token.text.size();
  auto [stop, error] = std::from_chars(token.text.data(), end, magnitude);
  bool fits = error == std::errc() && stop == end;
  if (negative) fits = fits && magnitude <= uint64_t{1} << 63;
  if (!negative && token.element != ElementType::u64) fits = fits && magnitude < uint64_t{1} << 63;
  if (!fits) fail(text("number '", token.text, "' is out of range"), token.offset);
  return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
}

double Parser::float_value(const Token& token, ElementType element) const {
  double value = 0;
  const char* end = token.text.data() + token.text.size();
  std::errc error;
  if (element == ElementType::f64) {
    error = std::from_chars(token.text.data(), end, value).ec;
  } else {
    float narrow = 0;
    error = std::from_chars(token.text.data(), end, narrow).ec;
    value = static_cast<double>(narrow);
  }
  if (error != std::errc()) fail(text("number '", token.text, "' is out of range"), token.offset);
  return value;
}

Expr Parser::literal(const Token& token, bool negative) const {
  ElementType fallback = token.kind == TokenKind::integer ? ElementType::i64 : ElementType::f32;
  ElementType element = token.element.value_or(fallback);
  if (is_float(element)) {
    double value = float_value(token, element);
    return FloatImm::make({element, 1}, negative ? -value : value);
  }
  if (token.kind == TokenKind::floating || element == ElementType::string) {
    fail(text("'", token.text, "' as ", mcc::to_text(element)), token.offset);
  }
  return IntImm::make({element, 1}, integer_value(token, negative));
}

}  // namespace mcc::tensor
