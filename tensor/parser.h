// The machine behind parse_func and parse_expr, by recursive descent. Internal to tensor/; functions, declarations and statements
// are in parse.cpp, expressions and literals in parse_expr.cpp.
//
// Typing rules are those of each node's make(), whose refusal becomes the text's error.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <variant>

#include "support/text.h"
#include "tensor/lexer.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

struct ParseError {
  std::string message;
  size_t offset;
};

// A word of the text form, and what it stands for.
template <class T>
struct Named {
  std::string_view name;
  T value;
};

template <class T, size_t N>
std::optional<T> find_named(const Named<T> (&table)[N], std::string_view name) {
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

// Throws ParseError, and what make() throws.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  // Where the parser stands, for errors that make() finds.
  size_t offset() const { return tokens_[at_ == 0 ? 0 : at_ - 1].offset; }

  // The whole text.
  Func func();
  Expr lone_expr(const std::vector<Var>& vars, const std::vector<Buffer>& buffers);

 private:
  static constexpr int kMaxDepth = 500;  // so that no text exhausts the stack

  using Symbol = std::variant<Var, Buffer>;

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
  Buffer buffer();

  // Around what may nest.
  void enter() {
    if (++depth_ > kMaxDepth) fail(text("nested deeper than ", kMaxDepth), peek().offset);
  }
  void leave() { --depth_; }

  // ---- Functions and statements (parse.cpp) ----

  Buffer buffer_declaration();
  Annotations annotations();
  Stmt braces();
  Stmt rest_of_braces(std::vector<Stmt> stmts);
  Stmt stmt();
  Stmt store();
  Stmt loop();
  Stmt block();
  Stmt branch();
  Stmt let();
  Range range();
  std::vector<Region> regions();

  // ---- Expressions (parse_expr.cpp) ----

  static bool is_bare_integer(const Expr& e) { return e.as<IntImm>() && e.type() == kIndex; }
  // A bare integer takes the type of what it stands beside.
  static void adapt(Expr& e, Type type) {
    if (is_bare_integer(e) && type != kIndex) e = constant_int(type, e.as<IntImm>()->value);
  }
  static void adapt(Expr& a, Expr& b) {
    adapt(a, b.type());
    adapt(b, a.type());
  }

  Expr expr(int min_precedence = 1);
  void no_chain(BinaryOp op) const;
  Expr unary();
  Expr primary();
  std::vector<Expr> access(Expr* predicate);
  std::vector<Expr> arguments();
  std::vector<Expr> arguments(const Token& function, size_t count);
  Expr call_or_cast();
  Expr typed_call();
  Expr mixed_call(Intrinsic function);
  Expr select_call();
  Expr ramp_call();
  Expr shuffle_call();

  int64_t number();
  int lanes();
  int64_t integer_value(const Token& token, bool negative) const;
  double float_value(const Token& token, ElementType element) const;
  Expr literal(const Token& token, bool negative) const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::unordered_map<std::string, std::vector<Symbol>> symbols_;
  std::vector<std::string> scope_;  // declared names, innermost last
};

}  // namespace mcc::tensor
