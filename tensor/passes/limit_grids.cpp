#include "tensor/passes/limit_grids.h"

#include <algorithm>

#include "tensor/grid.h"
#include "tensor/passes/scope.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

using Loops = std::vector<const For*>;  // outermost first

bool is_beyond_grid(const Loops& blocks, const Analyzer& facts) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const For* loop) {
    int64_t ignored = 0;
    const bool is_open = *grid_axis(*loop) != GridAxis::block_x && !as_int(loop->extent, &ignored);
    return is_open && !facts.can_prove(loop->extent <= info_of(*grid_axis(*loop)).most);
  });
}

// The loops' variables around what one thread does, from the number of its block.
Stmt with_places(const Loops& blocks, const Var& number, Stmt body) {
  Expr inner = 1;  // blocks of the loops further in
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    const For& loop = **it;
    const Expr place = floor_div(number, inner);
    body = Let::make(loop.var, loop.min + (&loop == blocks.front() ? place : floor_mod(place, loop.extent)),
                     body);
    inner = inner * loop.extent;
  }
  return body;
}

// What is below the loops over blocks: with the variables inside of the loops over threads, as the form of a launch has it.
class PlaceInThreads : public Mutator {
 public:
  PlaceInThreads(const Loops& blocks, const Var& number) : blocks_(blocks), number_(number) {}

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (!is_thread_loop(n)) return Mutator::on(n, self);
    const auto* inner = n.body.as<For>();
    return with_body(
        n, inner && is_thread_loop(*inner) ? mutate(n.body) : with_places(blocks_, number_, n.body));
  }

 private:
  const Loops& blocks_;
  const Var& number_;
};

class LimitGrids : public Mutator {
 public:
  explicit LimitGrids(Analyzer facts) : facts_(std::move(facts)) {}

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (!is_block_loop(n)) return Mutator::on(n, self);
    Loops blocks;
    Stmt body = self;
    for (const auto* loop = body.as<For>(); loop && is_block_loop(*loop); loop = body.as<For>()) {
      blocks.push_back(loop);
      body = loop->body;
    }
    if (!is_beyond_grid(blocks, facts_)) return self;
    Expr count = 1;
    for (const For* loop : blocks)
      count = count * loop->extent;
    const Var number("blocks");
    return For::make(number, 0, simplify(count), LoopKind::bound, PlaceInThreads(blocks, number).mutate(body),
                     {{"thread", std::string(info_of(GridAxis::block_x).name)}});
  }

 private:
  const Analyzer facts_;
};

}  // namespace

Func limit_grids(const Func& f) {
  if (f.dims.empty()) return f;
  Func out = f;
  out.body = LimitGrids(size_facts(f)).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
