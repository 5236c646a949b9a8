// Whose elements of a buffer are, where several nests of threads use it.
#include <algorithm>
#include <array>
#include <set>

#include "tensor/grid.h"
#include "tensor/schedule/func_sites.h"
#include "tensor/schedule/legality.h"
#include "tensor/schedule/regions.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// The grid's axes in terms of which the places of blocks in different nests are compared.
struct Places {
  std::array<Var, kGridAxes.size()> axes;
  bool of_warps;  // what the threads of a warp use together, not what one thread does
  explicit Places(bool is_of_warps) : of_warps(is_of_warps) {
    for (size_t k = 0; k < kGridAxes.size(); ++k)
      axes[k] = Var(std::string(kGridAxes[k].name));
  }

  // What one thread (or warp) does to the buffer in the site, while the first `common` loops around stand still.
  std::optional<Box> box(const Func& f, const BlockSite& site, size_t common, const Buffer& buffer,
                         bool is_write) const {
    VarMap map;
    Analyzer analyzer = analyzer_at(f, site.loops);
    for (const For* loop : site.loops) {
      if (!is_thread_loop(*loop)) continue;
      const Var& axis = axes[static_cast<size_t>(*grid_axis(*loop))];
      map.emplace(loop->var.get(), axis);
      analyzer.bind(axis, 0, loop->extent);
    }
    RegionAnalysis regions(analyzer);
    for (const Var& d : f.dims)
      regions.stand(d);
    for (size_t k = 0; k < site.loops.size(); ++k) {
      const For& loop = *site.loops[k];
      if (is_thread_loop(loop)) {
        const Var& axis = axes[static_cast<size_t>(*grid_axis(loop))];
        is_in_warp(loop) ? regions.run(axis, 0, loop.extent) : regions.stand(axis);
      } else if (k < common) {
        regions.stand(loop.var);
      } else {
        regions.run(loop.var, substitute(loop.min, map), substitute(loop.extent, map));
      }
    }
    Block* block = site.block->copy();
    for (Expr& value : block->values)
      value = substitute(value, map);
    block->predicate = true_value();  // whose elements they are does not depend on whether they are there
    Stmt made = Block::make(block);
    const Block& placed = *made.as<Block>();
    return is_write ? box_written(regions, placed, buffer) : box_read(regions, placed, buffer);
  }

 private:
  bool is_in_warp(const For& loop) const { return of_warps && grid_axis(loop) != GridAxis::thread_z; }
};

Outcome refuse_user(const Buffer& buffer, const std::string& by, const BlockSite& site,
                    const std::string& got) {
  return refuse(RefusalCode::scope,
                text("expected each element of ", buffer.name(), " of scope ", to_text(buffer.scope()),
                     " to be used by one ", by, ", got block ", site.block->name, " ", got));
}

// The loops over the threads of a warp, thread.y and thread.x.
struct WarpLoops {
  const For *y = nullptr, *x = nullptr;
};

std::optional<WarpLoops> warp_loops(const BlockSite& site) {
  constexpr int64_t kWarp = 32;
  WarpLoops found;
  for (const For* loop : site.loops) {
    if (grid_axis(*loop) == GridAxis::thread_y) found.y = loop;
    if (grid_axis(*loop) == GridAxis::thread_x) found.x = loop;
  }
  int64_t rows = 0, columns = 0;
  const bool is_warp = found.y && found.x && as_int(found.y->extent, &rows) &&
                       as_int(found.x->extent, &columns) && rows * columns == kWarp;
  return is_warp ? std::optional(found) : std::nullopt;
}

// Accesses of the buffer in a block: indices in terms of the loops around it.
std::vector<std::vector<Expr>> indices_in(const Func& f, const BlockSite& site, const Buffer& buffer,
                                          bool is_write) {
  VarMap map;
  for (size_t n = 0; n < site.block->axes.size(); ++n)
    map.emplace(site.block->axes[n].var.get(), site.block->values[n]);
  const Analyzer analyzer = analyzer_at(f, site.loops);
  std::vector<std::vector<Expr>> found;
  auto add = [&](std::vector<Expr> indices) {
    for (Expr& index : indices)
      index = analyzer.simplify(substitute(index, map));
    found.push_back(std::move(indices));
  };
  for (const Stmt& part : {site.block->init, site.block->body}) {
    if (!part) continue;
    for_each_stmt(part, [&](const Stmt& s) {
      const auto* store = s.as<Store>();
      if (is_write && store && store->buffer.same_as(buffer)) add(store->indices);
    });
    for_each_expr(part, [&](const Expr& e) {
      const auto* load = e.as<Load>();
      if (!is_write && load && load->buffer.same_as(buffer)) add(load->indices);
    });
  }
  return found;
}

