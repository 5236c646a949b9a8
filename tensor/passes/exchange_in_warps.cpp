#include "tensor/passes/exchange_in_warps.h"

#include <algorithm>
#include <map>

#include "tensor/grid.h"
#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

struct Owner {
  size_t y = 0, x = 0;  // the dimensions whose indices are those of the thread
};
using Owners = std::map<const BufferNode*, Owner>;  // keyed access only: the order of addresses is not used

// Knows the loops over a warp's threads around the place.
class InWarp : public ScopedMutator {
 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    const auto axis = grid_axis(n);
    const For** own = axis == GridAxis::thread_y ? &y_ : axis == GridAxis::thread_x ? &x_ : nullptr;
    if (!own) return ScopedMutator::on(n, self);
    *own = &n;
    Stmt out = ScopedMutator::on(n, self);
    *own = nullptr;
    return out;
  }
  const For *y_ = nullptr, *x_ = nullptr;
};

class FindOwners : public InWarp {
 public:
  Owners owners;

 protected:
  using InWarp::on;
  Stmt on(const Store& n, const Stmt& self) override {
    if (n.buffer.scope() != Scope::warp || !y_ || !x_) return self;
    auto dimension = [&](const For& loop) {
      auto it = std::find_if(n.indices.begin(), n.indices.end(),
                             [&](const Expr& i) { return analyzer_.simplify(i).same_as(loop.var); });
      MCC_CHECK(it != n.indices.end(), "no index of ", n.buffer.name(),
                " says which thread of a warp has an element");
      return static_cast<size_t>(it - n.indices.begin());
    };
    owners[n.buffer.get()] = {dimension(*y_), dimension(*x_)};
    return self;
  }
};

class Exchange : public InWarp {
 public:
  Exchange(const Owners& owners, const BufferMap& made) : owners_(owners), made_(made) {}

 protected:
  using InWarp::on;
  Expr on(const Load& n, const Expr& self) override {
    auto it = made_.find(n.buffer.get());
    if (it == made_.end()) return InWarp::on(n, self);
    const Owner owner = owners_.at(n.buffer.get());
    MCC_CHECK(y_ && x_, n.buffer.name(), " of a warp is read by no thread of one");
    bool changed = false;
    std::vector<Expr> indices = mutate(n.indices, &changed);
    const Expr y = analyzer_.simplify(indices[owner.y]), x = analyzer_.simplify(indices[owner.x]);
    indices[owner.y] = y_->var;
    indices[owner.x] = x_->var;
    const Expr own = Load::make(it->second, std::move(indices), mutate(n.predicate));
    if (y.same_as(y_->var) && x.same_as(x_->var)) return own;
    return Call::make(Intrinsic::shuffle_from, {own, analyzer_.simplify(y * x_->extent + x)});
  }
  Stmt on(const Store& n, const Stmt& self) override {
    Stmt out = InWarp::on(n, self);
    auto it = made_.find(n.buffer.get());
    if (it == made_.end()) return out;
    const auto* store = out.as<Store>();
    return Store::make(it->second, store->indices, store->value, store->predicate);
  }

 private:
  const Owners& owners_;
  const BufferMap& made_;
};

}  // namespace

Func exchange_in_warps(const Func& f) {
  if (std::none_of(f.allocs.begin(), f.allocs.end(),
                   [](const Buffer& b) { return b.scope() == Scope::warp; }))
    return f;
  FindOwners find;
  find.mutate(f.body);
  Func out = f;
  BufferMap made, plain;
  for (Buffer& b : out.allocs) {
    if (b.scope() != Scope::warp) continue;
    const bool is_owned = find.owners.contains(b.get());
    Buffer placed(b.name(), b.element(), b.shape(), is_owned ? Scope::registers : Scope::global,
                  b->alignment);
    (is_owned ? made : plain).emplace(b.get(), placed);
    b = placed;
  }
  out.body = Exchange(find.owners, made).mutate(replace_buffers(f.body, plain));
  return out;
}

}  // namespace mcc::tensor
