#include "tensor/schedule/legality.h"

#include <algorithm>

#include "tensor/schedule/regions.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

constexpr int64_t kMaxLanes = 1024;

bool same_indices(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Expr& x, const Expr& y) { return x.same_as(y) || structurally_equal(x, y); });
}

bool is_associative(BinaryOp op) {
  return op == BinaryOp::add || op == BinaryOp::mul || op == BinaryOp::min || op == BinaryOp::max ||
         is_logical(op);
}

// The first loop of the given kind, or null.
const For* first_of_kind(const std::vector<const For*>& loops, LoopKind kind) {
  auto it = std::find_if(loops.begin(), loops.end(), [&](const For* l) { return l->loop == kind; });
  return it == loops.end() ? nullptr : *it;
}

// Whether an access of the buffer in the block moves along the loop.
bool is_indexed_by(const Block& block, const Buffer& buffer, const Var& loop) {
  for (const std::vector<Region>* regions : {&block.reads, &block.writes}) {
    for (const Region& r : *regions) {
      if (!r.buffer.same_as(buffer)) continue;
      for (size_t i = 0; i < block.axes.size(); ++i) {
        if (!uses_var(block.values[i], loop)) continue;
        bool uses = std::any_of(r.ranges.begin(), r.ranges.end(),
                                [&](const Range& range) { return uses_var(range.min, block.axes[i].var); });
        if (uses) return true;
      }
    }
  }
  return false;
}

// Whether the buffer may carry values along a scan loop around the given one: it is indexed by such a loop.
bool is_carried(const std::vector<BlockSite>& sites, const Buffer& buffer, const For* inner) {
  for (const BlockSite& site : sites) {
    if (!is_under(site, inner)) continue;
    for (const For* loop : site.loops) {
      if (loop == inner) break;
      if (is_indexed_by(*site.block, buffer, loop->var) && axes_bound_below(loop->body, loop->var).scan)
        return true;
    }
  }
  return false;
}

// Whether each iteration of the loop has the buffer to itself: nothing outside touches it, and no outer scan carries it.
bool is_private_to(const Func& f, const std::vector<BlockSite>& sites, const Buffer& buffer,
                   const For* loop) {
  if (!is_intermediate(f, buffer)) return false;
  bool used_outside = std::any_of(sites.begin(), sites.end(), [&](const BlockSite& site) {
    return !is_under(site, loop) && (reads_buffer(*site.block, buffer) || writes_buffer(*site.block, buffer));
  });
  return !used_outside && !is_carried(sites, buffer, loop);
}

size_t depth_of(const BlockSite& site, const For* loop) {
  return static_cast<size_t>(std::find(site.loops.begin(), site.loops.end(), loop) - site.loops.begin());
}

std::vector<Expr> spatial_values(const Block& block) {
  std::vector<Expr> values;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (block.axes[i].kind == AxisKind::spatial) values.push_back(block.values[i]);
  }
  return values;
}

Outcome check_parallel_block(const Func& f, const std::vector<BlockSite>& sites, const BlockSite& site,
                             const For* loop) {
  const Block& block = *site.block;
  const std::string& name = loop->var.name();
  AxisKinds kinds = axes_bound_to(block, loop->var);
  if (kinds.reduce || kinds.scan) {
    return refuse(RefusalCode::dependence,
                  text("expected only spatial axes bound to parallel loop ", name, ", got a ",
                       kinds.reduce ? "reduce" : "scan", " axis of block ", block.name));
  }
  for (const Region& w : block.writes) {
    if (is_private_to(f, sites, w.buffer, loop)) continue;
    if (kinds.spatial && !is_recomputed(block)) continue;
    if (kinds.spatial &&
        separates(regions_at(f, site, depth_of(site, loop)), loop->var, spatial_values(block)))
      continue;
    return refuse(RefusalCode::dependence, text("expected each element of ", w.buffer.name(),
                                                " to be written in one iteration of parallel loop ", name,
                                                ", got block ", block.name, " writing some in several"));
  }
  return applied();
}

Outcome check_vectorized_block(const Func& f, const BlockSite& site, const For* loop) {
  const Block& block = *site.block;
  const std::string& name = loop->var.name();
  AxisKinds kinds = axes_bound_to(block, loop->var);
  if (kinds.scan) {
    return refuse(RefusalCode::dependence, text("expected no scan axis bound to vectorized loop ", name,
                                                ", got one of block ", block.name));
  }
  if (kinds.reduce) {
    if (kinds.spatial || block.init || !as_update(block) || uses_var(block.predicate, loop->var)) {
      return refuse(RefusalCode::dependence,
                    text("expected vectorized reduce loop ", name,
                         " to carry a decomposed update without a condition on it, got ",
                         block.init ? "an init in" : "another form in", " block ", block.name));
    }
    return applied();
  }
  if (kinds.spatial && !is_recomputed(block)) return applied();
  // The lanes run in step: what other loops do at the same time does not matter.
  RegionAnalysis regions = regions_at(f, site, site.loops.size());
  regions.run(loop->var, loop->min, loop->extent);
  if (!separates(regions, loop->var, spatial_values(block))) {
    return refuse(RefusalCode::dependence,
                  text("expected the lanes of loop ", name, " to write different elements, got block ",
                       block.name, " writing some in several"));
  }
  return applied();
}

}  // namespace

