#include "tensor/visit.h"

#include <algorithm>

#include "tensor/intrinsics.h"
#include "tensor/text.h"

namespace mcc::tensor {

// ---- Visitor ----

void Visitor::visit(const Expr& e) {
  if (e.defined()) dispatch(e, [this](const auto& node) { on(node); });
}
void Visitor::visit(const Stmt& s) {
  if (s) dispatch(s, [this](const auto& node) { on(node); });
}

void Visitor::on(const Cast& n) { visit(n.value); }
void Visitor::on(const Binary& n) {
  visit(n.a);
  visit(n.b);
}
void Visitor::on(const Select& n) {
  visit(n.condition);
  visit(n.on_true);
  visit(n.on_false);
}
void Visitor::on(const Load& n) {
  for (const Expr& i : n.indices)
    visit(i);
  visit(n.predicate);
}
void Visitor::on(const Ramp& n) {
  visit(n.base);
  visit(n.stride);
}
void Visitor::on(const Broadcast& n) { visit(n.value); }
void Visitor::on(const Shuffle& n) {
  for (const Expr& v : n.vectors)
    visit(v);
}
void Visitor::on(const VectorReduce& n) { visit(n.value); }
void Visitor::on(const Call& n) {
  for (const Expr& a : n.args)
    visit(a);
}
void Visitor::on(const For& n) {
  visit(n.min);
  visit(n.extent);
  visit(n.body);
}
void Visitor::on(const Block& n) {
  for (const Axis& axis : n.axes) {
    visit(axis.domain.min);
    visit(axis.domain.extent);
  }
  for (const Expr& v : n.values)
    visit(v);
  visit(n.predicate);
  visit(n.init);
  visit(n.body);
}
void Visitor::on(const Store& n) {
  for (const Expr& i : n.indices)
    visit(i);
  visit(n.value);
  visit(n.predicate);
}
void Visitor::on(const Seq& n) {
  for (const Stmt& s : n.stmts)
    visit(s);
}
void Visitor::on(const If& n) {
  visit(n.condition);
  visit(n.then_body);
  visit(n.else_body);
}
void Visitor::on(const Let& n) {
  visit(n.value);
  visit(n.body);
}
void Visitor::on(const Allocate& n) { visit(n.body); }
void Visitor::on(const Evaluate& n) { visit(n.value); }

// ---- Mutator ----

Expr Mutator::mutate(const Expr& e) {
  if (!e.defined()) return e;
  return dispatch(e, [&](const auto& node) { return on(node, e); });
}
Stmt Mutator::mutate(const Stmt& s) {
  if (!s) return s;
  return dispatch(s, [&](const auto& node) { return on(node, s); });
}

std::vector<Expr> Mutator::mutate(const std::vector<Expr>& list, bool* changed) {
  std::vector<Expr> out;
  out.reserve(list.size());
  for (const Expr& e : list) {
    out.push_back(mutate(e));
    *changed |= !out.back().same_as(e);
  }
  return out;
}

Region Mutator::mutate(const Region& region, bool* changed) {
  Region out{on_buffer(region.buffer), {}};
  *changed |= !out.buffer.same_as(region.buffer);
  out.ranges.reserve(region.ranges.size());
  for (const Range& r : region.ranges) {
    Range range{mutate(r.min), mutate(r.extent)};
    *changed |= !range.min.same_as(r.min) || !range.extent.same_as(r.extent);
    out.ranges.push_back(std::move(range));
  }
  return out;
}

Expr Mutator::on(const Cast& n, const Expr& self) {
  Expr value = mutate(n.value);
  if (value.same_as(n.value)) return self;
  return Cast::make(n.type.with_lanes(value.lanes()), value);
}
Expr Mutator::on(const Binary& n, const Expr& self) {
  Expr a = mutate(n.a), b = mutate(n.b);
  if (a.same_as(n.a) && b.same_as(n.b)) return self;
  return binary(n.op, a, b);
}
Expr Mutator::on(const Select& n, const Expr& self) {
  Expr c = mutate(n.condition), x = mutate(n.on_true), y = mutate(n.on_false);
  if (c.same_as(n.condition) && x.same_as(n.on_true) && y.same_as(n.on_false)) return self;
  return select(c, x, y);
}
Expr Mutator::on(const Load& n, const Expr& self) {
  bool changed = false;
  std::vector<Expr> indices = mutate(n.indices, &changed);
  Expr predicate = mutate(n.predicate);
  Buffer buffer = on_buffer(n.buffer);
  if (!changed && predicate.same_as(n.predicate) && buffer.same_as(n.buffer)) return self;
  return Load::make(buffer, std::move(indices), predicate);
}
Expr Mutator::on(const Ramp& n, const Expr& self) {
  Expr base = mutate(n.base), stride = mutate(n.stride);
  if (base.same_as(n.base) && stride.same_as(n.stride)) return self;
  return Ramp::make(base, stride, n.type.lanes);
}
Expr Mutator::on(const Broadcast& n, const Expr& self) {
  Expr value = mutate(n.value);
  return value.same_as(n.value) ? self : Broadcast::make(value, n.type.lanes);
}
Expr Mutator::on(const Shuffle& n, const Expr& self) {
  bool changed = false;
  std::vector<Expr> vectors = mutate(n.vectors, &changed);
  return changed ? Shuffle::make(std::move(vectors), n.indices) : self;
}
Expr Mutator::on(const VectorReduce& n, const Expr& self) {
  Expr value = mutate(n.value);
  return value.same_as(n.value) ? self : VectorReduce::make(n.op, value);
}
Expr Mutator::on(const Call& n, const Expr& self) {
  bool changed = false;
  std::vector<Expr> args = mutate(n.args, &changed);
  if (!changed) return self;
  // What a warp does together has its own shape.
  bool is_by_lanes = !is_exchange(n.function) && !is_statement(n.function);
  Type type = is_by_lanes ? n.type.with_lanes(args[0].lanes()) : n.type;
  return Call::make(type, n.function, std::move(args));
}

Stmt Mutator::on(const For& n, const Stmt& self) {
  Expr min = mutate(n.min), extent = mutate(n.extent);
  Stmt body = mutate(n.body);
  if (min.same_as(n.min) && extent.same_as(n.extent) && body.same_as(n.body)) return self;
  if (!body) return nullptr;
  return For::make(n.var, min, extent, n.loop, body, n.annotations);
}

Stmt Mutator::on(const Block& n, const Stmt& self) {
  bool changed = false;
  std::vector<Axis> axes;
  axes.reserve(n.axes.size());
  for (const Axis& a : n.axes) {
    Axis axis{a.var, {mutate(a.domain.min), mutate(a.domain.extent)}, a.kind};
    changed |= !axis.domain.min.same_as(a.domain.min) || !axis.domain.extent.same_as(a.domain.extent);
    axes.push_back(std::move(axis));
  }
  std::vector<Expr> values = mutate(n.values, &changed);
  Expr predicate = mutate(n.predicate);
  std::vector<Region> reads, writes;
  for (const Region& r : n.reads)
    reads.push_back(mutate(r, &changed));
  for (const Region& r : n.writes)
    writes.push_back(mutate(r, &changed));
  Stmt init = mutate(n.init), body = mutate(n.body);
  changed |= !predicate.same_as(n.predicate) || !init.same_as(n.init) || !body.same_as(n.body);
  if (!changed) return self;
  if (!body) return nullptr;
  Block* block = n.copy();
  block->axes = std::move(axes);
  block->values = std::move(values);
  block->predicate = predicate;
  block->reads = std::move(reads);
  block->writes = std::move(writes);
  block->init = init;
  block->body = body;
  return Block::make(block);
}

Stmt Mutator::on(const Store& n, const Stmt& self) {
  bool changed = false;
  std::vector<Expr> indices = mutate(n.indices, &changed);
  Expr value = mutate(n.value), predicate = mutate(n.predicate);
  Buffer buffer = on_buffer(n.buffer);
  if (!changed && value.same_as(n.value) && predicate.same_as(n.predicate) && buffer.same_as(n.buffer)) {
    return self;
  }
  return Store::make(buffer, std::move(indices), value, predicate);
}

Stmt Mutator::on(const Seq& n, const Stmt& self) {
  bool changed = false;
  std::vector<Stmt> out;
  out.reserve(n.stmts.size());
  for (const Stmt& s : n.stmts) {
    out.push_back(mutate(s));
    changed |= !out.back().same_as(s);
  }
  if (!changed) return self;
  std::erase_if(out, [](const Stmt& s) { return !s; });
  if (out.empty()) return nullptr;
  return Seq::make(std::move(out));
}

Stmt Mutator::on(const If& n, const Stmt& self) {
  Expr condition = mutate(n.condition);
  Stmt then_body = mutate(n.then_body), else_body = mutate(n.else_body);
  if (condition.same_as(n.condition) && then_body.same_as(n.then_body) && else_body.same_as(n.else_body)) {
    return self;
  }
  if (!then_body && !else_body) return nullptr;
  if (!then_body) return If::make(logical_not(condition), else_body);
  return If::make(condition, then_body, else_body);
}

Stmt Mutator::on(const Let& n, const Stmt& self) {
  Expr value = mutate(n.value);
  Stmt body = mutate(n.body);
  if (value.same_as(n.value) && body.same_as(n.body)) return self;
  if (!body) return nullptr;
  return Let::make(n.var, value, body);
}

Stmt Mutator::on(const Allocate& n, const Stmt& self) {
  Buffer buffer = on_buffer(n.buffer);
  Stmt body = mutate(n.body);
  if (buffer.same_as(n.buffer) && body.same_as(n.body)) return self;
  if (!body) return nullptr;
  return Allocate::make(buffer, body);
}

Stmt Mutator::on(const Evaluate& n, const Stmt& self) {
  Expr value = mutate(n.value);
  return value.same_as(n.value) ? self : Evaluate::make(value);
}

// ---- Functions ----

namespace {

class Substitute : public Mutator {
 public:
  explicit Substitute(const VarMap& map) : map_(map) {}

