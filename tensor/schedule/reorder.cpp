// reorder(loops=["k", "i"])
//
//   for i: for j: for k: block
// becomes
//   for k: for j: for i: block
//
// 1. There are at least two loops, named once each, in one chain of directly nested loops.
// 2. No loop's bounds depend on a loop that would come to stand inside of it.
// 3. A loop bound to a scan axis keeps its order with all others in the chain, but for spatial ones along which the block below
//    touches nothing but what its own iteration writes: all it does to a buffer that it writes is at that axis in one dimension.
// 4. A loop that repeats a recomputed block does not come to stand inside of that block's reduce loops.
#include <algorithm>
#include <vector>

#include "tensor/schedule/separation.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

// The directly nested loops from the outermost to the innermost named one.
Outcome find_segment(const Reorder& step, const Schedule& schedule, std::vector<const For*>* named,
                     std::vector<const For*>* segment) {
  for (const std::string& name : step.loops) {
    const For* loop = schedule.find_loop(name);
    if (loop == nullptr) return refuse_loop(name);
    if (std::find(named->begin(), named->end(), loop) != named->end()) {
      return refuse(RefusalCode::bad_argument, text("expected each loop once, got ", name, " twice"));
    }
    named->push_back(loop);
  }
  if (named->size() < 2) {
    return refuse(RefusalCode::bad_argument, text("expected at least two loops, got ", named->size()));
  }
  for (const For* first : *named) {
    std::vector<const For*> chain = chain_from(first);
    size_t last = 0, found = 0;
    for (size_t i = 0; i < chain.size(); ++i) {
      if (std::find(named->begin(), named->end(), chain[i]) == named->end()) continue;
      last = i;
      ++found;
    }
    if (found != named->size()) continue;
    segment->assign(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    return applied();
  }
  return refuse(RefusalCode::not_perfect,
                text("expected loops of one chain with nothing between them, got ", list_text(step.loops)));
}

// Whether what a loop's iterations do to the buffer that the one block below writes has nothing to do with each other.
bool is_apart(const Func& f, const Stmt& body, const Var& loop) {
  const std::vector<BlockSite> below = block_sites(body);
  if (below.size() != 1) return false;
  const std::vector<BlockSite> sites = block_sites(f.body);
  return are_apart(f, {{find_site(sites, below[0].block->name), loop}});
}

Outcome check_order(const Func& f, const std::vector<const For*>& before,
                    const std::vector<const For*>& after) {
  const Stmt& body = before.back()->body;
  for (size_t i = 0; i < after.size(); ++i) {
    bool scans = axes_bound_below(body, after[i]->var).scan;
    for (size_t j = 0; j < after.size(); ++j) {
      const For* other = after[j];
      if (j > i && (uses_var(after[i]->min, other->var) || uses_var(after[i]->extent, other->var))) {
        return refuse(RefusalCode::not_affine, text("expected loop ", other->var.name(), " outside of ",
                                                    after[i]->var.name(), ", whose bounds depend on it"));
      }
      auto place = [&](const For* loop) {
        return std::find(before.begin(), before.end(), loop) - before.begin();
      };
      const bool is_exchanged = scans && i != j && (i < j) != (place(after[i]) < place(other));
      if (is_exchanged && !is_apart(f, body, other->var)) {
        return refuse(RefusalCode::dependence,
                      text("expected scan loop ", after[i]->var.name(),
                           " to keep its place, got an exchange with ", other->var.name()));
      }
    }
  }
  return applied();
}

// A block that is recomputed runs as a whole each time: what repeats it may not come to stand inside of its reduce loops.
Outcome check_recomputed(const Func& f, const std::vector<const For*>& before,
                         const std::vector<const For*>& after) {
  auto place = [](const std::vector<const For*>& chain, const For* loop) {
    return std::find(chain.begin(), chain.end(), loop) - chain.begin();
  };
  for (const BlockSite& site : block_sites(f.body)) {
    if (!is_recomputed(*site.block) || !is_under(site, before.back())) continue;
    size_t outside = static_cast<size_t>(place(site.loops, before[0]));
    for (const For* moved : after) {
      bool crosses = std::any_of(after.begin(), after.end(), [&](const For* reduce) {
        return axes_bound_to(*site.block, reduce->var).reduce &&
               place(before, moved) < place(before, reduce) && place(after, moved) > place(after, reduce);
      });
      size_t depth = outside + static_cast<size_t>(place(before, moved));
      if (!crosses || !repeats_instances(f, site, depth, depth + 1)) continue;
      return refuse(RefusalCode::dependence,
                    text("expected loop ", moved->var.name(), ", which repeats block ", site.block->name,
                         ", to stay outside of its reduce loops, got it inside"));
    }
  }
  return applied();
}

}  // namespace

Outcome apply_step(const Reorder& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<const For*> named, before;
  if (Outcome o = find_segment(step, schedule, &named, &before); !o) return o;
  std::vector<const For*> after = before;
  size_t next = 0;
  for (const For*& loop : after) {
    if (std::find(named.begin(), named.end(), loop) != named.end()) loop = named[next++];
  }
  if (Outcome o = check_order(f, before, after); !o) return o;
  if (Outcome o = check_recomputed(f, before, after); !o) return o;
  Stmt nest = before.back()->body;
  for (size_t i = after.size(); i-- > 0;) {
    const For* loop = after[i];
    nest = For::make(loop->var, loop->min, loop->extent, loop->loop, nest, loop->annotations);
  }
  Func result = f;
  result.body = replace_stmt(f.body, before[0], nest);
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
