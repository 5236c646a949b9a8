#include "tensor/schedule/legality.h"

#include <algorithm>

#include "tensor/grid.h"
#include "tensor/schedule/func_sites.h"
#include "tensor/schedule/regions.h"
#include "tensor/schedule/separation.h"
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
bool is_carried(const FuncSites& sites, const Buffer& buffer, const For* inner) {
  const std::span<const BlockSite> below = sites.below(inner);
  for (const For* loop : sites.around(inner)) {
    const bool is_indexed = std::any_of(below.begin(), below.end(), [&](const BlockSite& site) {
      return is_indexed_by(*site.block, buffer, loop->var);
    });
    if (is_indexed && axes_bound_below(loop->body, loop->var).scan) return true;
  }
  return false;
}

// Whether each iteration of the loop has the buffer to itself: nothing outside touches it, and no outer scan carries it.
bool is_private_to(const Func& f, const FuncSites& sites, const Buffer& buffer, const For* loop) {
  if (!is_intermediate(f, buffer)) return false;
  const std::vector<const BlockSite*>& users = sites.users(buffer);
  bool used_outside =
      std::any_of(users.begin(), users.end(), [&](const BlockSite* site) { return !is_under(*site, loop); });
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

// Whether lowering gives each iteration of a bound loop, below which all uses of the buffer are, one of its own.
bool is_kept_apart(const FuncSites& sites, const Buffer& buffer, const For* loop) {
  if (is_thread_loop(*loop)) return buffer.scope() != Scope::shared && buffer.scope() != Scope::warp;
  if (buffer.scope() != Scope::global) return true;
  std::set<const For*> nests;
  for (const BlockSite* site : sites.users(buffer))
    nests.insert(thread_nest(*site));
  return nests.size() == 1 && !nests.contains(nullptr);
}

// Whether threads may combine their values along the loop.
Outcome check_cross(const FuncSites& sites, const BlockSite& site, const For* loop) {
  const Block& block = *site.block;
  const std::string& name = loop->var.name();
  auto refused = [&](std::string_view expected) {
    return refuse(RefusalCode::dependence,
                  text("expected ", expected, " to reduce over the threads of loop ", name));
  };
  int64_t extent = 0;
  constexpr int64_t kWarp = 32;  // its parts, or whole ones
  bool are_even = as_int(loop->extent, &extent) && extent > 1 && (extent % kWarp == 0 || kWarp % extent == 0);
  if (!are_even || grid_axis(*loop) != GridAxis::thread_x)
    return refused("thread.x and a divisor or a multiple of 32 iterations");
  std::optional<Update> update = as_update(block);
  if (loop->body.get() != &block || block.init || !update || !is_shuffled(update->operand.element())) {
    return refused(text("block ", block.name, " right inside, as an update of 32 or 64 bits without init,"));
  }
  // No thread of a warp may be left out.
  const auto launch =
      std::find_if(site.loops.begin(), site.loops.end(), [](const For* l) { return is_block_loop(*l); });
  for (const BlockSite& other : sites.below(launch == site.loops.end() ? site.loops[0] : *launch)) {
    for (const For* own : site.loops) {
      for (const For* l : other.loops) {
        bool differs = is_thread_loop(*own) && grid_axis(*own) == grid_axis(*l) &&
                       !structurally_equal(own->extent, l->extent);
        if (differs)
          return refused(text("as many iterations of loop ", l->var.name(), " as of ", own->var.name()));
      }
    }
  }
  for (size_t i = 0; i < block.axes.size(); ++i) {
    bool is_reduced = block.axes[i].kind == AxisKind::reduce;
    if (!is_reduced) {
      if (uses_var(block.values[i], loop->var)) return refused("no spatial axis");
    } else if (!block.values[i].same_as(loop->var)) {
      return refused(text("one reduce loop of block ", block.name));
    }
  }
  return applied();
}

// Whether the iterations of a loop around the block write different elements, whatever the loops inside of it do.
bool is_separated(const Func& f, const BlockSite& site, const For* loop, LoopKind kind, Proven& proven) {
  const size_t depth = depth_of(site, loop);
  const bool in_sums = kind == LoopKind::bound;
  Proven::Question question(Proven::Kind::separated);
  question.add(site);
  question.add(static_cast<int64_t>(depth));
  question.add(int64_t{in_sums});
  if (proven.holds(question)) return true;
  const bool is_so = separates(regions_at(f, site, depth), loop->var, spatial_values(*site.block), in_sums);
  if (is_so) proven.add(std::move(question));
  return is_so;
}

Outcome check_parallel_block(const Func& f, const FuncSites& sites, const BlockSite& site, const For* loop,
                             Proven& proven, LoopKind kind = LoopKind::parallel) {
  const Block& block = *site.block;
  const std::string name = text(to_text(kind), " loop ", loop->var.name());
  AxisKinds kinds = axes_bound_to(block, loop->var);
  if (kinds.reduce && !kinds.scan && is_cross_loop(*loop)) return check_cross(sites, site, loop);
  if (kinds.reduce || kinds.scan) {
    return refuse(RefusalCode::dependence,
                  text("expected only spatial axes bound to ", name, ", got a ",
                       kinds.reduce ? "reduce" : "scan", " axis of block ", block.name));
  }
  for (const Region& w : block.writes) {
    bool is_private = is_private_to(f, sites, w.buffer, loop);
    if (is_private && (kind == LoopKind::parallel || is_kept_apart(sites, w.buffer, loop))) continue;
    if (kinds.spatial && !is_recomputed(block)) continue;
    if (kinds.spatial && is_separated(f, site, loop, kind, proven)) continue;
    return refuse(RefusalCode::dependence,
                  text("expected each element of ", w.buffer.name(), " to be written in one iteration of ",
                       name, ", got block ", block.name, " writing some in several"));
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

namespace {

Outcome check_parallel(const Func& f, const FuncSites& sites, const For* loop, Proven& proven) {
  const std::string& name = loop->var.name();
  std::vector<const For*> around = sites.around(loop);
  std::vector<const For*> below = loops_below(loop->body);
  for (LoopKind kind : {LoopKind::parallel, LoopKind::vectorized, LoopKind::bound}) {
    if (const For* other = first_of_kind(around, kind)) {
      return refuse(RefusalCode::not_nested,
                    text("expected no ", to_text(kind), " loop around parallel loop ", name, ", got ",
                         other->var.name()));
    }
  }
  for (LoopKind kind : {LoopKind::parallel, LoopKind::bound}) {
    if (const For* other = first_of_kind(below, kind)) {
      return refuse(RefusalCode::not_nested, text("expected no ", to_text(kind), " loop below parallel loop ",
                                                  name, ", got ", other->var.name()));
    }
  }
  for (const BlockSite& site : sites.below(loop)) {
    if (Outcome o = check_parallel_block(f, sites, site, loop, proven); !o) return o;
  }
  return applied();
}

Outcome check_vectorized(const Func& f, const FuncSites& sites, const For* loop) {
  const std::string& name = loop->var.name();
  int64_t extent = 0;
  if (!as_int(loop->extent, &extent) || extent < 1 || extent > kMaxLanes) {
    return refuse(RefusalCode::bad_argument, text("expected a constant extent of 1 to ", kMaxLanes,
                                                  " of loop ", name, ", got ", to_text(loop->extent)));
  }
  if (const For* other = first_of_kind(sites.around(loop), LoopKind::vectorized)) {
    return refuse(RefusalCode::not_nested,
                  text("expected no vectorized loop around loop ", name, ", got ", other->var.name()));
  }
  for (const For* other : loops_below(loop->body)) {
    if (other->loop == LoopKind::parallel || other->loop == LoopKind::vectorized || is_thread_loop(*other) ||
        is_block_loop(*other)) {
      return refuse(RefusalCode::not_nested,
                    text("expected no ", to_text(other->loop), " loop below vectorized loop ", name, ", got ",
                         other->var.name()));
    }
  }
  for (const BlockSite& site : sites.below(loop)) {
    if (Outcome o = check_vectorized_block(f, site, loop); !o) return o;
  }
  return applied();
}

Outcome check_scopes(const Func& f, const FuncSites& sites) {
  std::vector<const For*> parallel;
  for (const For* loop : loops_below(f.body)) {
    if (loop->loop == LoopKind::parallel) parallel.push_back(loop);
  }
  if (parallel.empty()) return applied();
  for (const Buffer& buffer : f.allocs) {
    if (buffer.scope() != Scope::local && buffer.scope() != Scope::registers) continue;
    for (const For* loop : parallel) {
      bool inside = false, outside = false;
      for (const BlockSite* site : sites.users(buffer))
        (is_under(*site, loop) ? inside : outside) = true;
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

// ---- Grids ----

bool is_bound(const For* loop) { return loop->loop == LoopKind::bound; }

Outcome refuse_nest(const For* loop, const std::string& expected, const For* other) {
  return refuse(RefusalCode::not_nested, text("expected ", expected, " bound loop ", loop->var.name(),
                                              ", got ", to_text(other->loop), " loop ", other->var.name()));
}

// Whether the number depends on neither loops nor data.
bool is_known_before(const Expr& e, const std::vector<const For*>& loops) {
  bool has_load = false;
  for_each_expr(Evaluate::make(e), [&](const Expr& below) { has_load |= below.as<Load>() != nullptr; });
  return !has_load && !uses_any(e, loops);
}

// Rules 2 and 3 of bind.cpp.
Outcome check_place(const For* loop, const std::vector<const For*>& around) {
  const GridAxisInfo& axis = info_of(*grid_axis(*loop));
  const bool is_thread = !is_block_axis(axis.axis);
  int64_t threads = 1;
  for (size_t k = 0; k < around.size(); ++k) {
    const For* outer = around[k];
    if (outer->loop == LoopKind::parallel || outer->loop == LoopKind::vectorized) {
      return refuse_nest(loop, "no such loop around", outer);
    }
    auto taken = grid_axis(*outer);
    if (taken == axis.axis) return refuse_nest(loop, text("one loop over ", axis.name, " around"), outer);
    const bool is_step =
        outer->loop == LoopKind::serial &&
        std::none_of(around.begin(), around.begin() + static_cast<std::ptrdiff_t>(k), is_bound);
    if (!is_thread && !is_block_loop(*outer) && !is_step)
      return refuse_nest(loop, "loops over blocks alone, and serial ones around those, around", outer);
    int64_t first = 0;
    if (!is_thread && is_step && !(as_int(outer->min, &first) && is_known_before(outer->extent, around)))
      return refuse_nest(loop, "only loops of bounds that are known before the run around", outer);
    bool is_inside = std::any_of(around.begin(), around.begin() + static_cast<std::ptrdiff_t>(k),
                                 [](const For* l) { return is_thread_loop(*l); });
    if (is_inside && !is_thread_loop(*outer))
      return refuse_nest(loop, "only loops over threads around", outer);
    const StmtNode* inner = k + 1 < around.size() ? around[k + 1] : loop;
    if (is_thread_loop(*outer) && outer->body.get() != inner) {
      return refuse_nest(loop, "nothing else beside", outer);
    }
    int64_t extent = 0;
    if (is_thread_loop(*outer) && as_int(outer->extent, &extent)) threads *= extent;
  }
  int64_t extent = 0;
  bool is_constant = as_int(loop->extent, &extent);
  if (!is_int(loop->min, 0) || (is_thread && !is_constant) ||
      (is_constant && (extent < 1 || extent > axis.most))) {
    return refuse(
        RefusalCode::bad_argument,
        text("expected a ", is_thread ? "constant " : "", "number of iterations of loop ", loop->var.name(),
             ", 1 to ", axis.most, ", for ", axis.name, ", got ", to_text(loop->extent)));
  }
  if (is_thread && threads * extent > kMaxThreads) {
    return refuse(RefusalCode::bad_argument, text("expected at most ", kMaxThreads, " threads, got ",
                                                  threads * extent, " with loop ", loop->var.name()));
  }
  if (!is_thread && uses_any(loop->extent, around)) {
    return refuse(RefusalCode::bad_argument, text("expected the extent of loop ", loop->var.name(),
                                                  " to be free of other loops, got ", to_text(loop->extent)));
  }
  return applied();
}

// Whether a loop that is bound to an axis of a GPU's grid may be (bind.cpp has the rules).
Outcome check_bound(const Func& f, const FuncSites& sites, const For* loop, Proven& proven) {
  MCC_CHECK(grid_axis(*loop), "loop ", loop->var.name(), " is bound to no axis");
  if (Outcome o = check_place(loop, sites.around(loop)); !o) return o;
  for (const For* other : loops_below(loop->body)) {
    if (other->loop == LoopKind::parallel) return refuse_nest(loop, "no such loop below", other);
  }
  if (is_int(loop->extent, 1)) return applied();
  for (const BlockSite& site : sites.below(loop)) {
    if (Outcome o = check_parallel_block(f, sites, site, loop, proven, LoopKind::bound); !o) return o;
  }
  return applied();
}

}  // namespace

Outcome check_parallel(const Func& f, const For* loop) {
  Proven nothing;
  return check_parallel(f, FuncSites(f), loop, nothing);
}
Outcome check_vectorized(const Func& f, const For* loop) { return check_vectorized(f, FuncSites(f), loop); }
Outcome check_scopes(const Func& f) { return check_scopes(f, FuncSites(f)); }

Outcome check_threads(const Func& f, Proven& proven) {
  if (!f.body) return applied();
  const FuncSites sites(f);
  bool has_grid = false;
  for (const For* loop : loops_below(f.body)) {
    if (is_bound(loop)) {
      has_grid = true;
      if (Outcome o = check_bound(f, sites, loop, proven); !o) return o;
    } else if (loop->loop == LoopKind::parallel) {
      if (Outcome o = check_parallel(f, sites, loop, proven); !o) return o;
    } else if (loop->loop == LoopKind::vectorized) {
      if (Outcome o = check_vectorized(f, sites, loop); !o) return o;
    }
  }
  if (has_grid) {
    if (Outcome o = check_thread_buffers(f, sites, proven); !o) return o;
  }
  return check_scopes(f, sites);
}

}  // namespace mcc::tensor
