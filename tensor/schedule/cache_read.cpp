// cache_read(block="matmul", buffer="w", scope="local", name="w.local")
//
//   for i, j, k: matmul: y[i, j] += x[i, k] * w[k, j]
// becomes
//   for i0, i1: w.local: w.local[i0, i1] = w[i0, i1]             (buffer w.local)
//   for i, j, k: matmul: y[i, j] += x[i, k] * w.local[k, j]
//
// The copy stands just before the outermost loop around the block with no writer of the buffer below it, and copies
// the box that the block reads there; compute_at moves it inwards. The buffer and the copying block have the same name; the
// loops of the copy are name.i0, name.i1, ... Other blocks go on reading the buffer itself.
//
// 1. The block reads the buffer and does not write it.
// 2. The scope is global, local, registers or shared; the name is new.
// 3. What is copied has been made there.
#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

class ReadFrom : public Mutator {
 public:
  ReadFrom(const Buffer& from, const Buffer& to) : from_(from), to_(to) {}

 protected:
  Buffer on_buffer(const Buffer& b) override { return b.same_as(from_) ? to_ : b; }

 private:
  const Buffer &from_, &to_;
};

Stmt make_copy(const Func& f, const BlockSite& site, size_t depth, const Buffer& buffer, const Buffer& cache,
               Names& names) {
  auto* copy = new Block;
  copy->name = cache.name();
  std::vector<Expr> indices;
  for (int d = 0; d < buffer.rank(); ++d) {
    Var var(text("i", d));
    copy->axes.push_back({var, {0, buffer.shape()[static_cast<size_t>(d)]}, AxisKind::spatial});
    indices.push_back(var);
  }
  RegionAnalysis regions = regions_at(f, site, depth);
  std::optional<Box> box = box_read(regions, *site.block, buffer);
  std::vector<std::optional<Stretch>> ranges;
  for (const Stretch& s : box->dims)
    ranges.emplace_back(s);
  Binding binding = run_axes(regions, cache.name(), copy->axes, ranges, names);
  copy->values = binding.values;
  copy->predicate = binding.predicate;
  copy->body = Store::make(cache, indices, load(buffer, indices));
  return make_nest(binding.loops, Block::make(copy));
}

}  // namespace

Outcome apply_step(const CacheRead& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  Buffer buffer = find_buffer(f, step.buffer);
  if (!buffer) return refuse_buffer(step.buffer);
  if (!reads_buffer(*site->block, buffer) || writes_buffer(*site->block, buffer)) {
    return refuse(RefusalCode::bad_argument,
                  text("expected block ", step.block, " to read ", step.buffer, " and not to write it"));
  }
  Scope scope = Scope::global;
  if (Outcome o = parse_scope(step.scope, &scope); !o) return o;
  Names names(f);
  if (Outcome o = require_new_name(names, step.name); !o) return o;
  names.unique(step.name);

  Anchor anchor = outermost_nest(sites, *site, buffer, true);
  Buffer cache(step.name, buffer.element(), buffer.shape(), scope);
  Stmt copy = make_copy(f, *site, anchor.depth, buffer, cache, names);
  Stmt reader = ReadFrom(buffer, cache).mutate(handle(site->block));
  Func result = f;
  result.allocs.push_back(cache);
  result.body = replace_stmt(insert_before(f.body, anchor.stmt, copy), site->block, reader);
  std::vector<BlockSite> after = block_sites(result.body);
  if (!reads_are_covered(result, after, *find_site(after, step.name))) {
    return refuse(RefusalCode::region_not_covered,
                  text("expected what is copied of ", step.buffer,
                       " to be made in the loops around, which is not certain"));
  }
  const BlockSite& there = *find_site(after, step.name);
  if (repeats_instances(result, there, anchor.depth)) {
    Block* marked = there.block->copy();
    set_recomputed(marked, true);
    result.body = replace_stmt(result.body, there.block, Block::make(marked));
  }
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
