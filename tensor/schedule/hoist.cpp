// hoist(loops=["a.i", "b.i"], over="t", name="row")
//
//   for t: { for a.i in 4: a[t, a.i] = .. a[t - 1, a.i] ..;  for b.i in 4: b[t, b.i] = .. a[t, b.i] .. }
// becomes
//   for row in 4: for t: { a[t, row] = ..;  b[t, row] = .. }
//
// 1. `over` and the named loops are serial. These are the statements in the body of `over`, each once, all over the same
//    range from 0, which depends on no loop.
// 2. No block below is recomputed.
// 3. Their iterations have nothing to do with each other: each is a spatial axis of its blocks, or counts stretches of one, of the
//    same length for all, and all that the blocks do to a buffer which one of them writes is at that axis in one dimension.
// 4. The name, when given, is well-formed and new (the loops' own names are free).
#include <algorithm>

#include "tensor/schedule/separation.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

std::vector<Stmt> statements(const Stmt& body) {
  if (const auto* seq = body.as<Seq>()) return seq->stmts;
  return {body};
}

// The loop and those around it.
std::vector<const For*> chain_around(const Schedule& schedule, const For* loop) {
  std::vector<const For*> chain = loops_around(schedule.func().body, loop);
  chain.push_back(loop);
  return chain;
}

// The named loops, in the order of the body of `over`.
Outcome find_rows(const Hoist& step, const Schedule& schedule, const For* over, std::vector<const For*>* rows) {
  for (const std::string& name : step.loops) {
    const For* loop = schedule.find_loop(name);
    if (loop == nullptr) return refuse_loop(name);
    if (Outcome o = require_serial(loop); !o) return o;
    rows->push_back(loop);
  }
  const std::vector<Stmt> body = statements(over->body);
  const bool is_whole = rows->size() == body.size() && std::all_of(body.begin(), body.end(), [&](const Stmt& s) {
    return std::find(rows->begin(), rows->end(), s.get()) != rows->end();
  });
  if (!is_whole) {
    return refuse(RefusalCode::not_perfect, text("expected the outermost loop of each nest in the body of ", over->var.name(),
                                                 ", got ", list_text(step.loops)));
  }
  for (const For* loop : *rows) {
    const bool is_same = structurally_equal(loop->extent, rows->front()->extent) &&
                         !uses_any(loop->extent, chain_around(schedule, over));
    if (is_same && is_int(loop->min, 0)) continue;
    return refuse(
        RefusalCode::bad_argument,
        text("expected loops over the same range, got ", rows->front()->var.name(), " in ",
             to_text(rows->front()->extent), " and ", loop->var.name(), " in ", to_text(loop->extent)));
  }
  return applied();
}

Outcome check_rows(const Func& f, const std::vector<const For*>& rows) {
  const std::vector<BlockSite> sites = block_sites(f.body);
  // An iteration that there is alone has no other to have to do with.
  const bool is_single =
      is_int(rows[0]->extent, 1) && std::none_of(rows.begin(), rows.end(), [](const For* row) {
        return axes_bound_below(row->body, row->var).any();
      });
  std::vector<LoopOfBlock> loops;
  for (const BlockSite& site : sites) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const For* loop) { return is_under(site, loop); });
    if (row == rows.end()) continue;
    if (is_recomputed(*site.block)) {
      return refuse(RefusalCode::dependence, text("expected blocks that run each instance once, got ",
                                                  site.block->name, ", which is recomputed"));
    }
    loops.push_back({&site, (*row)->var});
  }
  if (is_single || are_apart(f, loops)) return applied();
  return refuse(RefusalCode::dependence,
                "expected iterations that have nothing to do with each other: spatial axes, and in each buffer that is written a "
                "dimension in which all blocks access it at that axis");
}

}  // namespace

Outcome apply_step(const Hoist& step, Schedule& schedule) {
  const Func& f = schedule.func();
  const For* over = schedule.find_loop(step.over);
  if (over == nullptr) return refuse_loop(step.over);
  if (Outcome o = require_serial(over); !o) return o;
  std::vector<const For*> rows;
  if (Outcome o = find_rows(step, schedule, over, &rows); !o) return o;
  if (Outcome o = check_rows(f, rows); !o) return o;
  const std::string name = step.name.empty() ? rows[0]->var.name() : step.name;
  const bool reuses = std::any_of(rows.begin(), rows.end(), [&](const For* row) { return row->var.name() == name; });
  if (!reuses) {
    if (Outcome o = require_new_name(Names(f), name); !o) return o;
  }

  const Var row(name);
  Analyzer analyzer = analyzer_at(f, loops_around(f.body, over));
  analyzer.bind(row, 0, rows[0]->extent);
  std::vector<Stmt> body;
  for (const Stmt& s : statements(over->body)) {
    const auto* loop = s.as<For>();
    body.push_back(rebind(loop->body, {{loop->var.get(), row}}, true_value(), analyzer));
  }
  const Stmt steps = For::make(over->var, over->min, over->extent, over->loop, Seq::make(std::move(body)), over->annotations);
  Func result = f;
  result.body = replace_stmt(f.body, over, For::make(row, 0, rows[0]->extent, LoopKind::serial, steps));
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