// Rule 7 of bind.cpp, for one buffer, beside what rule 6 says of warps.
Outcome check_owners(const Func& f, const std::vector<const BlockSite*>& users, const Buffer& buffer) {
  auto failed = [&](const BlockSite& site, const std::string& got) {
    return refuse_user(buffer, "warp", site, got);
  };
  const std::optional<WarpLoops> own = warp_loops(*users[0]);
  if (!own) return failed(*users[0], "in no nest of thread.y and thread.x that is a warp");
  std::optional<std::pair<size_t, size_t>> owner;  // the dimensions that say which thread has an element
  for (const std::vector<Expr>& indices : indices_in(f, *users[0], buffer, true)) {
    auto place = [&](const Var& var) {
      return static_cast<size_t>(
          std::find_if(indices.begin(), indices.end(), [&](const Expr& i) { return i.same_as(var); }) -
          indices.begin());
    };
    const std::pair<size_t, size_t> dims{place(own->y->var), place(own->x->var)};
    bool is_owned = dims.first < indices.size() && dims.second < indices.size() && (!owner || owner == dims);
    for (size_t d = 0; d < indices.size() && is_owned; ++d)
      is_owned = d == dims.first || d == dims.second ||
                 !(uses_var(indices[d], own->y->var) || uses_var(indices[d], own->x->var));
    if (!is_owned) return failed(*users[0], "whose threads are no indices of what it writes");
    owner = dims;
  }
  for (const BlockSite* user : users) {
    if (user == users[0]) continue;
    const std::optional<WarpLoops> loops = warp_loops(*user);
    if (!loops || !structurally_equal(loops->x->extent, own->x->extent))
      return failed(*user, "in a nest of other threads");
    if (thread_nest(*user) == thread_nest(*users[0])) return failed(*user, "in the nest that makes them");
    if (writes_buffer(*user->block, buffer)) return failed(*user, "that writes them, too");
    auto depends = [&](const Expr& e) { return uses_var(e, loops->y->var) || uses_var(e, loops->x->var); };
    bool come_all = !depends(user->block->predicate);
    for (const For* loop : user->loops)
      come_all &= !depends(loop->min) && !depends(loop->extent);
    if (!come_all) return failed(*user, "to which not all threads of a warp come");
    for (const std::vector<Expr>& indices : indices_in(f, *user, buffer, false)) {
      for (size_t d = 0; d < indices.size(); ++d) {
        if (d != owner->first && d != owner->second && depends(indices[d]))
          return failed(*user, "whose threads take different elements of one thread");
      }
    }
  }
  return applied();
}

// Rule 6 of bind.cpp, for one buffer that is used in several nests, or by warps.
Outcome check_users(const Func& f, const std::vector<const BlockSite*>& users, const Buffer& buffer) {
  const bool is_of_warps = buffer.scope() == Scope::warp;
  auto failed = [&](const BlockSite& site) {
    return refuse_user(buffer, is_of_warps ? "warp" : "thread", site, "that may use those of others");
  };
  if (is_of_warps) {
    if (Outcome o = check_owners(f, users, buffer); !o) return o;
  }
  // A recurrence reads what its step before has made.
  const auto writer = std::find_if(
      users.begin(), users.end(), [&](const BlockSite* user) { return writes_buffer(*user->block, buffer); });
  const BlockSite& maker = writer == users.end() ? *users[0] : **writer;
  size_t common = maker.loops.size();
  for (const BlockSite* user : users)
    common = std::min(common, common_loops(maker, *user));
  // Different launches have no thread in common.
  if (common == 0 ||
      std::none_of(maker.loops.begin(), maker.loops.begin() + static_cast<std::ptrdiff_t>(common),
                   [](const For* l) { return is_block_loop(*l); })) {
    return failed(*users.back());
  }
  Places places(is_of_warps);
  std::optional<Box> made = places.box(f, maker, common, buffer, true);
  if (!made || !made->exact || is_recomputed(*maker.block)) return failed(maker);
  RegionAnalysis regions = regions_at(f, maker, common);
  for (const Var& axis : places.axes)
    regions.stand(axis, 0, kMaxThreads);
  for (const BlockSite* user : users) {
    for (bool is_write : {false, true}) {
      if (is_write ? !writes_buffer(*user->block, buffer) : !reads_buffer(*user->block, buffer)) continue;
      std::optional<Box> used = places.box(f, *user, common, buffer, is_write);
      if (!used || !regions.covers(*made, *used, buffer.shape())) return failed(*user);
    }
  }
  return applied();
}

Outcome check_thread_buffer(const Func& f, const FuncSites& sites, const Buffer& buffer, Proven& proven) {
  const std::vector<const BlockSite*>& users = sites.users(buffer);
  std::set<const For*> nests;
  bool has_threads = false;
  for (const BlockSite* site : users) {
    nests.insert(thread_nest(*site));
    has_threads |= std::any_of(site->loops.begin(), site->loops.end(),
                               [](const For* l) { return l->loop == LoopKind::bound; });
  }
  if (!has_threads) return applied();
  if (buffer.scope() != Scope::warp && nests.size() == 1 && !nests.contains(nullptr)) return applied();
  // Which loops two sites have in common their variables say.
  Proven::Question question(Proven::Kind::owned);
  question.add(buffer.get());
  for (const BlockSite* user : users)
    question.add(*user);
  if (proven.holds(question)) return applied();
  Outcome outcome = check_users(f, users, buffer);
  if (outcome) proven.add(std::move(question));
  return outcome;
}

}  // namespace

const For* thread_nest(const BlockSite& site) {
  auto it =
      std::find_if(site.loops.begin(), site.loops.end(), [](const For* l) { return is_thread_loop(*l); });
  return it == site.loops.end() ? nullptr : *it;
}

Outcome check_thread_buffers(const Func& f, const FuncSites& sites, Proven& proven) {
  for (const Buffer& buffer : f.allocs) {
    if (buffer.scope() != Scope::local && buffer.scope() != Scope::registers && buffer.scope() != Scope::warp)
      continue;
    if (Outcome o = check_thread_buffer(f, sites, buffer, proven); !o) return o;
  }
  return applied();
}

}  // namespace mcc::tensor
