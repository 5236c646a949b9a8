// compute_inline(block="pad")
//
//   pad[y, x] = select(1 <= y && ..., in[y - 1, x - 1], 0)
//   conv[y, x] += pad[y + ky, x + kx] * w[ky, kx]
// becomes
//   conv[y, x] += select(1 <= y + ky && ..., in[y + ky - 1, x + kx - 1], 0) * w[ky, kx]
//
// 1. The block has only spatial axes and no init; its body is one store, to an intermediate buffer that no other block writes.
// 2. The indices of the store determine the axes: each is an axis (plus a constant), a digit of one (oc // 16, oc %% 16), or
//    a constant; an axis that does not occur has extent 1.
// 3. Some block reads the buffer; none that does writes what the block reads, nor is that written in between.
// 4. The result has no body of more than 20,000 nodes.
#include <algorithm>

#include "tensor/schedule/digits.h"
#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

Outcome check_injective(const Func& f, const std::vector<BlockSite>& sites, const Block& block) {
  const auto* store = block.body.as<Store>();
  bool spatial = std::all_of(block.axes.begin(), block.axes.end(),
                             [](const Axis& a) { return a.kind == AxisKind::spatial; });
  if (!spatial || block.init || store == nullptr || store->predicate.defined()) {
    return refuse(RefusalCode::not_injective,
                  text("expected block ", block.name, " to be one store over spatial axes, got ",
                       !spatial || block.init ? "a reduction or scan" : "another body"));
  }
  if (!is_intermediate(f, store->buffer)) {
    return refuse(RefusalCode::is_output,
                  text("expected block ", block.name, " to write an intermediate buffer, got output ",
                       store->buffer.name()));
  }
  if (reads_buffer(block, store->buffer)) {
    return refuse(RefusalCode::not_injective, text("expected block ", block.name, " not to read ",
                                                   store->buffer.name(), ", which it writes"));
  }
  for (const BlockSite& site : sites) {
    if (site.block != &block && writes_buffer(*site.block, store->buffer)) {
      return refuse(RefusalCode::dependence,
                    text("expected ", store->buffer.name(), " to be written by ", block.name, " alone, got ",
                         site.block->name, " writing it too"));
    }
  }
  return applied();
}

// Replaces loads of the buffer by the value stored at those indices.
class InlineLoads : public Mutator {
 public:
  InlineLoads(const Block& producer, std::vector<std::optional<AxisSolution>> solutions, Analyzer analyzer)
      : producer_(producer),
        store_(*producer.body.as<Store>()),
        solutions_(std::move(solutions)),
        analyzer_(std::move(analyzer)) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    if (!n.buffer.same_as(store_.buffer)) return Mutator::on(n, self);
    bool changed = false;
    std::vector<Expr> indices = mutate(n.indices, &changed);
    VarMap map;
    for (size_t i = 0; i < producer_.axes.size(); ++i) {
      const Axis& axis = producer_.axes[i];
      map[axis.var.get()] =
          solutions_[i] ? apply_solution(*solutions_[i], indices, analyzer_) : axis.domain.min;
    }
    Expr value = substitute(store_.value, map);
    if (!n.predicate.defined()) return value;
    return select(mutate(n.predicate), value, constant(value.type(), 0));
  }

 private:
  const Block& producer_;
  const Store& store_;
  const std::vector<std::optional<AxisSolution>> solutions_;
  const Analyzer analyzer_;  // of the sizes
};

}  // namespace

Outcome apply_step(const ComputeInline& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const Block& block = *site->block;
  if (Outcome o = check_injective(f, sites, block); !o) return o;
  const auto* store = block.body.as<Store>();
  std::vector<std::optional<AxisSolution>> solutions = solve_axes(store->indices, block.axes);
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (!solutions[i] && !is_int(block.axes[i].domain.extent, 1)) {
      return refuse(RefusalCode::not_injective,
                    text("expected the indices of the store to determine axis ", block.axes[i].var.name(),
                         ", got ", to_text(block.body)));
    }
  }
  bool is_read = false;
  for (size_t i = 0; i < sites.size(); ++i) {
    if (!reads_buffer(*sites[i].block, store->buffer)) continue;
    is_read = true;
    Outcome o = check_reads_move(sites, site_index(sites, &block), i, sites[i].loops.size());
    if (!o) return o;
  }
  if (!is_read) {
    return refuse(RefusalCode::dependence,
                  text("expected a block that reads ", store->buffer.name(), ", got none"));
  }

  InlineLoads inliner(block, std::move(solutions), analyzer_at(f, {}));
  int64_t largest = 0;
  Func result = f;
  result.body =
      map_blocks(replace_stmt(f.body, &block, nullptr), [&](const Block& b, const Stmt& self) -> Stmt {
        if (!reads_buffer(b, store->buffer)) return self;
        Block* changed = b.copy();
        Stmt owner = handle(changed);
        changed->init = inliner.mutate(b.init);
        changed->body = inliner.mutate(b.body);
        largest = std::max(largest, count_nodes(changed->body, kMaxBodyNodes));
        return largest > kMaxBodyNodes ? owner : simplify_accesses(f, *changed);
      });
  if (largest > kMaxBodyNodes) {
    return refuse(RefusalCode::bad_argument,
                  text("expected bodies of at most ", kMaxBodyNodes, " nodes, got more"));
  }
  std::erase_if(result.allocs, [&](const Buffer& b) { return b.same_as(store->buffer); });
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
