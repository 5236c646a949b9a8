#include "tensor/passes/flatten_buffers.h"

#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

class Flatten : public ScopedMutator {
 public:
  Buffer flat(const Buffer& buffer) {
    auto it = flat_.find(buffer.get());
    if (it != flat_.end()) return it->second;
    Expr count = 1;
    for (const Expr& extent : buffer.shape())
      count = count * extent;
    Buffer out(buffer.name(), buffer.element(), {simplify(count)}, buffer.scope(), buffer->alignment);
    return flat_.emplace(buffer.get(), out).first->second;
  }

 protected:
  using ScopedMutator::on;
  Expr on(const Load& n, const Expr&) override {
    return Load::make(flat(n.buffer), {position(n.buffer, n.indices)}, mutate(n.predicate));
  }
  Stmt on(const Store& n, const Stmt&) override {
    Expr value = mutate(n.value);
    return Store::make(flat(n.buffer), {position(n.buffer, n.indices)}, value, mutate(n.predicate));
  }
  Stmt on(const Allocate& n, const Stmt&) override {
    Stmt body = mutate(n.body);
    return body ? Allocate::make(flat(n.buffer), body) : nullptr;
  }

 private:
  Expr position(const Buffer& buffer, const std::vector<Expr>& indices) {
    Expr at = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      Expr index = mutate(indices[i]);
      if (index.element() != ElementType::i64) index = cast(ElementType::i64, index);
      at = at * buffer.shape()[i] + index;
    }
    return analyzer_.simplify(at);
  }

  BufferMap flat_;
};

}  // namespace

Func flatten_buffers(const Func& f) {
  MCC_CHECK(f.allocs.empty(), "flatten_buffers before place_allocations");
  Flatten flatten;
  Func out = f;
  for (Buffer& b : out.params)
    b = flatten.flat(b);
  out.body = flatten.mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
