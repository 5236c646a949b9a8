#include <algorithm>
#include <utility>

#include "tensor/parser.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

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
                                    {"shared", Scope::shared},
                                    {"warp", Scope::warp}};

}  // namespace

Func Parser::func() {
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

// ---- Declarations ----

Buffer Parser::buffer_declaration() {
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

Annotations Parser::annotations() {
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

Stmt Parser::braces() {
  expect("{");
  return rest_of_braces({});
}

Stmt Parser::rest_of_braces(std::vector<Stmt> stmts) {
  size_t mark = scope_.size();
  enter();
  while (!accept("}"))
    stmts.push_back(stmt());
  leave();
  close_scope(mark);
  return Seq::make(std::move(stmts));
}

Stmt Parser::stmt() {
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

Stmt Parser::store() {
  Buffer b = buffer();
  Expr predicate;
  std::vector<Expr> indices = access(&predicate);
  expect("=");
  Expr value = expr();
  adapt(value, Type{b.element(), 1});
  return Store::make(b, std::move(indices), value, predicate);
}

Stmt Parser::loop() {
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
Range Parser::range() {
  Expr extent = expr();
  Expr min = accept_word("from") ? expr() : Expr(0);
  return {min, extent};
}

Stmt Parser::block() {
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

std::vector<Region> Parser::regions() {
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

Stmt Parser::branch() {
  Expr condition = expr();
  Stmt then_body = braces(), else_body;
  if (accept_word("else")) else_body = braces();
  return If::make(condition, then_body, else_body);
}

// Without braces the variable holds for the rest of the enclosing ones, whose "}" the caller then finds.
Stmt Parser::let() {
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

// ---- The whole text ----

namespace {

Diagnostic error_at(std::string_view source, std::string_view file, size_t offset, std::string message) {
  std::string_view before = source.substr(0, std::min(offset, source.size()));
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t line_start = before.rfind('\n');
  size_t column = line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return {ErrorKind::bad_input, text(file, ":", line, ":", column), std::move(message), ""};
}

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
