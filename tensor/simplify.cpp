#include "tensor/simplify.h"

#include "tensor/simplifier.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {

// ---- Analyzer ----

struct Analyzer::State {
  Simplifier simplifier;
};

Analyzer::Analyzer() : state_(std::make_unique<State>()) {}
Analyzer::~Analyzer() = default;
Analyzer::Analyzer(const Analyzer& other) : state_(std::make_unique<State>(*other.state_)) {}
Analyzer& Analyzer::operator=(const Analyzer& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}

void Analyzer::bind(const Var& var, const Expr& min, const Expr& extent) {
  state_->simplifier.bind_range(var, min, extent);
}
void Analyzer::bind(const Var& var, const Expr& value) { state_->simplifier.bind_value(var, value); }
void Analyzer::assume(const Expr& condition) { state_->simplifier.assume(condition); }

Interval Analyzer::bounds(const Expr& e) const {
  Span span = state_->simplifier.bounds(e);
  Interval out;
  if (span.has_lo()) out.low = span.lo;
  if (span.has_hi()) out.high = span.hi;
  return out;
}

Expr Analyzer::simplify(const Expr& e) const { return state_->simplifier.simplify(e); }

bool Analyzer::can_prove(const Expr& condition) const { return is_true(simplify(condition)); }

std::optional<int64_t> Analyzer::constant_difference(const Expr& a, const Expr& b) const {
  int64_t value = 0;
  if (a.type() != kIndex || b.type() != kIndex) return std::nullopt;
  if (!as_int(simplify(a - b), &value)) return std::nullopt;
  return value;
}

// ---- Statements ----

namespace {

class SimplifyStmt : public Mutator {
 public:
  Simplifier facts;

 protected:
  using Mutator::on;
#define X(Name) \
  Expr on(const Name&, const Expr& self) override { return facts.simplify(self); }
  X(IntImm)
  X(FloatImm)
  X(VarNode)
  X(Cast) X(Binary) X(Select) X(Load) X(Ramp) X(Broadcast) X(Shuffle) X(VectorReduce) X(Call)
#undef X

      // Runs body with a copy of the facts, which it may extend, and goes back to those of before.
      template <class F>
      auto scoped(F&& body) {
    Simplifier saved = std::move(facts);
    facts = saved;
    auto out = body();
    facts = std::move(saved);
    return out;
  }

  Stmt on(const For& n, const Stmt& self) override {
    Expr min = mutate(n.min), extent = mutate(n.extent);
    Span count = facts.bounds(extent);
    if (count.hi <= 0) return nullptr;
    bool single = is_int(extent, 1) && n.loop != LoopKind::bound;
    Stmt body = scoped([&] {
      if (single) {
        facts.bind_value(n.var, min);
      } else {
        facts.bind_range(n.var, min, extent);
      }
      return mutate(n.body);
    });
    if (single || !body) return body;
    if (min.same_as(n.min) && extent.same_as(n.extent) && body.same_as(n.body)) return self;
    return For::make(n.var, min, extent, n.loop, body, n.annotations);
  }

  Stmt on(const Block& n, const Stmt& self) override {
    Expr predicate = mutate(n.predicate);
    if (is_false(predicate)) return nullptr;
    bool changed = !predicate.same_as(n.predicate);
    std::vector<Expr> values = mutate(n.values, &changed);
    auto* block = n.copy();
    Stmt owner(block);
    for (Axis& axis : block->axes) {
      Range domain{mutate(axis.domain.min), mutate(axis.domain.extent)};
      changed |= !domain.min.same_as(axis.domain.min) || !domain.extent.same_as(axis.domain.extent);
      axis.domain = domain;
    }
    Stmt body = scoped([&] {
      for (const Axis& axis : block->axes)
        facts.bind_range(axis.var, axis.domain.min, axis.domain.extent);
      for (Region& r : block->reads)
        r = mutate(r, &changed);
      for (Region& r : block->writes)
        r = mutate(r, &changed);
      block->init = mutate(n.init);
      return mutate(n.body);
    });
    changed |= !block->init.same_as(n.init) || !body.same_as(n.body);
    if (!changed) return self;
    if (!body) return nullptr;
    block->predicate = predicate;
    block->values = std::move(values);
    block->body = body;
    return Block::make(block);
  }

