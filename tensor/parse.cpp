#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tensor/intrinsics.h"
#include "tensor/lexer.h"
#include "tensor/syntax.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Bounds on what a text may ask for, so that none can exhaust the stack.
constexpr int kMaxDepth = 500;
constexpr int kMaxChain = 5000;
constexpr int64_t kMaxLanes = 65536;

struct ParseError {
  std::string message;
  size_t offset;
};

using Symbol = std::variant<Var, Buffer>;

template <class T>
struct Named {
  std::string_view name;
  T value;
};

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
constexpr Named<LoopKind> kLoopKinds[] = {{"serial", LoopKind::serial},
                                          {"parallel", LoopKind::parallel},
                                          {"vectorized", LoopKind::vectorized},
                                          {"unrolled", LoopKind::unrolled},
                                          {"bound", LoopKind::bound}};
constexpr Named<AxisKind> kAxisKinds[] = {
    {"spatial", AxisKind::spatial}, {"reduce", AxisKind::reduce}, {"scan", AxisKind::scan}};
constexpr Named<Scope> kScopes[] = {{"global", Scope::global},
                                    {"local", Scope::local},
                                    {"registers", Scope::registers},
                                    {"shared", Scope::shared}};

template <class T, size_t N>
std::optional<T> find_named(const Named<T> (&table)[N], std::string_view name) {
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

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

// Recursive descent. Typing rules are those of each node's make(), whose refusal becomes the text's error.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  // Where the parser stands, for errors that make() finds.
  size_t offset() const { return tokens_[at_ == 0 ? 0 : at_ - 1].offset; }

  Func func() {
    keyword("func");
    Func f;
    f.name = name("the function's name");
    if (accept("<")) {
      list(">", [&] {
        Var dim(name("a dimension's name"));
        declare(dim.name(), dim);
        f.dims.push_back(dim);
      });
    }
    expect("(");
    list(")", [&] { f.params.push_back(buffer_declaration()); });
    size_t inputs = f.params.size();
    expect("->");
    expect("(");
    list(")", [&] { f.params.push_back(buffer_declaration()); });
    f.num_outputs = static_cast<int>(f.params.size() - inputs);
    f.annotations = annotations();
    expect("{");
    std::vector<Stmt> first;
    while (first.empty() && is_word("alloc") && !is_symbol("[", 1)) {
      ++at_;
      size_t mark = scope_.size();
      Buffer b = buffer_declaration();
      if (is_symbol("{")) {
        first.push_back(Allocate::make(b, braces()));
        close_scope(mark);
      } else {
        f.allocs.push_back(b);
      }
    }
    f.body = rest_of_braces(std::move(first));
    if (peek().kind != TokenKind::end) unexpected("the end of the text");
    return f;
  }

  Expr lone_expr(const std::vector<Var>& vars, const std::vector<Buffer>& buffers) {
    for (const Var& v : vars)
      declare(v.name(), v);
    for (const Buffer& b : buffers)
      declare(b.name(), b);
    Expr e = expr();
    if (peek().kind != TokenKind::end) unexpected("the end of the text");
    return e;
  }

 private:
  // ---- Tokens ----

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool is_symbol(std::string_view s, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::symbol && peek(ahead).text == s;
  }
  bool is_word(std::string_view s, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::name && peek(ahead).text == s;
  }
  [[noreturn]] void fail(std::string message, size_t token_offset) const {
    throw ParseError{std::move(message), token_offset};
  }
  [[noreturn]] void unexpected(std::string_view expected) const {
    const Token& t = peek();
    if (t.kind == TokenKind::invalid) fail(t.text, t.offset);
    std::string quoted = t.kind == TokenKind::end ? t.text : text("'", t.text, "'");
    fail(text("expected ", expected, ", got ", quoted), t.offset);
  }
  bool accept(std::string_view symbol) {
    if (!is_symbol(symbol)) return false;
    ++at_;
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!is_word(word)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) unexpected(text("'", symbol, "'"));
  }
  void keyword(std::string_view word) {
    if (!accept_word(word)) unexpected(text("'", word, "'"));
  }
  const std::string& name(std::string_view what) {
    if (peek().kind != TokenKind::name) unexpected(what);
    return tokens_[at_++].text;
  }
  // Items separated by commas up to the closing symbol, which is consumed.
  template <class F>
  void list(std::string_view close, F&& item) {
    if (accept(close)) return;
    do {
      item();
    } while (accept(","));
    expect(close);
  }

  // ---- Names ----

  void declare(const std::string& symbol_name, Symbol symbol) {
    symbols_[symbol_name].push_back(std::move(symbol));
    scope_.push_back(symbol_name);
  }
  void close_scope(size_t mark) {
    for (; scope_.size() > mark; scope_.pop_back())
      symbols_[scope_.back()].pop_back();
  }
  const Symbol& lookup(const Token& token) const {
    auto it = symbols_.find(token.text);
    if (it == symbols_.end() || it->second.empty())
      fail(text("unknown name '", token.text, "'"), token.offset);
    return it->second.back();
  }
  Buffer buffer() {
    const Token& token = peek();
    name("a buffer");
    const auto* b = std::get_if<Buffer>(&lookup(token));
    if (!b) fail(text("'", token.text, "' is not a buffer"), token.offset);
    return *b;
  }

  // ---- Declarations ----

  int64_t number() {
    bool negative = accept("-");
    if (peek().kind != TokenKind::integer) unexpected("a number");
    return integer_value(tokens_[at_++], negative);
  }

  int lanes() {
    size_t start = peek().offset;
    int64_t n = number();
    if (n < 1 || n > kMaxLanes) fail("a number of lanes outside 1 .. 65536", start);
    return static_cast<int>(n);
  }

  Buffer buffer_declaration() {
    std::string buffer_name = name("a buffer's name");
    expect(":");
    const Token& token = peek();
    auto element = parse_element_type(name("an element type"));
    if (!element) fail(text("unknown element type '", token.text, "'"), token.offset);
    std::vector<Expr> shape;
    expect("[");
    list("]", [&] { shape.push_back(expr()); });
    Scope scope = Scope::global;
    if (peek().kind == TokenKind::name && !is_symbol("[", 1)) {
      if (auto given = find_named(kScopes, peek().text)) {
        scope = *given;
        ++at_;
      }
    }
    int64_t alignment = 64;
    if (is_word("align") && !is_symbol("[", 1)) {
      ++at_;
      alignment = number();
      if (alignment < 1 || alignment > 65536) fail("an alignment outside 1 .. 65536", offset());
    }
    Buffer b(buffer_name, *element, std::move(shape), scope, static_cast<int>(alignment));
    declare(buffer_name, b);
    return b;
  }

  Annotations annotations() {
    Annotations out;
    if (!accept("@{")) return out;
    list("}", [&] {
      std::string key = name("a key");
      expect("=");
      if (peek().kind == TokenKind::string) {
        out[key] = tokens_[at_++].text;
      } else {
        out[key] = number();
      }
    });
    return out;
  }

  // ---- Statements ----

  Stmt braces() {
    expect("{");
    return rest_of_braces({});
  }

  Stmt rest_of_braces(std::vector<Stmt> stmts) {
    size_t mark = scope_.size();
    enter();
    while (!accept("}"))
      stmts.push_back(stmt());
    leave();
    close_scope(mark);
    return Seq::make(std::move(stmts));
  }

  Stmt stmt() {
    if (peek().kind != TokenKind::name) unexpected("a statement");
    if (is_symbol("[", 1)) return store();
    if (is_word("for") || is_word("for", 1)) return loop();
    if (accept_word("block")) return block();
    if (accept_word("if")) return branch();
    if (accept_word("let")) return let();
    if (accept_word("evaluate")) return Evaluate::make(expr());
    if (accept_word("alloc")) {
      size_t mark = scope_.size();
      Buffer b = buffer_declaration();
      Stmt body = braces();
      close_scope(mark);
      return Allocate::make(b, body);
    }
    unexpected("a statement");
  }

  Stmt store() {
    Buffer b = buffer();
    Expr predicate;
    std::vector<Expr> indices = access(&predicate);
    expect("=");
    Expr value = expr();
    adapt(value, Type{b.element(), 1});
    return Store::make(b, std::move(indices), value, predicate);
  }

  Stmt loop() {
    LoopKind kind = LoopKind::serial;
    if (!is_word("for")) {
      auto given = find_named(kLoopKinds, peek().text);
      if (!given) unexpected("a kind of loop");
      kind = *given;
      ++at_;
    }
    keyword("for");
    Var var(name("a loop variable"));
    keyword("in");
    Range range = this->range();
    Annotations facts = annotations();
    size_t mark = scope_.size();
    declare(var.name(), var);
    Stmt body = braces();
    close_scope(mark);
    return For::make(var, range.min, range.extent, kind, body, std::move(facts));
  }

  // EXTENT [from MIN]
  Range range() {
    Expr extent = expr();
    Expr min = accept_word("from") ? expr() : Expr(0);
    return {min, extent};
  }

  Stmt block() {
    auto* block = new Block;
    Stmt owner(block);  // keeps the node alive until make() takes it, and frees it after an error
    block->name = name("a block's name");
    expect("(");
    list(")", [&] {
      Axis axis;
      axis.var = Var(name("an axis"));
      expect("=");
      block->values.push_back(expr());
      expect(":");
      auto kind = peek().kind == TokenKind::name ? find_named(kAxisKinds, peek().text) : std::nullopt;
      if (!kind) unexpected("spatial, reduce or scan");
      ++at_;
      axis.kind = *kind;
      axis.domain = range();
      block->axes.push_back(std::move(axis));
    });
    if (accept_word("where")) block->predicate = expr();
    size_t mark = scope_.size();
    for (const Axis& axis : block->axes)
      declare(axis.var.name(), axis.var);
    if (accept_word("reads")) block->reads = regions();
    if (accept_word("writes")) block->writes = regions();
    block->annotations = annotations();
    expect("{");
    if (is_word("init") && is_symbol("{", 1)) {
      ++at_;
      block->init = braces();
    }
    block->body = rest_of_braces({});
    close_scope(mark);
    return Block::make(block);
  }

  std::vector<Region> regions() {
    std::vector<Region> out;
    do {
      Region region{buffer(), {}};
      expect("[");
      list("]", [&] {
        Expr min = expr();
        region.ranges.push_back({min, accept("+:") ? expr() : Expr(1)});
      });
      if (static_cast<int>(region.ranges.size()) != region.buffer.rank()) {
        fail(text("region of ", region.buffer.name(), " with ", region.ranges.size(), " ranges, rank is ",
                  region.buffer.rank()),
             offset());
      }
      out.push_back(std::move(region));
    } while (accept(","));
    return out;
  }

  Stmt branch() {
    Expr condition = expr();
    Stmt then_body = braces(), else_body;
    if (accept_word("else")) else_body = braces();
    return If::make(condition, then_body, else_body);
  }

  // Without braces the variable holds for the rest of the enclosing ones, whose "}" the caller then finds.
  Stmt let() {
    std::string var_name = name("a variable");
    expect("=");
    Expr value = expr();
    Var var(var_name, value.type());
    size_t mark = scope_.size();
    declare(var_name, var);
    Stmt body;
    if (is_symbol("{")) {
      body = braces();
    } else {
      std::vector<Stmt> stmts;
      enter();
      while (!is_symbol("}"))
        stmts.push_back(stmt());
      leave();
      body = Seq::make(std::move(stmts));
    }
    close_scope(mark);
    return Let::make(var, value, body);
  }

  // ---- Expressions ----

  void enter() {
    if (++depth_ > kMaxDepth) fail(text("nested deeper than ", kMaxDepth), peek().offset);
  }
  void leave() { --depth_; }

  static bool is_bare_integer(const Expr& e) { return e.as<IntImm>() && e.type() == kIndex; }
  // A bare integer takes the type of what it stands beside.
  static void adapt(Expr& e, Type type) {
    if (is_bare_integer(e) && type != kIndex) e = constant_int(type, e.as<IntImm>()->value);
  }
  static void adapt(Expr& a, Expr& b) {
    adapt(a, b.type());
    adapt(b, a.type());
  }

  Expr expr(int min_precedence = 1) {
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

  void no_chain(BinaryOp op) const {
    auto next = peek().kind == TokenKind::symbol ? find_named(kInfix, peek().text) : std::nullopt;
    if (next && is_comparison(*next)) {
      fail(text("comparisons do not chain: '", to_text(op), "' before '", peek().text, "'"), peek().offset);
    }
  }

  Expr unary() {
    if (!accept("-")) return primary();
    if (peek().kind == TokenKind::integer || peek().kind == TokenKind::floating) {
      return literal(tokens_[at_++], true);
    }
    enter();
    Expr operand = unary();
    leave();
    return -operand;
  }

  Expr primary() {
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
  std::vector<Expr> access(Expr* predicate) {
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

  std::vector<Expr> arguments() {
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
  std::vector<Expr> arguments(const Token& function, size_t count) {
    std::vector<Expr> args = arguments();
    if (args.size() != count) {
      fail(text(function.text, " takes ", count, " arguments, got ", args.size()), function.offset);
    }
    return args;
  }

  Expr call_or_cast() {
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
  Expr typed_call() {
    const Token& token = tokens_[at_];
    auto function = find_named(kIntrinsics, token.text);
    if (!function) fail(text("unknown function '", token.text, "'"), token.offset);
    auto type = parse_type(peek(2).text);
    if (!type) fail(text("unknown type '", peek(2).text, "'"), peek(2).offset);
    at_ += 5;
    return Call::make(*type, *function, arguments());
  }

  // Arguments of different types.
  Expr mixed_call(Intrinsic function) {
    std::vector<Expr> args;
    list(")", [&] { args.push_back(expr()); });
    return Call::make(function, std::move(args));
  }

  Expr select_call() {
    Expr condition = expr();
    expect(",");
    Expr a = expr();
    expect(",");
    Expr b = expr();
    expect(")");
    adapt(a, b);
    return Select::make(condition, a, b);
  }

  Expr ramp_call() {
    Expr base = expr();
    expect(",");
    Expr stride = expr();
    expect(",");
    int count = lanes();
    expect(")");
    adapt(base, stride);
    return Ramp::make(base, stride, count);
  }

  Expr shuffle_call() {
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

  int64_t integer_value(const Token& token, bool negative) const {
    uint64_t magnitude = 0;
    const char* end = token.text.data() + token.text.size();
    auto [stop, error] = std::from_chars(token.text.data(), end, magnitude);
    bool fits = error == std::errc() && stop == end;
    if (negative) fits = fits && magnitude <= uint64_t{1} << 63;
    if (!negative && token.element != ElementType::u64) fits = fits && magnitude < uint64_t{1} << 63;
    if (!fits) fail(text("number '", token.text, "' is out of range"), token.offset);
    return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  }

  double float_value(const Token& token, ElementType element) const {
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

  Expr literal(const Token& token, bool negative) const {
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

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::unordered_map<std::string, std::vector<Symbol>> symbols_;
  std::vector<std::string> scope_;  // declared names, innermost last
};

Diagnostic error_at(std::string_view source, std::string_view file, size_t offset, std::string message) {
  std::string_view before = source.substr(0, std::min(offset, source.size()));
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t line_start = before.rfind('\n');
  size_t column = line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return {ErrorKind::bad_input, text(file, ":", line, ":", column), std::move(message), ""};
}

}  // namespace

namespace {

template <class F>
auto run_parser(std::string_view source, std::string_view file, F&& body)
    -> Result<decltype(body(std::declval<Parser&>()))> {
  Parser parser(source);
  try {
    return body(parser);
  } catch (const ParseError& e) {
    return error_at(source, file, e.offset, e.message);
  } catch (const InternalError& e) {  // a typing rule of some node's make()
    return error_at(source, file, parser.offset(), e.message());
  }
}

}  // namespace

Result<Func> parse_func(std::string_view source, std::string_view file) {
  return run_parser(source, file, [](Parser& p) { return p.func(); });
}

Result<Expr> parse_expr(std::string_view source, const std::vector<Var>& vars,
                        const std::vector<Buffer>& buffers) {
  return run_parser(source, "<expression>", [&](Parser& p) { return p.lone_expr(vars, buffers); });
}

}  // namespace mcc::tensor
