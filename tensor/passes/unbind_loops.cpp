#include "tensor/passes/unbind_loops.h"

#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

class UnbindLoops : public Mutator {
 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    Stmt same = Mutator::on(n, self);
    const auto* loop = same.as<For>();
    if (!loop || loop->loop != LoopKind::bound) return same;
    Annotations annotations = loop->annotations;
    annotations.erase("thread");
    return For::make(loop->var, loop->min, loop->extent, LoopKind::serial, loop->body,
                     std::move(annotations));
  }
};

}  // namespace

Func unbind_loops(const Func& f) {
  Func out = f;
  BufferMap made;
  for (Buffer& b : out.allocs) {
    if (b.scope() != Scope::shared && b.scope() != Scope::warp) continue;
    Buffer plain(b.name(), b.element(), b.shape(), Scope::global, b->alignment);
    made.emplace(b.get(), plain);
    b = plain;
  }
  out.body = UnbindLoops().mutate(made.empty() ? f.body : replace_buffers(f.body, made));
  return out;
}

}  // namespace mcc::tensor