  Stmt on(const If& n, const Stmt& self) override {
    Expr condition = mutate(n.condition);
    if (is_true(condition)) return mutate(n.then_body);
    if (is_false(condition)) return mutate(n.else_body);
    Stmt then_body = under(condition, n.then_body);
    Stmt else_body;
    if (n.else_body) else_body = under(facts.simplify(logical_not(condition)), n.else_body);
    if (!then_body && !else_body) return nullptr;
    if (!then_body) return If::make(facts.simplify(logical_not(condition)), else_body);
    bool same =
        condition.same_as(n.condition) && then_body.same_as(n.then_body) && else_body.same_as(n.else_body);
    return same ? self : If::make(condition, then_body, else_body);
  }

  // A value that costs nothing replaces its variable; of others the bounds are known.
  Stmt on(const Let& n, const Stmt& self) override {
    Expr value = mutate(n.value);
    double number = 0;
    bool trivial = value.as<VarNode>() || as_number(value, &number);
    Stmt body = scoped([&] {
      if (trivial) {
        facts.bind_value(n.var, value);
      } else if (value.type() == kIndex) {
        facts.bind_span(n.var, facts.bounds(value));
      }
      return mutate(n.body);
    });
    if (trivial || !body) return body;
    return value.same_as(n.value) && body.same_as(n.body) ? self : Let::make(n.var, value, body);
  }

  Stmt on(const Store& n, const Stmt& self) override {
    bool changed = false;
    std::vector<Expr> indices = mutate(n.indices, &changed);
    Expr value = mutate(n.value), predicate = mutate(n.predicate);
    if (predicate.defined() && is_false(predicate)) return nullptr;
    if (predicate.defined() && is_true(predicate)) predicate = nullptr;
    if (!changed && value.same_as(n.value) && predicate.same_as(n.predicate)) return self;
    return Store::make(n.buffer, std::move(indices), value, predicate);
  }

 private:
  Stmt under(const Expr& condition, const Stmt& body) {
    return scoped([&] {
      facts.assume(condition);
      return mutate(body);
    });
  }
};

Stmt nothing() { return Seq::make({}); }

}  // namespace

Expr simplify(const Expr& e) { return Simplifier().simplify(e); }

Stmt simplify(const Stmt& s) {
  Stmt out = SimplifyStmt().mutate(s);
  return out ? out : nothing();
}

Func simplify(const Func& f) {
  SimplifyStmt pass;
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(f);
  for (size_t i = 0; i < f.dims.size(); ++i)
    if (!ranges || (*ranges)[i].min >= 0) pass.facts.bind_span(f.dims[i], {0, kPosInf});
  Func out = f;
  out.body = pass.mutate(f.body);
  if (!out.body) out.body = nothing();
  return out;
}

// ---- Linear forms ----

std::optional<LinearForm> linear_form(const Expr& e, const std::vector<Var>& vars) {
  if (e.type() != kIndex) return std::nullopt;
  Linear l = Simplifier().linear(e);
  LinearForm form;
  form.coefficients.resize(vars.size());
  Linear rest(l.constant);
  for (const Term& t : l.terms) {
    bool found = false;
    for (size_t i = 0; i < vars.size() && !found; ++i) {
      found = t.atom.get() == vars[i].get();
      if (found) form.coefficients[i] = t.coefficient;
    }
    if (found) continue;
    for (const Var& v : vars) {
      if (uses_var(t.atom, v)) return std::nullopt;
    }
    add_term(rest, t.atom, t.coefficient);
  }
  form.rest = to_expr(rest);
  return form;
}

}  // namespace mcc::tensor
