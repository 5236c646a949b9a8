#include <charconv>
#include <cmath>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "support/hash.h"
#include "tensor/syntax.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

constexpr int kAnyPrecedence = 0;
constexpr int kOperand = 100;

std::string quoted_name(const std::string& name) { return is_plain_name(name) ? name : text("`", name, "`"); }

std::string quoted_string(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Shortest digits that read back as the same value of the element type. All but f64 are exact in float.
std::string float_text(ElementType element, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = element == ElementType::f64
                 ? std::to_chars(buffer, buffer + sizeof buffer, value).ptr
                 : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr;
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

class Printer {
 public:
  explicit Printer(bool canonical = false) : canonical_(canonical) {}

  std::string take() { return std::move(out_); }

  void expr(const Expr& e, int context = kAnyPrecedence) {
    dispatch(e, [&](const auto& n) { print(n, context); });
  }

  void stmt(const Stmt& s) {
    if (s) dispatch(s, [&](const auto& n) { print(n); });
  }

  void func(const Func& f) {
    put("func ", canonical_ ? "f" : quoted_name(f.name));
    if (!f.dims.empty()) {
      put("<");
      list(f.dims, [&](const Var& dim) { put(declare(dim.get(), dim.name(), "v")); });
      put(">");
    }
    auto parameter = [&](const Buffer& b) { declare_buffer(b); };
    std::span<const Buffer> params = f.params;
    put("(");
    list(params.first(static_cast<size_t>(f.num_inputs())), parameter);
    put(") -> (");
    list(params.subspan(static_cast<size_t>(f.num_inputs())), parameter);
    put(")");
    annotations(f.annotations);
    put(" {\n");
    ++indent_;
    for (const Buffer& b : f.allocs) {
      line_start();
      put("alloc ");
      declare_buffer(b);
      put("\n");
    }
    stmt(f.body);
    --indent_;
    put("}\n");
  }

 private:
  // ---- Names ----

  // A name for a node that no other node in sight has.
  const std::string& declare(const void* node, const std::string& name, std::string_view prefix) {
    std::string unique = canonical_ ? text(prefix, next_number_++) : name;
    for (int i = 1; !used_.insert(unique).second; ++i)
      unique = text(name, "_", i);
    scope_.push_back(node);
    raw_[node] = unique;
    return shown_[node] = quoted_name(unique);
  }
  const std::string& name_of(const ExprNode* var, const std::string& name) {
    auto it = shown_.find(var);
    return it != shown_.end() ? it->second : declare_free(var, name);
  }
  const std::string& name_of(const Buffer& b) {
    auto it = shown_.find(b.get());
    return it != shown_.end() ? it->second : declare_free(b.get(), b.name());
  }
  // Free variables of a printed fragment keep their name to the end.
  const std::string& declare_free(const void* node, const std::string& name) {
    declare(node, name, "free");
    scope_.pop_back();
    return shown_[node];
  }
  template <class F>
  void in_scope(F&& body) {
    size_t mark = scope_.size();
    body();
    for (; scope_.size() > mark; scope_.pop_back()) {
      used_.erase(raw_[scope_.back()]);
      shown_.erase(scope_.back());
    }
  }

  // ---- Pieces ----

  template <class... Args>
  void put(const Args&... args) {
    (append_text(out_, args), ...);
  }
  void line_start() { out_.append(static_cast<size_t>(2 * indent_), ' '); }

  template <class Range, class F>
  void list(const Range& range, F&& item) {
    bool first = true;
    for (const auto& x : range) {
      if (!first) put(", ");
      first = false;
      item(x);
    }
  }
  void exprs(const std::vector<Expr>& range) {
    list(range, [&](const Expr& e) { expr(e); });
  }

  void access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate) {
    put(name_of(buffer), "[");
    exprs(indices);
    if (predicate.defined()) {
      put("; ");
      expr(predicate);
    }
    put("]");
  }

  void region(const Region& r) {
    put(name_of(r.buffer), "[");
    list(r.ranges, [&](const Range& range) {
      expr(range.min);
      if (is_int(range.extent, 1)) return;
      put(" +: ");
      expr(range.extent);
    });
    put("]");
  }

  // The shape is printed before the buffer's own name is in sight.
  void declare_buffer(const Buffer& b) {
    std::string type(mcc::to_text(b.element()));
    std::swap(out_, type);
    put("[");
    exprs(b.shape());
    put("]");
    std::swap(out_, type);
    put(declare(b.get(), b.name(), "b"), ": ", type);
    if (b.scope() != Scope::global) put(" ", to_text(b.scope()));
    if (b.get()->alignment != 64) put(" align ", b.get()->alignment);
  }

  void annotations(const Annotations& map) {
    if (map.empty()) return;
    put(" @{");
    list(map, [&](const auto& entry) {
      put(quoted_name(entry.first), "=");
      if (const auto* number = std::get_if<int64_t>(&entry.second)) {
        put(*number);
      } else {
        put(quoted_string(std::get<std::string>(entry.second)));
      }
    });
    put("}");
  }

  // "{", the statements, and "}" without a line end.
  void braces(const Stmt& body) {
    put("{\n");
    ++indent_;
    stmt(body);
    --indent_;
    line_start();
    put("}");
  }

  // ---- Expressions ----

  void print(const IntImm& n, int) {
    if (is_bool(n.type.element)) return put(n.value != 0);
    if (n.type.element == ElementType::u64) {
      put(static_cast<uint64_t>(n.value));
    } else {
      put(n.value);
    }
    if (n.type.element != ElementType::i64) put(":", to_text(n.type));
  }
  void print(const FloatImm& n, int) {
    put(float_text(n.type.element, n.value));
    if (n.type.element != ElementType::f32) put(":", to_text(n.type));
  }
  void print(const VarNode& n, int) { put(name_of(&n, n.name)); }
  void print(const Cast& n, int) {
    put(to_text(n.type), "(");
    expr(n.value);
    put(")");
  }
  void print(const Binary& n, int context) {
    int own = precedence(n.op);
    if (own == 0) {
      put(to_text(n.op), "(");
      exprs({n.a, n.b});
      return put(")");
    }
    bool parenthesised = own < context;
    if (parenthesised) put("(");
    expr(n.a, is_comparison(n.op) ? own + 1 : own);
    put(" ", to_text(n.op), " ");
    expr(n.b, own + 1);
    if (parenthesised) put(")");
  }
  void print(const Select& n, int) {
    put("select(");
    exprs({n.condition, n.on_true, n.on_false});
    put(")");
  }
  void print(const Load& n, int) { access(n.buffer, n.indices, n.predicate); }
  void print(const Ramp& n, int) {
    put("ramp(");
    exprs({n.base, n.stride});
    put(", ", n.type.lanes, ")");
  }
  void print(const Broadcast& n, int) {
    put("broadcast(");
    expr(n.value);
    put(", ", n.type.lanes, ")");
  }
  void print(const Shuffle& n, int) {
    put("shuffle(");
    exprs(n.vectors);
    put("; ", join(n.indices, ", "), ")");
  }
  void print(const VectorReduce& n, int) {
    switch (n.op) {
#define X(name, symbol)       \
  case BinaryOp::name:        \
    put("reduce_" #name "("); \
    break;
      MCC_BINARY_OPS(X)
#undef X
    }
    expr(n.value);
    put(")");
  }
  void print(const Call& n, int) {
    put(to_text(n.function));
    bool follows = n.function != Intrinsic::bit_cast && Call::make(n.function, n.args).type() == n.type;
    if (!follows) put("<", to_text(n.type), ">");
    put("(");
    exprs(n.args);
    put(")");
  }

  // ---- Statements ----

  void print(const For& n) {
    line_start();
    if (n.loop != LoopKind::serial) put(to_text(n.loop), " ");
    // The bounds are outside of the variable's scope.
    std::string head;
    std::swap(out_, head);
    expr(n.extent);
    if (!is_int(n.min, 0)) {
      put(" from ");
      expr(n.min);
    }
    std::swap(out_, head);
    in_scope([&] {
      put("for ", declare(n.var.get(), n.var.name(), "v"), " in ", head);
      annotations(n.annotations);
      put(" ");
      braces(n.body);
    });
    put("\n");
  }

  void print(const Block& n) {
    line_start();
    put("block ", quoted_name(n.name), "(");
    // Bindings, domains and the predicate are outside of the axes' scope.
    std::vector<std::string> bindings;
    auto outside = [&](auto&& body) {
      std::string piece;
      std::swap(out_, piece);
      body();
      std::swap(out_, piece);
      return piece;
    };
    for (size_t i = 0; i < n.axes.size(); ++i) {
      const Axis& axis = n.axes[i];
      bindings.push_back(outside([&] {
        expr(n.values[i]);
        put(": ", to_text(axis.kind), " ");
        expr(axis.domain.extent);
        if (!is_int(axis.domain.min, 0)) {
          put(" from ");
          expr(axis.domain.min);
        }
      }));
    }
    std::string predicate;
    if (!is_true(n.predicate)) predicate = outside([&] { expr(n.predicate); });
    in_scope([&] {
      for (size_t i = 0; i < n.axes.size(); ++i) {
        const Var& var = n.axes[i].var;
        put(i == 0 ? "" : ", ", declare(var.get(), var.name(), "v"), " = ", bindings[i]);
      }
      put(")");
      indent_ += 2;
      if (!predicate.empty()) {
        next_line();
        put("where ", predicate);
      }
      regions("reads", n.reads);
      regions("writes", n.writes);
      if (!n.annotations.empty()) {
        put("\n");
        out_.append(static_cast<size_t>(2 * indent_ - 1), ' ');
        annotations(n.annotations);
      }
      indent_ -= 2;
      put(" {\n");
      ++indent_;
      if (n.init) {
        line_start();
        put("init ");
        braces(n.init);
        put("\n");
      }
      stmt(n.body);
      --indent_;
      line_start();
      put("}\n");
    });
  }
  void next_line() {
    put("\n");
    line_start();
  }
  void regions(const char* keyword, const std::vector<Region>& list_of) {
    if (list_of.empty()) return;
    next_line();
    put(keyword, " ");
    list(list_of, [&](const Region& r) { region(r); });
  }

  void print(const Store& n) {
    line_start();
    access(n.buffer, n.indices, n.predicate);
    put(" = ");
    expr(n.value);
    put("\n");
  }

  // A let that is not the last of its sequence needs braces to end before the next statement.
  void print(const Seq& n) {
    for (size_t i = 0; i < n.stmts.size(); ++i) {
      const Let* let = n.stmts[i].as<Let>();
      if (let && i + 1 < n.stmts.size()) {
        print_let(*let, true);
      } else {
        stmt(n.stmts[i]);
      }
    }
  }

  void print(const If& n) {
    line_start();
    put("if ");
    expr(n.condition);
    put(" ");
    in_scope([&] { braces(n.then_body); });
    if (n.else_body) {
      put(" else ");
      in_scope([&] { braces(n.else_body); });
    }
    put("\n");
  }

  void print(const Let& n) { print_let(n, false); }
  void print_let(const Let& n, bool needs_braces) {
    line_start();
    std::string value;
    std::swap(out_, value);
    expr(n.value);
    std::swap(out_, value);
    in_scope([&] {
      put("let ", declare(n.var.get(), n.var.name(), "v"), " = ", value);
      if (needs_braces) {
        put(" ");
        braces(n.body);
        put("\n");
      } else {
        put("\n");
        stmt(n.body);
      }
    });
  }

  void print(const Allocate& n) {
    line_start();
    put("alloc ");
    in_scope([&] {
      declare_buffer(n.buffer);
      put(" ");
      braces(n.body);
    });
    put("\n");
  }

  void print(const Evaluate& n) {
    line_start();
    put("evaluate ");
    expr(n.value);
    put("\n");
  }

  const bool canonical_;
  std::string out_;
  int indent_ = 0;
  int next_number_ = 0;
  std::unordered_map<const void*, std::string> shown_, raw_;  // by node: the name as printed, and unquoted
  std::unordered_set<std::string> used_;
  std::vector<const void*> scope_;  // declared nodes, innermost last
};

}  // namespace

std::string to_text(const Expr& e) {
  if (!e.defined()) return "<undefined>";
  Printer printer;
  printer.expr(e);
  return printer.take();
}

std::string to_text(const Stmt& s) {
  Printer printer;
  printer.stmt(s);
  return printer.take();
}

std::string to_text(const Func& f) {
  Printer printer;
  printer.func(f);
  return printer.take();
}

std::string canonical_text(const Func& f) {
  Printer printer(true);
  printer.func(f);
  return printer.take();
}

bool structurally_equal(const Func& a, const Func& b) { return canonical_text(a) == canonical_text(b); }

uint64_t structural_hash(const Func& f) { return hash_bytes(canonical_text(f)); }

}  // namespace mcc::tensor
