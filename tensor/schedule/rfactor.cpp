// rfactor(block="sum", loop="sum.k.1", name="sum.part", axis=0)
//
//   for i: for k.0: for k.1: sum (init s[i] = 0): s[i] += x[i, k.0*16 + k.1]
// becomes
//   for i: for k.0: for k.1: sum.part (init p[k.1, i] = 0): p[k.1, i] += x[i, k.0*16 + k.1]     (buffer sum.part)
//   for i: for r: sum (init s[i] = 0): s[i] += p[r, i]
//
// The partial results' block keeps the loops. The block itself gets new ones, named block.axis, just behind the
// outermost loop around it with no reader of its buffer below. The partial block's reduce axes are the other reduce loops; with
// none left it just stores. Terms that a condition on reduce loops excludes count as the init's value.
//
// 1. The block has an init that stores a constant, and updates by b[i] = b[i] op x (op: + * min max && ||).
// 2. Only reduce axes are bound to the loop, and spatial and reduce axes share no loop.
// 3. No reduce loop of the block is around the place of the new loops; all its scan loops are, and its buffer has one place for all
//    of their iterations.
// 4. axis is a position in the buffer's shape, or the one behind the last; the name is new.
// 5. No condition of the block's predicate mixes reduce loops with others.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

struct Reduction {
  const BlockSite* site = nullptr;
  Update update;
  Expr identity;                    // what the init stores
  const For* factored = nullptr;    // the loop that becomes spatial
  std::vector<const For*> reduced;  // the other reduce loops, outermost first
};

Outcome examine(const Rfactor& step, const std::vector<BlockSite>& sites, Reduction* r) {
  r->site = find_site(sites, step.block);
  if (r->site == nullptr) return refuse_block(step.block);
  const Block& block = *r->site->block;
  std::optional<Update> update = as_update(block);
  const auto* init = block.init ? block.init.as<Store>() : nullptr;
  double ignored = 0;
  if (!update || init == nullptr || !as_number(init->value, &ignored)) {
    return refuse(RefusalCode::not_a_reduction,
                  text("expected block ", step.block,
                       " to initialise by a constant and update by b[i] = b[i] op x, got ",
                       block.init ? "another form" : "no init"));
  }
  r->update = *update;
  r->identity = init->value;
  for (const For* loop : r->site->loops) {
    AxisKinds kinds = axes_bound_to(block, loop->var);
    bool is_factored = loop->var.name() == step.loop;
    if (is_factored) r->factored = loop;
    if (kinds.reduce && (kinds.spatial || kinds.scan)) {
      return refuse(RefusalCode::not_affine, text("expected loop ", loop->var.name(),
                                                  " bound to either spatial or reduce axes, got both"));
    }
    if (kinds.reduce && !is_factored) r->reduced.push_back(loop);
    if (is_factored && !kinds.reduce) {
      return refuse(RefusalCode::not_a_reduction,
                    text("expected a reduce loop of block ", step.block, ", got ", step.loop));
    }
  }
  if (r->factored == nullptr) {
    return refuse(RefusalCode::no_such_loop,
                  text("expected a loop around block ", step.block, ", got \"", step.loop, "\""));
  }
  if (Outcome o = require_serial(r->factored); !o) return o;
  if (!is_int(r->factored->min, 0)) {
    return refuse(RefusalCode::not_affine,
                  text("expected loop ", step.loop, " to start at 0, got ", to_text(r->factored->min)));
  }
  int64_t rank = r->update.buffer.rank();
  if (step.axis < 0 || step.axis > rank) {
    return refuse(RefusalCode::bad_argument, text("expected an axis of 0 to ", rank, ", got ", step.axis));
  }
  return applied();
}

// Each iteration of a scan reduces anew: the partial results are of one iteration.
Outcome check_scans(const Reduction& r, size_t depth) {
  const Block& block = *r.site->block;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (block.axes[i].kind != AxisKind::scan) continue;
    bool is_around = std::none_of(r.update.indices.begin(), r.update.indices.end(),
                                  [&](const Expr& index) { return uses_var(index, block.axes[i].var); });
    for (size_t n = depth; n < r.site->loops.size(); ++n)
      is_around &= !uses_var(block.values[i], r.site->loops[n]->var);
    if (!is_around) {
      return refuse(RefusalCode::dependence,
                    text("expected the scan along ", block.axes[i].var.name(), " around the new loops, and results of block ",
                         block.name, " for one iteration of it, got another form"));
    }
  }
  return applied();
}

std::vector<Expr> with_inserted(std::vector<Expr> list, int64_t at, const Expr& item) {
  list.insert(list.begin() + at, item);
  return list;
}

// The block's predicate, parted: over its spatial loops, and over its reduce loops in terms of `map`.
Outcome part_predicate(const Reduction& r, const VarMap& map, std::vector<Expr>* outer,
                       std::vector<Expr>* inner) {
  std::vector<const For*> reduce_loops = r.reduced, others;
  reduce_loops.push_back(r.factored);
  for (const For* loop : r.site->loops) {
    if (std::find(reduce_loops.begin(), reduce_loops.end(), loop) == reduce_loops.end())
      others.push_back(loop);
  }
  for (const Expr& c : conjuncts(r.site->block->predicate)) {
    if (!uses_any(c, reduce_loops)) {
      outer->push_back(c);
    } else if (!uses_any(c, others)) {
      inner->push_back(substitute(c, map));
    } else {
      return refuse(RefusalCode::not_affine,
                    text("expected conditions on reduce loops or on others, got ", to_text(c)));
    }
  }
  return applied();
}

