// cache_write(block="conv", buffer="conv", scope="registers", name="conv.out")
//
//   for n, oc, y, x, ic: conv: conv[n, oc, y, x] += ...
// becomes
//   for n, oc, y, x, ic: conv: conv.out[n, oc, y, x] += ...      (buffer conv.out, in registers)
//   for n, oc, y, x: conv.out: conv[n, oc, y, x] = conv.out[n, oc, y, x]
//
// The copy stands just behind the outermost loop around the block with no reader of the buffer below it, and visits
// the elements that the block makes there; reverse_compute_at moves it inwards. The buffer and the copying block have the same
// name; the loops of the copy are named name.axis after the axes of the block.
//
// 1. The block writes the buffer, and nothing else; its init, when decomposed, goes along.
// 2. It reads the buffer only to update what it, or its init, has written; no other block updates it.
// 3. Only spatial axes index what it writes; no reduce loop of the block is around the place of the copy.
// 4. The scope is global, local, registers, shared or warp; the name is new.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

// The blocks that make the buffer's elements together with the block: itself, and its decomposed init.
Outcome find_writers(const std::vector<BlockSite>& sites, const Block& block, const Buffer& buffer,
                     std::vector<const Block*>* writers) {
  if (!only_buffer_written(block).same_as(buffer)) {
    return refuse(RefusalCode::bad_argument, text("expected block ", block.name, " to write ", buffer.name(),
                                                  " and nothing else, got another buffer"));
  }
  writers->push_back(&block);
  bool updates = reads_buffer(block, buffer);
  for (const BlockSite& site : sites) {
    const Block& other = *site.block;
    if (&other == &block || !writes_buffer(other, buffer)) continue;
    if (updates && other.name == block.name + ".init") {
      writers->push_back(&other);
    } else if (updates || reads_buffer(other, buffer)) {
      return refuse(RefusalCode::dependence,
                    text("expected no other block to update ", buffer.name(), ", got ", other.name));
    }
  }
  if (updates && !block.init && writers->size() == 1) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", block.name, " to initialise what it updates in ", buffer.name(),
                       ", got an update of earlier contents"));
  }
  return applied();
}

// name: buffer[i...] = cache[i...], for the spatial axes of the block.
Stmt make_copy(const Block& writer, const Store& store, const Binding& binding, const Buffer& cache,
               const std::string& name) {
  auto* copy = new Block;
  copy->name = name;
  set_recomputed(copy, is_recomputed(writer));
  VarMap axes;
  for (const Axis& a : axes_of_kind(writer, AxisKind::spatial)) {
    Var var(a.var.name());
    axes[a.var.get()] = var;
    copy->axes.push_back({var, a.domain, AxisKind::spatial});
  }
  copy->values = binding.values;
  copy->predicate = binding.predicate;
  std::vector<Expr> indices;
  for (const Expr& i : store.indices)
    indices.push_back(substitute(i, axes));
  copy->body = Store::make(store.buffer, indices, load(cache, indices));
  return make_nest(binding.loops, Block::make(copy));
}

}  // namespace

Outcome apply_step(const CacheWrite& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  Buffer buffer = find_buffer(f, step.buffer);
  if (!buffer) return refuse_buffer(step.buffer);
  Scope scope = Scope::global;
  if (Outcome o = parse_scope(step.scope, &scope); !o) return o;
  Names names(f);
  if (Outcome o = require_new_name(names, step.name); !o) return o;
  std::vector<const Block*> writers;
  if (Outcome o = find_writers(sites, *site->block, buffer, &writers); !o) return o;
  const auto* store = site->block->body.as<Store>();
  if (store == nullptr || store->predicate.defined()) {
    return refuse(RefusalCode::not_injective,
                  text("expected block ", step.block, " to be one store, got another body"));
  }

  for (const Axis& a : site->block->axes) {
    bool indexes = std::any_of(store->indices.begin(), store->indices.end(),
                               [&](const Expr& i) { return uses_var(i, a.var); });
    if (indexes && a.kind != AxisKind::spatial) {
      return refuse(RefusalCode::dependence,
                    text("expected block ", step.block, " to write at its spatial axes, got ",
                         to_text(a.kind), " axis ", a.var.name()));
    }
  }

  Anchor anchor = outermost_nest(sites, *site, buffer, false);
  for (size_t i = 0; i < anchor.depth; ++i) {
    AxisKinds kinds = axes_bound_to(*site->block, site->loops[i]->var);
    if (kinds.reduce) {
      return refuse(RefusalCode::dependence,
                    text("expected no reduce loop around the copy, got ", site->loops[i]->var.name()));
    }
  }
  names.unique(step.name);
  std::optional<Binding> binding = visit_instances(f, *site, anchor.depth, step.name, names);
  if (!binding) {
    return refuse(RefusalCode::not_affine,
                  text("expected what block ", step.block, " writes below ", anchor.depth,
                       " loops to be a box, got a condition that mixes loops"));
  }

  Buffer cache(step.name, buffer.element(), buffer.shape(), scope);
  Func result = f;
  result.allocs.push_back(cache);
  result.body =
      insert_after(f.body, anchor.stmt, make_copy(*site->block, *store, *binding, cache, step.name));
  result.body = map_blocks(result.body, [&](const Block& b, const Stmt& self) {
    bool writes = std::find(writers.begin(), writers.end(), &b) != writers.end();
    return writes ? replace_buffers(self, {{buffer.get(), cache}}) : self;
  });
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
