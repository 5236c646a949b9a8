#include "tensor/passes/scope.h"

#include "tensor/text.h"

namespace mcc::tensor {

Stmt ScopedMutator::on(const For& n, const Stmt& self) {
  return in_scope([&] {
    analyzer_.bind(n.var, n.min, n.extent);
    return Mutator::on(n, self);
  });
}

Stmt ScopedMutator::on(const If& n, const Stmt& self) {
  Expr condition = mutate(n.condition);
  Stmt then_body = in_scope([&] {
    analyzer_.assume(condition);
    return mutate(n.then_body);
  });
  Stmt else_body = !n.else_body ? Stmt() : in_scope([&] {
    analyzer_.assume(logical_not(condition));
    return mutate(n.else_body);
  });
  if (condition.same_as(n.condition) && then_body.same_as(n.then_body) && else_body.same_as(n.else_body)) {
    return self;
  }
  if (!then_body && !else_body) return nullptr;
  if (!then_body) return If::make(logical_not(condition), else_body);
  return If::make(condition, then_body, else_body);
}

Stmt with_body(const For& loop, const Stmt& body) {
  if (!body) return nullptr;
  return For::make(loop.var, loop.min, loop.extent, loop.loop, body, loop.annotations);
}

Stmt with_kind(const For& loop, LoopKind kind, const Stmt& body) {
  if (!body) return nullptr;
  return For::make(loop.var, loop.min, loop.extent, kind, body, loop.annotations);
}

namespace {

class FindLoad : public Visitor {
 public:
  bool found = false;

 protected:
  using Visitor::on;
  void on(const Load&) override { found = true; }
};

class FindVarIf : public Visitor {
 public:
  explicit FindVarIf(const std::function<bool(const VarNode*)>& f) : f_(f) {}
  bool found = false;

 protected:
  using Visitor::on;
  void on(const VarNode& n) override { found |= f_(&n); }

 private:
  const std::function<bool(const VarNode*)>& f_;
};

class ReplaceTerm : public Mutator {
 public:
  ReplaceTerm(const Expr& term, bool truth) : term_(term), truth_(truth) {}

 protected:
  using Mutator::on;
  Expr on(const Binary& n, const Expr& self) override {
    if (is_comparison(n.op) && structurally_equal(self, term_)) return truth_ ? true_value() : false_value();
    return Mutator::on(n, self);
  }

 private:
  const Expr& term_;
  bool truth_;
};

class CountLeaves : public Visitor {
 public:
  int64_t count = 0;

 protected:
  using Visitor::on;
  void on(const Store&) override { ++count; }
  void on(const Evaluate&) override { ++count; }
};

}  // namespace

Stmt replace_term(const Stmt& s, const Expr& term, bool truth) { return ReplaceTerm(term, truth).mutate(s); }

std::vector<Stmt> merge_conditions(const std::vector<Stmt>& stmts) {
  std::vector<Stmt> out;
  for (const Stmt& s : stmts) {
    const auto* next = s.as<If>();
    const auto* last = out.empty() ? nullptr : out.back().as<If>();
    const bool merges = next && last && !next->else_body && !last->else_body && !has_load(next->condition) &&
                        structurally_equal(next->condition, last->condition);
    if (merges) {
      out.back() = If::make(last->condition, Seq::make({last->then_body, next->then_body}));
    } else {
      out.push_back(s);
    }
  }
  return out;
}

bool has_load(const Expr& e) {
  FindLoad find;
  find.visit(e);
  return find.found;
}

bool loads_from(const Expr& e, const Buffer& buffer) {
  class Find : public Visitor {
   public:
    explicit Find(const Buffer& b) : buffer_(b) {}
    bool found = false;

   protected:
    using Visitor::on;
    void on(const Load& n) override {
      found |= n.buffer.same_as(buffer_);
      Visitor::on(n);
    }

   private:
    const Buffer& buffer_;
  };
  Find find(buffer);
  find.visit(e);
  return find.found;
}

bool uses_any_var(const Expr& e, const std::function<bool(const VarNode*)>& f) {
  FindVarIf find(f);
  find.visit(e);
  return find.found;
}

bool has_loop(const Stmt& s) {
  bool found = false;
  for_each_stmt(s, [&](const Stmt& below) { found |= below.kind() == StmtKind::For; });
  return found;
}

bool is_call(const Stmt& s, Intrinsic function) {
  const auto* n = s.as<Evaluate>();
  const auto* call = n ? n->value.as<Call>() : nullptr;
  return call && call->function == function;
}

int64_t count_leaves(const Stmt& s) {
  CountLeaves count;
  count.visit(s);
  return count.count;
}

std::optional<int64_t> constant_bytes(const Buffer& buffer) {
  int64_t bytes = byte_size(buffer.element());
  for (const Expr& extent : buffer.shape()) {
    int64_t value = 0;
    if (!as_int(extent, &value) || value < 0 || value > (int64_t{1} << 40)) return std::nullopt;
    if (__builtin_mul_overflow(bytes, value, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace mcc::tensor
