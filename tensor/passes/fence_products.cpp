#include "tensor/passes/fence_products.h"

#include <algorithm>

#include "tensor/grid.h"
#include "tensor/intrinsics.h"
#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

class FenceBarriers : public Mutator {
 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (is_in_launch_ || !is_thread_loop(n)) return Mutator::on(n, self);
    bool has_products = false, has_writes = false;
    for_each_expr(n.body, [&](const Expr& e) {
      const auto* call = e.as<Call>();
      has_products |= call && is_wgmma(call->function);
      has_writes |= call && call->function == Intrinsic::async_copy;
    });
    for_each_stmt(n.body, [&](const Stmt& s) {
      const auto* store = s.as<Store>();
      has_writes |= store && store->buffer.scope() == Scope::shared;
    });
    // What the copy engine writes needs none.
    if (!has_products || !has_writes) return self;
    is_in_launch_ = true;
    Stmt out = Mutator::on(n, self);
    is_in_launch_ = false;
    return out;
  }
  Stmt on(const Seq& n, const Stmt& self) override {
    const bool was_fenced = is_fenced_;
    std::vector<Stmt> out;
    for (const Stmt& s : n.stmts) {
      out.push_back(mutate(s));
      is_fenced_ = is_call(s, Intrinsic::fence_async);
    }
    is_fenced_ = was_fenced;
    return std::equal(out.begin(), out.end(), n.stmts.begin(),
                      [](const Stmt& a, const Stmt& b) { return a.same_as(b); })
               ? self
               : Seq::make(std::move(out));
  }
  Stmt on(const Evaluate&, const Stmt& self) override {
    if (!is_in_launch_ || is_fenced_ || !is_call(self, Intrinsic::barrier)) return self;
    return Seq::make({Evaluate::make(Call::make(Intrinsic::fence_async, {})), self});
  }

 private:
  bool is_fenced_ = false;  // by the statement before
  bool is_in_launch_ = false;
};

}  // namespace

Func fence_products(const Func& f) {
  Func out = f;
  out.body = FenceBarriers().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
