#include "tensor/passes/group_loads.h"

#include <algorithm>

#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Registers of 32 bits that loaded elements take at a time, beside the sums they are added to.
constexpr int64_t kMaxRegisters = 32;
// So many more are taken along where they are the last.
constexpr int64_t kFewRegisters = 8;
// The same of elements that threads hold while they wait for each other.
constexpr int64_t kMaxWaiting = 16;

bool is_of_stores(const Stmt& s) {
  if (s.kind() == StmtKind::Store) return true;
  if (const auto* n = s.as<Seq>()) return std::all_of(n->stmts.begin(), n->stmts.end(), is_of_stores);
  const auto* n = s.as<If>();
  return n && !n->else_body && !has_load(n->condition) && is_of_stores(n->then_body);
}

int64_t registers_of(Type type) { return (type.lanes * byte_size(type.element) + 3) / 4; }

// Takes the loads out of statements, one after the other.
class Loads : public Mutator {
 public:
  // stored: buffers that are not to be read ahead.
  explicit Loads(const std::vector<Buffer>& stored) : stored_(&stored) {}

  struct Binding {
    Var var;
    Expr load;
  };
  const std::vector<Binding>& bindings() const { return bindings_; }
  int64_t registers() const { return registers_; }
  // Whether any of them comes ahead of a store to global memory that it stood behind.
  bool passes_a_store() const { return passes_a_store_; }

 protected:
  using Mutator::on;

  Stmt on(const If& n, const Stmt&) override {
    return If::make(n.condition, under(n.condition, [&] { return mutate(n.then_body); }));
  }

  Stmt on(const Store& n, const Stmt& self) override {
    const bool is_guarded = n.predicate.defined() && n.value.lanes() == 1;
    Stmt out = is_guarded ? under(n.predicate, [&] { return Mutator::on(n, self); }) : Mutator::on(n, self);
    has_stored_ |= n.buffer.scope() == Scope::global;
    return out;
  }

  Expr on(const Select& n, const Expr& self) override {
    if (n.condition.lanes() > 1) return Mutator::on(n, self);
    const Expr condition = mutate(n.condition);
    const Expr on_true = under(condition, [&] { return mutate(n.on_true); });
    const Expr on_false = under(logical_not(condition), [&] { return mutate(n.on_false); });
    return select(condition, on_true, on_false);
  }

  // What stands behind "and" and "or" may not be asked for.
  Expr on(const Binary& n, const Expr& self) override {
    if (n.op != BinaryOp::logical_and && n.op != BinaryOp::logical_or) return Mutator::on(n, self);
    return binary(n.op, mutate(n.a), n.b);
  }

  Expr on(const Load& n, const Expr& self) override {
    const Expr inner = Mutator::on(n, self);
    const auto* load = inner.as<Load>();
    const bool is_written =
        std::any_of(stored_->begin(), stored_->end(), [&](const Buffer& b) { return b.same_as(n.buffer); });
    if (n.buffer.scope() != Scope::global || is_written || has_load(load->indices[0])) return inner;
    Expr predicate = guard_;
    if (load->predicate.defined()) {
      const auto* same = load->predicate.as<Broadcast>();
      if (has_load(load->predicate) || (n.type.lanes > 1 && !same)) return inner;
      const Expr own = same ? same->value : load->predicate;
      predicate = guard_.defined() ? guard_ && own : own;
    }
    if (predicate.defined() && has_load(predicate)) return inner;
    if (predicate.defined() && n.type.lanes > 1) predicate = Broadcast::make(predicate, n.type.lanes);
    return named(Load::make(n.buffer, load->indices, predicate));
  }

 private:
  template <class F>
  std::invoke_result_t<F> under(const Expr& condition, F&& f) {
    const Expr outer = guard_;
    guard_ = outer.defined() ? outer && condition : condition;
    auto result = f();
    guard_ = outer;
    return result;
  }

  Expr named(const Expr& load) {
    const auto* n = load.as<Load>();
    const Expr always = Load::make(n->buffer, n->indices);
    for (const Binding& b : bindings_) {
      if (structurally_equal(b.load, load) || structurally_equal(b.load, always)) return b.var;
    }
    const Var var(n->buffer.name(), load.type());
    bindings_.push_back({var, load});
    registers_ += registers_of(load.type());
    passes_a_store_ |= has_stored_;
    return var;
  }

