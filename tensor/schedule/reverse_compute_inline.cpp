// reverse_compute_inline(block="relu")
//
//   t[i, j] = a[i, j] + b[j]
//   relu[i, j] = max(t[i, j], 0)
// becomes (in the place of t)
//   relu[i, j] = max(a[i, j] + b[j], 0)
//
// 1. The block has only spatial axes and no init; its body is one store, and no other block writes that buffer.
// 2. It reads an intermediate buffer that it alone reads and one block alone writes: the producer (the last, if several are so).
// 3. The producer has only spatial axes and no init; its body is one store.
// 4. The indices of the read determine the block's axes, the same at each read, and pair each element that the producer
//    writes with one instance of the block.
// 5. Everything else that the block reads has been made before the producer runs, and nothing in between reads what it writes.
#include <algorithm>

#include "tensor/schedule/digits.h"
#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

const Store* as_injective(const Block& block) {
  bool spatial = std::all_of(block.axes.begin(), block.axes.end(),
                             [](const Axis& a) { return a.kind == AxisKind::spatial; });
  const auto* store = block.body.as<Store>();
  return spatial && !block.init && store != nullptr && !store->predicate.defined() ? store : nullptr;
}

// The last block that alone writes a buffer which the consumer alone reads.
const BlockSite* find_producer(const Func& f, const std::vector<BlockSite>& sites, const Block& consumer) {
  for (size_t i = sites.size(); i-- > 0;) {
    const BlockSite& candidate = sites[i];
    Buffer buffer = only_buffer_written(*candidate.block);
    if (candidate.block == &consumer || !buffer || !is_intermediate(f, buffer)) continue;
    if (!reads_buffer(consumer, buffer)) continue;
    bool shared = std::any_of(sites.begin(), sites.end(), [&](const BlockSite& s) {
      return (s.block != &consumer && reads_buffer(*s.block, buffer)) ||
             (s.block != candidate.block && writes_buffer(*s.block, buffer));
    });
    if (!shared) return &candidate;
  }
  return nullptr;
}

// The indices at which the block reads the buffer, if they are the same at each read.
std::optional<std::vector<Expr>> only_indices(const Block& block, const Buffer& buffer) {
  std::optional<std::vector<Expr>> indices;
  bool same = true;
  for_each_expr(block.body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    if (load == nullptr || !load->buffer.same_as(buffer)) return;
    same &= !load->predicate.defined();
    if (!indices) indices = load->indices;
    for (size_t i = 0; i < indices->size(); ++i)
      same &= structurally_equal((*indices)[i], load->indices[i]);
  });
  return same ? indices : std::nullopt;
}

class ReplaceLoads : public Mutator {
 public:
  ReplaceLoads(const Buffer& buffer, const Expr& value) : buffer_(buffer), value_(value) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    return n.buffer.same_as(buffer_) ? value_ : Mutator::on(n, self);
  }

 private:
  const Buffer& buffer_;
  const Expr& value_;
};

// The consumer's axes in terms of the producer's, if the reads pair the instances one to one.
std::optional<VarMap> pair_instances(const Func& f, const Block& producer, const Block& consumer) {
  const auto* made = producer.body.as<Store>();
  std::optional<std::vector<Expr>> read = only_indices(consumer, made->buffer);
  if (!read || !is_fed(f, producer, *made, consumer, *read)) return std::nullopt;
  Analyzer analyzer = analyzer_at(f, {});
  for (const Axis& a : producer.axes)
    analyzer.bind(a.var, a.domain.min, a.domain.extent);
  std::vector<std::optional<AxisSolution>> solutions = solve_axes(*read, consumer.axes);
  VarMap map;
  for (size_t i = 0; i < consumer.axes.size(); ++i) {
    const Axis& axis = consumer.axes[i];
    if (!solutions[i] && !is_int(axis.domain.extent, 1)) return std::nullopt;
    Expr value = solutions[i] ? analyzer.simplify(apply_solution(*solutions[i], made->indices, analyzer))
                              : axis.domain.min;
    if (!analyzer.can_prove(value >= axis.domain.min) ||
        !analyzer.can_prove(value < axis.domain.min + axis.domain.extent)) {
      return std::nullopt;
    }
    map[axis.var.get()] = value;
  }
  for (size_t d = 0; d < read->size(); ++d) {
    if (!analyzer.can_prove(substitute((*read)[d], map) == made->indices[d])) return std::nullopt;
  }
  return map;
}

}  // namespace

Outcome apply_step(const ReverseComputeInline& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const Block& consumer = *site->block;
  const Store* out = as_injective(consumer);
  if (out == nullptr || reads_buffer(consumer, out->buffer)) {
    return refuse(RefusalCode::not_injective, text("expected block ", step.block,
                                                   " to be one store over spatial axes, got another form"));
  }
  const BlockSite* source = find_producer(f, sites, consumer);
  if (source == nullptr) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", step.block,
                       " to be the only reader of an intermediate with one writer, got none such"));
  }
  const Block& producer = *source->block;
  const Store* made = as_injective(producer);
  if (made == nullptr || reads_buffer(producer, made->buffer)) {
    return refuse(RefusalCode::not_injective,
                  text("expected producer ", producer.name,
                       " to be one store over spatial axes, got a reduction or another form"));
  }
  size_t from = site_index(sites, &consumer), to = site_index(sites, &producer);
  if (Outcome o = check_reads_move(sites, from, to, source->loops.size()); !o) return o;
  for (size_t i = 0; i < sites.size(); ++i) {
    const Block& other = *sites[i].block;
    bool between = to < i && i < from;
    if ((i != from && writes_buffer(other, out->buffer)) || (between && reads_buffer(other, out->buffer))) {
      return refuse(RefusalCode::dependence,
                    text("expected only block ", step.block, " to write ", out->buffer.name(),
                         ", and no reader before it, got block ", other.name));
    }
  }
  std::optional<VarMap> axes = pair_instances(f, producer, consumer);
  if (!axes) {
    return refuse(RefusalCode::not_injective,
                  text("expected block ", step.block, " to read each element of ", made->buffer.name(),
                       " in one instance, got another pattern"));
  }

  Block* block = producer.copy();
  std::vector<Expr> indices;
  for (const Expr& i : out->indices)
    indices.push_back(substitute(i, *axes));
  Expr value = substitute(ReplaceLoads(made->buffer, made->value).mutate(out->value), *axes);
  block->body = Store::make(out->buffer, std::move(indices), value);
  Stmt merged = handle(block);
  if (count_nodes(block->body, kMaxBodyNodes) > kMaxBodyNodes) {
    return refuse(RefusalCode::bad_argument,
                  text("expected bodies of at most ", kMaxBodyNodes, " nodes, got more"));
  }
  merged = simplify_accesses(f, *block);
  Func result = f;
  result.body = replace_stmt(replace_stmt(f.body, &consumer, nullptr), &producer, merged);
  std::erase_if(result.allocs, [&](const Buffer& b) { return b.same_as(made->buffer); });
  std::vector<BlockSite> after = block_sites(result.body);
  if (!reads_are_covered(result, after, *find_site(after, producer.name))) {
    return refuse(RefusalCode::region_not_covered,
                  text("expected all that block ", step.block, " reads to be made before ", producer.name,
                       " in the loops they share, which is not certain"));
  }
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
