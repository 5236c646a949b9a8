#include "tensor/passes/pair_fragments.h"

#include "tensor/grid.h"
#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

// acc[..] = mma(.., b, ..), below what is let for it.
struct Fragment {
  const Let* left = nullptr;  // may be null
  const Let* right = nullptr;
  const Call* load = nullptr;  // of the right operand
  Expr first;                  // the place that a thread says
};

const Call* as_fetch(const Expr& e) {
  const auto* call = e.as<Call>();
  return call && (call->function == Intrinsic::load_matrices ||
                  call->function == Intrinsic::load_matrices_transposed)
             ? call
             : nullptr;
}

std::optional<Fragment> as_fragment(const Stmt& s) {
  Fragment out;
  out.right = s.as<Let>();
  const Call* load = out.right ? as_fetch(out.right->value) : nullptr;
  if (load && load->type.lanes == 4) {
    out.left = out.right;
    out.right = out.left->body.as<Let>();
    load = out.right ? as_fetch(out.right->value) : nullptr;
  }
  if (!load || load->type.lanes != 2) return std::nullopt;
  const auto* store = out.right->body.as<Store>();
  const auto* row = load->args[0].as<Load>();
  const auto* where = row ? row->indices[0].as<Ramp>() : nullptr;
  if (!store || !where || store->buffer.scope() == Scope::shared) return std::nullopt;
  out.load = load;
  out.first = where->base;
  return out;
}

class PairFragments : public ScopedMutator {
 protected:
  using ScopedMutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    const Expr saved = y_;
    if (n.loop == LoopKind::bound && grid_axis(n) == GridAxis::thread_y)
      y_ = is_int(n.extent, kWarpRows) ? Expr(n.var) : Expr();
    Stmt out = ScopedMutator::on(n, self);
    y_ = saved;
    return out;
  }

  Stmt on(const Seq& n, const Stmt& self) override {
    std::vector<Stmt> out;
    for (size_t i = 0; i < n.stmts.size(); ++i) {
      Stmt pair = i + 1 < n.stmts.size() ? paired(n.stmts[i], n.stmts[i + 1]) : Stmt();
      out.push_back(pair ? pair : n.stmts[i]);
      i += pair ? 1 : 0;
    }
    return out.size() == n.stmts.size() ? ScopedMutator::on(n, self) : Seq::make(std::move(out));
  }

 private:
  static constexpr int64_t kWarpRows = 8;

  // Undefined where they are no such two.
  Stmt paired(const Stmt& one, const Stmt& two) const {
    const std::optional<Fragment> a = y_.defined() ? as_fragment(one) : std::nullopt,
                                  b = a ? as_fragment(two) : std::nullopt;
    if (!b || a->load->function != b->load->function) return nullptr;
    const auto *row = a->load->args[0].as<Load>(), *other = b->load->args[0].as<Load>();
    const std::optional<int64_t> distance = analyzer_.constant_difference(b->first, a->first);
    // Each thread's row begins at a multiple of its length.
    if (!row->buffer.same_as(other->buffer) || !distance || *distance % row->indices[0].lanes() != 0)
      return nullptr;
    const Expr first = analyzer_.simplify(a->first + floor_div(y_, kWarpRows / 2) * Expr(*distance));
    const Expr rows = Load::make(row->buffer, {Ramp::make(first, 1, row->indices[0].lanes())});
    const Expr fetch = Call::make(a->load->function, {rows, Expr(4)});
    const Var both("both", fetch.type());
    return Let::make(
        both, fetch,
        Seq::make({with(*a, Shuffle::make({both}, {0, 1})), with(*b, Shuffle::make({both}, {2, 3}))}));
  }

  static Stmt with(const Fragment& f, const Expr& right) {
    const Stmt made = Let::make(f.right->var, right, f.right->body);
    return f.left ? Let::make(f.left->var, f.left->value, made) : made;
  }

  Expr y_;  // thread.y of a warp
};

}  // namespace

Func pair_fragments(const Func& f) {
  Func out = f;
  out.body = PairFragments().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