  const std::vector<Buffer>* stored_;
  std::vector<Binding> bindings_;
  int64_t registers_ = 0;
  Expr guard_;  // of the place; undefined: none
  bool has_stored_ = false, passes_a_store_ = false;
};

std::vector<Buffer> stored_in(const std::vector<Stmt>& stmts) {
  std::vector<Buffer> out;
  for (const Stmt& s : stmts) {
    for_each_stmt(s, [&](const Stmt& inner) {
      const auto* store = inner.as<Store>();
      if (store &&
          std::none_of(out.begin(), out.end(), [&](const Buffer& b) { return b.same_as(store->buffer); }))
        out.push_back(store->buffer);
    });
  }
  return out;
}

Stmt with_bindings(const std::vector<Loads::Binding>& bindings, Stmt s) {
  for (size_t k = bindings.size(); k-- > 0;)
    s = Let::make(bindings[k].var, bindings[k].load, s);
  return s;
}

class GroupLoads : public Mutator {
 public:
  // stored: all buffers that the function writes
  explicit GroupLoads(std::vector<Buffer> stored) : stored_(std::move(stored)) {}

 protected:
  using Mutator::on;

  Stmt on(const Seq& n, const Stmt& self) override {
    std::vector<Stmt> stmts = merge_conditions(n.stmts);
    const std::vector<Loads::Binding> waiting = take_from_behind_barriers(stmts);
    std::vector<Stmt> out;
    for (auto s = stmts.begin(); s != stmts.end();) {
      const auto end = std::find_if_not(s, stmts.end(), is_of_stores);
      group({s, end}, out);
      s = end;
      if (s != stmts.end()) out.push_back(mutate(*s++));
    }
    const bool same = std::equal(out.begin(), out.end(), n.stmts.begin(), n.stmts.end(),
                                 [](const Stmt& a, const Stmt& b) { return a.same_as(b); });
    return same ? self : with_bindings(waiting, Seq::make(std::move(out)));
  }

 private:
  // What stores behind barriers read of buffers that nothing writes, where no loop stands before them; the first of it, if it is much.
  std::vector<Loads::Binding> take_from_behind_barriers(std::vector<Stmt>& stmts) const {
    const auto barrier = std::find_if(stmts.begin(), stmts.end(),
                                      [](const Stmt& s) { return is_call(s, Intrinsic::barrier); });
    const auto end = std::find_if(stmts.begin(), stmts.end(), has_loop);
    Loads loads(stored_);
    for (auto s = std::min(barrier, end); s != end; ++s) {
      if (!is_of_stores(*s)) continue;
      Loads more = loads;
      const Stmt without = more.mutate(*s);
      if (more.registers() > kMaxWaiting) break;
      *s = without;
      loads = more;
    }
    return loads.bindings();
  }

  void group(const std::vector<Stmt>& stmts, std::vector<Stmt>& out) {
    const std::vector<Buffer> stored = stored_in(stmts);
    for (size_t i = 0; i < stmts.size();) {
      if (is_large(stmts[i], stored)) {
        out.push_back(mutate(stmts[i++]));
        continue;
      }
      Loads loads(stored);
      std::vector<Stmt> batch;
      const size_t first = i;
      do {
        batch.push_back(loads.mutate(stmts[i++]));
      } while (i < stmts.size() && !is_large(stmts[i], stored) &&
               (loads.registers() < kMaxRegisters || count_registers({stmts.begin() + i, stmts.end()}, stored) <= kFewRegisters));
      if (loads.passes_a_store()) {
        out.push_back(with_bindings(loads.bindings(), Seq::make(std::move(batch))));
      } else {
        out.insert(out.end(), stmts.begin() + static_cast<std::ptrdiff_t>(first),
                   stmts.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  static int64_t count_registers(const std::vector<Stmt>& stmts, const std::vector<Buffer>& stored) {
    Loads loads(stored);
    for (const Stmt& s : stmts)
      loads.mutate(s);
    return loads.registers();
  }

  // Whether there are stores enough within the statement.
  static bool is_large(const Stmt& s, const std::vector<Buffer>& stored) {
    return s.kind() != StmtKind::Store && count_registers({s}, stored) >= kMaxRegisters;
  }

  const std::vector<Buffer> stored_;
};

}  // namespace

Func group_loads(const Func& f) {
  Func out = f;
  out.body = GroupLoads(stored_in({f.body})).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