std::optional<Update> as_update(const Block& block) {
  const auto* store = block.body.as<Store>();
  if (store == nullptr || store->predicate.defined()) return std::nullopt;
  const auto* sum = store->value.as<Binary>();
  if (sum == nullptr || !is_associative(sum->op)) return std::nullopt;
  auto is_old_value = [&](const Expr& e) {
    const auto* load = e.as<Load>();
    return load != nullptr && load->buffer.same_as(store->buffer) && !load->predicate.defined() &&
           same_indices(load->indices, store->indices);
  };
  const Expr* operand = is_old_value(sum->a) ? &sum->b : is_old_value(sum->b) ? &sum->a : nullptr;
  if (operand == nullptr) return std::nullopt;
  bool again = false;
  for_each_expr(Evaluate::make(*operand), [&](const Expr& e) {
    const auto* load = e.as<Load>();
    again |= load != nullptr && load->buffer.same_as(store->buffer);
  });
  if (again) return std::nullopt;
  return Update{sum->op, store->buffer, store->indices, *operand};
}

Outcome check_parallel(const Func& f, const For* loop) {
  const std::string& name = loop->var.name();
  std::vector<const For*> around = loops_around(f.body, loop);
  std::vector<const For*> below = loops_below(loop->body);
  for (LoopKind kind : {LoopKind::parallel, LoopKind::vectorized}) {
    if (const For* other = first_of_kind(around, kind)) {
      return refuse(RefusalCode::not_nested,
                    text("expected no ", to_text(kind), " loop around parallel loop ", name, ", got ",
                         other->var.name()));
    }
  }
  if (const For* other = first_of_kind(below, LoopKind::parallel)) {
    return refuse(RefusalCode::not_nested,
                  text("expected no parallel loop below parallel loop ", name, ", got ", other->var.name()));
  }
  std::vector<BlockSite> sites = block_sites(f.body);
  for (const BlockSite& site : sites) {
    if (!is_under(site, loop)) continue;
    if (Outcome o = check_parallel_block(f, sites, site, loop); !o) return o;
  }
  return applied();
}

Outcome check_vectorized(const Func& f, const For* loop) {
  const std::string& name = loop->var.name();
  int64_t extent = 0;
  if (!as_int(loop->extent, &extent) || extent < 1 || extent > kMaxLanes) {
    return refuse(RefusalCode::bad_argument, text("expected a constant extent of 1 to ", kMaxLanes,
                                                  " of loop ", name, ", got ", to_text(loop->extent)));
  }
  if (const For* other = first_of_kind(loops_around(f.body, loop), LoopKind::vectorized)) {
    return refuse(RefusalCode::not_nested,
                  text("expected no vectorized loop around loop ", name, ", got ", other->var.name()));
  }
  for (const For* other : loops_below(loop->body)) {
    if (other->loop == LoopKind::parallel || other->loop == LoopKind::vectorized) {
      return refuse(RefusalCode::not_nested,
                    text("expected no ", to_text(other->loop), " loop below vectorized loop ", name, ", got ",
                         other->var.name()));
    }
  }
  for (const BlockSite& site : block_sites(f.body)) {
    if (!is_under(site, loop)) continue;
    if (Outcome o = check_vectorized_block(f, site, loop); !o) return o;
  }
  return applied();
}

Outcome check_scopes(const Func& f) {
  std::vector<const For*> parallel;
  for (const For* loop : loops_below(f.body)) {
    if (loop->loop == LoopKind::parallel) parallel.push_back(loop);
  }
  if (parallel.empty()) return applied();
  std::vector<BlockSite> sites = block_sites(f.body);
  for (const Buffer& buffer : f.allocs) {
    if (buffer.scope() != Scope::local && buffer.scope() != Scope::registers) continue;
    for (const For* loop : parallel) {
      bool inside = false, outside = false;
      for (const BlockSite& site : sites) {
        if (!reads_buffer(*site.block, buffer) && !writes_buffer(*site.block, buffer)) continue;
        (is_under(site, loop) ? inside : outside) = true;
      }
      if (inside && outside) {
        return refuse(RefusalCode::scope,
                      text("expected buffer ", buffer.name(), " of scope ", to_text(buffer.scope()),
                           " to be used in one iteration of parallel loop ", loop->var.name(),
                           ", got uses outside of it"));
      }
    }
  }
  return applied();
}

Outcome check_threads(const Func& f) {
  if (!f.body) return applied();
  for (const For* loop : loops_below(f.body)) {
    if (loop->loop == LoopKind::parallel) {
      if (Outcome o = check_parallel(f, loop); !o) return o;
    } else if (loop->loop == LoopKind::vectorized) {
      if (Outcome o = check_vectorized(f, loop); !o) return o;
    }
  }
  return check_scopes(f);
}

}  // namespace mcc::tensor
