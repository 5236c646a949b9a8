#include "tensor/passes/join_cases.h"

#include "tensor/grid.h"
#include "tensor/passes/scope.h"
#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

// What is outside of the launches, and the outermost of the loops of each.
class Only : public Mutator {
 public:
  explicit Only(Expr condition) : condition_(std::move(condition)) {}

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (!is_block_loop(n)) return Mutator::on(n, self);
    return For::make(n.var, n.min, select(condition_, n.extent, Expr(0)), n.loop, n.body, n.annotations);
  }
  Stmt on(const Allocate& n, const Stmt& self) override {
    int64_t ignored = 0;
    const bool is_known = n.buffer.rank() == 1 && as_int(n.buffer.shape()[0], &ignored);
    if (n.buffer.scope() != Scope::global || n.buffer.rank() != 1 || is_known) return Mutator::on(n, self);
    const Buffer buffer(n.buffer.name(), n.buffer.element(),
                        {select(condition_, n.buffer.shape()[0], Expr(1))}, Scope::global,
                        n.buffer->alignment);
    return Allocate::make(buffer, mutate(replace_buffers(n.body, {{n.buffer.get(), buffer}})));
  }

 private:
  const Expr condition_;
};

class Count : public Visitor {
 public:
  size_t launches = 0;

 protected:
  using Visitor::on;
  void on(const For& n) override { n.loop == LoopKind::bound ? void(++launches) : Visitor::on(n); }
};

}  // namespace

size_t count_launches(const Func& lowered) {
  Count count;
  count.visit(lowered.body);
  return count.launches;
}

Func join_cases(const Func& otherwise, const std::vector<Case>& cases) {
  if (cases.empty()) return otherwise;
  const bool has_launches = has_bound_loop(otherwise.body);
  auto only = [&](const Expr& condition, const Stmt& body) {
    return has_launches ? Only(condition).mutate(body) : If::make(condition, body);
  };
  std::vector<Stmt> bodies;
  Expr others;
  for (const Case& c : cases) {
    BufferMap params;
    for (size_t i = 0; i < c.func.params.size(); ++i)
      params.emplace(c.func.params[i].get(), otherwise.params[i]);
    bodies.push_back(only(c.condition, replace_buffers(c.func.body, params)));
    others = others.defined() ? others || c.condition : c.condition;
  }
  bodies.insert(bodies.begin(), only(logical_not(others), otherwise.body));
  Func out = otherwise;
  out.body = Seq::make(std::move(bodies));
  return simplify(out);
}

}  // namespace mcc::tensor