// The block of partial results, in the place of the old one.
Outcome make_partial(const Rfactor& step, const Reduction& r, const Buffer& partial, Stmt* result) {
  const Block& old = *r.site->block;
  auto* block = new Block;
  Stmt owner = handle(block);
  block->name = step.name;
  block->annotations = old.annotations;
  VarMap axes, loops;
  auto add_axis = [&](const For* loop, const std::string& name, AxisKind kind) {
    Var var(name);
    block->axes.push_back({var, {loop->min, loop->extent}, kind});
    block->values.push_back(loop->var);
    loops[loop->var.get()] = var;
    return var;
  };
  for (size_t i = 0; i < old.axes.size(); ++i) {
    if (old.axes[i].kind == AxisKind::reduce) continue;
    Var var(old.axes[i].var.name());
    axes[old.axes[i].var.get()] = var;
    block->axes.push_back({var, old.axes[i].domain, old.axes[i].kind});
    block->values.push_back(old.values[i]);
  }
  Var lane = add_axis(r.factored, name_in_block(r.factored->var.name(), step.block), AxisKind::spatial);
  for (const For* loop : r.reduced) {
    add_axis(loop, name_in_block(loop->var.name(), step.block), AxisKind::reduce);
  }
  for (size_t i = 0; i < old.axes.size(); ++i) {
    if (old.axes[i].kind == AxisKind::reduce) axes[old.axes[i].var.get()] = substitute(old.values[i], loops);
  }
  std::vector<Expr> outer, inner;
  if (Outcome o = part_predicate(r, loops, &outer, &inner); !o) return o;
  block->predicate = conjunction(outer);

  std::vector<Expr> indices;
  for (const Expr& i : r.update.indices)
    indices.push_back(substitute(i, axes));
  indices = with_inserted(std::move(indices), step.axis, lane);
  Expr term = select(conjunction(inner), substitute(r.update.operand, axes), r.identity);
  if (!r.reduced.empty()) {
    block->init = Store::make(partial, indices, r.identity);
    term = binary(r.update.op, load(partial, indices), term);
  }
  block->body = Store::make(partial, indices, term);
  *result = make_block(block);
  return applied();
}

// The block that reduces the partial results; values[i] binds its i-th spatial axis.
Stmt make_final(const Rfactor& step, const Reduction& r, const Buffer& partial, const Binding& binding,
                const Var& loop) {
  const Block& old = *r.site->block;
  auto* block = new Block;
  block->name = step.block;
  block->annotations = old.annotations;
  VarMap axes;
  for (const Axis& a : axes_of_kind(old, AxisKind::spatial)) {
    Var var(a.var.name());
    axes[a.var.get()] = var;
    block->axes.push_back({var, a.domain, AxisKind::spatial});
  }
  block->values = binding.values;
  for (size_t i = 0; i < old.axes.size(); ++i) {
    if (old.axes[i].kind != AxisKind::scan) continue;
    block->axes.push_back({Var(old.axes[i].var.name()), old.axes[i].domain, AxisKind::scan});
    block->values.push_back(old.values[i]);
  }
  Var lane(name_in_block(r.factored->var.name(), step.block));
  block->axes.push_back({lane, {r.factored->min, r.factored->extent}, AxisKind::reduce});
  block->values.push_back(r.factored->min + loop);
  block->predicate = binding.predicate;
  std::vector<Expr> indices;
  for (const Expr& i : r.update.indices)
    indices.push_back(substitute(i, axes));
  block->init = Store::make(r.update.buffer, indices, r.identity);
  Expr term = load(partial, with_inserted(indices, step.axis, lane));
  block->body =
      Store::make(r.update.buffer, indices, binary(r.update.op, load(r.update.buffer, indices), term));
  return Block::make(block);
}

}  // namespace

Outcome apply_step(const Rfactor& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  Reduction r;
  if (Outcome o = examine(step, sites, &r); !o) return o;
  Names names(f);
  if (Outcome o = require_new_name(names, step.name); !o) return o;
  names.unique(step.name);
  Anchor anchor = outermost_nest(sites, *r.site, r.update.buffer, false);
  for (size_t i = 0; i < anchor.depth; ++i) {
    if (axes_bound_to(*r.site->block, r.site->loops[i]->var).reduce) {
      return refuse(RefusalCode::dependence,
                    text("expected no reduce loop around the new loops, got ", r.site->loops[i]->var.name()));
    }
  }
  if (Outcome o = check_scans(r, anchor.depth); !o) return o;
  std::optional<Binding> binding = visit_instances(f, *r.site, anchor.depth, step.block, names);
  if (!binding) {
    return refuse(RefusalCode::not_affine,
                  text("expected block ", step.block, " without conditions that mix loops, got one with"));
  }
  std::vector<Expr> shape = with_inserted(r.update.buffer.shape(), step.axis, r.factored->extent);
  Buffer partial(step.name, r.update.buffer.element(), std::move(shape));
  Stmt part;
  if (Outcome o = make_partial(step, r, partial, &part); !o) return o;
  Var loop(names.unique(text(step.block, ".", name_in_block(r.factored->var.name(), step.block))));
  binding->loops.push_back({loop, r.factored->extent});
  Stmt final_nest = make_nest(binding->loops, make_final(step, r, partial, *binding, loop));

  Func result = f;
  result.allocs.push_back(partial);
  result.body = replace_stmt(insert_after(f.body, anchor.stmt, final_nest), r.site->block, part);
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
