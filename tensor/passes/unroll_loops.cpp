#include "tensor/passes/unroll_loops.h"

#include <set>

#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

bool mentions_variable(const Expr& e) {
  return uses_any_var(e, [](const VarNode*) { return true; });
}

// Whether var stands in an index of a register buffer.
class FindRegisterIndex : public Visitor {
 public:
  explicit FindRegisterIndex(const Var& var) : var_(var) {}
  bool found = false;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    look(n.buffer, n.indices);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    look(n.buffer, n.indices);
    Visitor::on(n);
  }

 private:
  void look(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer.scope() != Scope::registers) return;
    for (const Expr& i : indices)
      found |= uses_var(i, var_);
  }
  const Var& var_;
};

// Whether what holds in a later copy of a guarded body holds in the one before, however many iterations are left.
bool follows_from(const Expr& condition, const Expr& later) {
  if (has_load(condition) || has_load(later)) return false;
  Analyzer facts;
  facts.assume(later);
  return facts.can_prove(condition);
}

// Copies whose guards hold up to some copy stand each inside of the one before: the first guard that fails is the last one that is
// looked at. Tiles of symbolic dimensions have such guards in each turn of a reduction.
Stmt nest_guards(std::vector<Stmt> copies) {
  for (size_t i = copies.size() - 1; i-- > 0;) {
    const auto *guard = copies[i].as<If>(), *next = copies[i + 1].as<If>();
    if (!guard || !next || guard->else_body || next->else_body || !follows_from(guard->condition, next->condition)) continue;
    copies[i] = If::make(guard->condition, Seq::make({guard->then_body, copies[i + 1]}));
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  return Seq::make(std::move(copies));
}

class Unroll : public Mutator {
 public:
  Unroll(int64_t stores, bool nests_guards) : stores_(stores), nests_guards_(nests_guards) {}

 protected:
  using Mutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    if (!same) return same;
    const For& loop = *same.as<For>();
    const bool is_serial = loop.loop == LoopKind::serial, is_of_registers = indexes_registers(loop);
    if (loop.loop != LoopKind::unrolled && !(is_serial && is_of_registers)) return same;
    int64_t extent = 0, leaves = count_leaves(loop.body);
    if (!as_int(loop.extent, &extent) ||
        !fits(extent, leaves, is_of_registers ? kMaxStoresOfRegisters : kMaxUnrolledStores)) {
      return is_serial ? same : with_kind(loop, LoopKind::serial, loop.body);
    }
    stores_ += std::max<int64_t>(0, extent - 1) * leaves;
    std::vector<Stmt> copies;
    for (int64_t i = 0; i < extent; ++i) {
      copies.push_back(simplify(substitute(loop.body, {{loop.var.get(), simplify(loop.min + Expr(i))}})));
    }
    if (copies.empty()) return nullptr;
    return nests_guards_ ? nest_guards(std::move(copies)) : Seq::make(std::move(copies));
  }

 private:
  static bool indexes_registers(const For& loop) {
    FindRegisterIndex find(loop.var);
    find.visit(loop.body);
    return find.found;
  }
  bool fits(int64_t extent, int64_t leaves, int64_t most) const {
    return leaves == 0 || extent - 1 <= (most - stores_) / leaves;
  }

  int64_t stores_;
  bool nests_guards_;
};

// Register buffers with an access that is not constant.
class FindIndexed : public Visitor {
 public:
  std::set<const BufferNode*> buffers;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    look(n.buffer, n.indices);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    look(n.buffer, n.indices);
    Visitor::on(n);
  }

 private:
  void look(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer.scope() != Scope::registers) return;
    for (const Expr& i : indices) {
      if (mentions_variable(i) || has_load(i)) buffers.insert(buffer.get());
    }
  }
};

}  // namespace

Func unroll_loops(const Func& f) {
  Func out = f;
  out.body = Unroll(count_leaves(f.body), !f.dims.empty()).mutate(f.body);
  FindIndexed find;
  find.visit(out.body);
  BufferMap local;
  for_each_stmt(out.body, [&](const Stmt& s) {
    const auto* a = s.as<Allocate>();
    if (!a || !find.buffers.contains(a->buffer.get())) return;
    const Buffer& b = a->buffer;
    local.emplace(b.get(), Buffer(b.name(), b.element(), b.shape(), Scope::local, b->alignment));
  });
  if (!local.empty()) out.body = replace_buffers(out.body, local);
  return out;
}

}  // namespace mcc::tensor