 protected:
  using Mutator::on;
  Expr on(const VarNode& n, const Expr& self) override {
    auto it = map_.find(&n);
    return it == map_.end() ? self : it->second;
  }

 private:
  const VarMap& map_;
};

class ReplaceBuffers : public Mutator {
 public:
  explicit ReplaceBuffers(const BufferMap& map) : map_(map) {}

 protected:
  Buffer on_buffer(const Buffer& buffer) override {
    auto it = map_.find(buffer.get());
    return it == map_.end() ? buffer : it->second;
  }

 private:
  const BufferMap& map_;
};

class FindVar : public Visitor {
 public:
  explicit FindVar(const ExprNode* var) : var_(var) {}
  bool found = false;

 protected:
  using Visitor::on;
  void on(const VarNode& n) override { found |= &n == var_; }

 private:
  const ExprNode* var_;
};

// Base-class visiting of every kind, reported to a callback first.
class Walk : public Visitor {
 public:
  Walk(const std::function<void(const Expr&)>* on_expr, const std::function<void(const Stmt&)>* on_stmt)
      : on_expr_(on_expr), on_stmt_(on_stmt) {}

 protected:
#define X(Name) \
  void on(const Name& n) override { expr(n); }
  X(IntImm)
  X(FloatImm)
 X(VarNode)
 X(Cast) X(Binary) X(Select) X(Load) X(Ramp) X(Broadcast) X(Shuffle) X(VectorReduce) X(Call)
#undef X
#define X(Name) \
  void on(const Name& n) override { stmt(n); }
     MCC_STMT_NODES(X)
#undef X

