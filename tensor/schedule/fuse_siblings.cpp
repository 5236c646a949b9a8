// fuse_siblings(loops=["a.i", "b.i"], name="i")
//
//   for t: { for a.i in 4: a[t, a.i] = .. b[t, k] ..;  for b.i in 4: b[t + 1, b.i] = .. a[t, b.i] .. }
// becomes
//   for t: for i in 4: { a[t, i] = .. b[t, k] ..;  b[t + 1, i] = .. a[t, i] .. }
//
// Unlike fuse, which makes one loop of loops in each other, and hoist, which takes the loops out of the one around them.
//
// 1. The loops are two or more, serial, and stand one right behind the other, in this order. All run over the same range from 0.
// 2. No block below is recomputed.
// 3. Their iterations have nothing to do with each other while the loops around stand still: each is a spatial axis of its blocks, or
//    counts stretches of one, of the same length for all; and a buffer that one of the blocks writes all of them access at that axis in
//    one dimension, or read where nothing is written meanwhile.
// 4. The name, when given, is well-formed and new (the loops' own names are free).
#include <algorithm>

#include "tensor/schedule/separation.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

// The statements that have the loop among them, as part of its body or the function's; empty where it stands alone.
std::vector<Stmt> statements_around(const Func& f, const For* loop) {
  const std::vector<const For*> around = loops_around(f.body, loop);
  const Stmt& body = around.empty() ? f.body : around.back()->body;
  const auto* seq = body.as<Seq>();
  return seq ? seq->stmts : std::vector<Stmt>{};
}

Outcome find_siblings(const FuseSiblings& step, const Schedule& schedule, std::vector<const For*>* siblings) {
  if (step.loops.size() < 2)
    return refuse(RefusalCode::bad_argument, text("expected two loops or more, got ", list_text(step.loops)));
  for (const std::string& name : step.loops) {
    const For* loop = schedule.find_loop(name);
    if (loop == nullptr) return refuse_loop(name);
    if (Outcome o = require_serial(loop); !o) return o;
    siblings->push_back(loop);
  }
  const std::vector<Stmt> body = statements_around(schedule.func(), siblings->front());
  auto at =
      std::find_if(body.begin(), body.end(), [&](const Stmt& s) { return s.get() == siblings->front(); });
  for (const For* loop : *siblings) {
    if (at == body.end() || at->get() != loop)
      return refuse(RefusalCode::not_nested,
                    text("expected loops one right behind the other, got ", list_text(step.loops)));
    ++at;
  }
  for (const For* loop : *siblings) {
    if (structurally_equal(loop->extent, siblings->front()->extent) && is_int(loop->min, 0)) continue;
    return refuse(
        RefusalCode::bad_argument,
        text("expected loops over the same range from 0, got ", siblings->front()->var.name(), " in ",
             to_text(siblings->front()->extent), " and ", loop->var.name(), " in ", to_text(loop->extent)));
  }
  return applied();
}

Outcome check_iterations(const Func& f, const std::vector<const For*>& siblings) {
  const std::vector<BlockSite> sites = block_sites(f.body);
  std::vector<LoopOfBlock> loops;
  for (const BlockSite& site : sites) {
    const auto own =
        std::find_if(siblings.begin(), siblings.end(), [&](const For* loop) { return is_under(site, loop); });
    if (own == siblings.end()) continue;
    if (is_recomputed(*site.block)) {
      return refuse(RefusalCode::dependence, text("expected blocks that run each instance once, got ",
                                                  site.block->name, ", which is recomputed"));
    }
    loops.push_back({&site, (*own)->var});
  }
  // An iteration that there is alone has no other to have to do with.
  const bool is_single =
      is_int(siblings[0]->extent, 1) && std::none_of(siblings.begin(), siblings.end(), [](const For* loop) {
        return axes_bound_below(loop->body, loop->var).any();
      });
  if (is_single || are_apart(f, loops, loops_around(f.body, siblings.front()))) return applied();
  return refuse(RefusalCode::dependence,
                "expected iterations that have nothing to do with each other: spatial axes, and in each "
                "buffer that is written a "
                "dimension in which all blocks access it at that axis, or read it where nothing is written");
}

}  // namespace

Outcome apply_step(const FuseSiblings& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<const For*> siblings;
  if (Outcome o = find_siblings(step, schedule, &siblings); !o) return o;
  if (Outcome o = check_iterations(f, siblings); !o) return o;
  const std::string name = step.name.empty() ? siblings[0]->var.name() : step.name;
  const bool reuses = std::any_of(siblings.begin(), siblings.end(),
                                  [&](const For* loop) { return loop->var.name() == name; });
  if (!reuses) {
    if (Outcome o = require_new_name(Names(f), name); !o) return o;
  }

  const Var var(name);
  Analyzer analyzer = analyzer_at(f, loops_around(f.body, siblings[0]));
  analyzer.bind(var, 0, siblings[0]->extent);
  std::vector<Stmt> bodies;
  for (const For* loop : siblings)
    bodies.push_back(rebind(loop->body, {{loop->var.get(), var}}, true_value(), analyzer));
  Func result = f;
  for (size_t i = 1; i < siblings.size(); ++i)
    result.body = replace_stmt(result.body, siblings[i], Stmt());
  result.body =
      replace_stmt(result.body, siblings[0],
                   For::make(var, 0, siblings[0]->extent, LoopKind::serial, Seq::make(std::move(bodies))));
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
