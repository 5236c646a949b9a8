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
// 2. The scope is global, local, registers, shared or warp; the name is new.
// 3. What is copied has a value, and has been made there.
#include "tensor/schedule/move.h"
#include "tensor/schedule/separation.h"
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

// The block name: cache[i...] = buffer[i...] over the box, which is all there is to copy where `only_box`.
Stmt make_copy(const RegionAnalysis& regions, const Box& box, bool only_box, const Buffer& buffer,
               const Buffer& cache, Names& names) {
  auto* copy = new Block;
  copy->name = cache.name();
  std::vector<Expr> indices;
  std::vector<std::optional<Stretch>> ranges;
  for (size_t d = 0; d < box.dims.size(); ++d) {
    const Stretch& s = box.dims[d];
    Var var(text("i", d));
    Range domain{0, buffer.shape()[d]};
    if (only_box) domain = {s.low, regions.analyzer().simplify(s.width + 1)};
    copy->axes.push_back({var, domain, AxisKind::spatial});
    indices.push_back(var);
    ranges.emplace_back(s);
  }
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
  RegionAnalysis regions = regions_at(f, *site, anchor.depth);
  Box box = *box_read(regions, *site->block, buffer);
  bool is_full = is_fully_written(f, sites, buffer);
  if (!is_full && (!box.exact || anchor.depth != 0 || !is_true(site->block->predicate))) {
    return refuse(RefusalCode::region_not_covered,
                  text("expected all of ", step.buffer, " to be written, or block ", step.block,
                       " to read a box of it, got elements that may have no value"));
  }
  Stmt copy = make_copy(regions, box, !is_full, buffer, cache, names);
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
  if (repeats_instances(result, there, 0, anchor.depth)) {
    Block* marked = there.block->copy();
    set_recomputed(marked, true);
    result.body = replace_stmt(result.body, there.block, Block::make(marked));
  }
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