         private : template <class N>
                   void expr(const N& n) {
    if (on_expr_) (*on_expr_)(Expr(&n));
    Visitor::on(n);
  }
  template <class N>
  void stmt(const N& n) {
    if (on_stmt_) (*on_stmt_)(Stmt(&n));
    Visitor::on(n);
  }
  const std::function<void(const Expr&)>* on_expr_;
  const std::function<void(const Stmt&)>* on_stmt_;
};

bool same(const Expr& a, const Expr& b) { return a.same_as(b) || structurally_equal(a, b); }

bool same_region(const Region& a, const Region& b) {
  if (!a.buffer.same_as(b.buffer)) return false;
  for (size_t i = 0; i < a.ranges.size(); ++i)
    if (!same(a.ranges[i].min, b.ranges[i].min) || !same(a.ranges[i].extent, b.ranges[i].extent)) return false;
  return true;
}

class CollectAccesses : public Visitor {
 public:
  CollectAccesses(std::vector<Region>* reads, std::vector<Region>* writes) : reads_(reads), writes_(writes) {}

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    add(reads_, n.buffer, n.indices);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    add(writes_, n.buffer, n.indices);
    Visitor::on(n);
  }
  void on(const For& n) override {
    inner_.push_back(n.var);
    Visitor::on(n);
    inner_.pop_back();
  }
  void on(const Let& n) override {
    visit(n.value);
    inner_.push_back(n.var);
    visit(n.body);
    inner_.pop_back();
  }

 private:
  bool is_inner(const Expr& e) const {
    return std::any_of(inner_.begin(), inner_.end(), [&](const Var& v) { return uses_var(e, v); });
  }

  // A dimension along which variables of the statement itself say where counts as a whole.
  void add(std::vector<Region>* regions, const Buffer& buffer, const std::vector<Expr>& indices) const {
    Region region{buffer, {}};
    for (size_t d = 0; d < indices.size(); ++d)
      region.ranges.push_back(is_inner(indices[d]) ? Range{0, buffer.shape()[d]} : Range{indices[d], 1});
    for (const Region& r : *regions)
      if (same_region(r, region)) return;
    regions->push_back(std::move(region));
  }
  std::vector<Var> inner_;
  std::vector<Region>* reads_;
  std::vector<Region>* writes_;
};

}  // namespace

Expr substitute(const Expr& e, const VarMap& map) { return Substitute(map).mutate(e); }
Stmt substitute(const Stmt& s, const VarMap& map) { return Substitute(map).mutate(s); }
Stmt replace_buffers(const Stmt& s, const BufferMap& map) { return ReplaceBuffers(map).mutate(s); }

bool uses_var(const Expr& e, const Var& var) {
  FindVar find(var.get());
  find.visit(e);
  return find.found;
}
bool uses_var(const Stmt& s, const Var& var) {
  FindVar find(var.get());
  find.visit(s);
  return find.found;
}

void collect_accesses(const Stmt& s, std::vector<Region>* reads, std::vector<Region>* writes) {
  CollectAccesses(reads, writes).visit(s);
}

void for_each_expr(const Stmt& s, const std::function<void(const Expr&)>& f) { Walk(&f, nullptr).visit(s); }
void for_each_stmt(const Stmt& s, const std::function<void(const Stmt&)>& f) { Walk(nullptr, &f).visit(s); }

}  // namespace mcc::tensor
