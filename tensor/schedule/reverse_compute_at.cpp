// reverse_compute_at(block="relu", loop="matmul.i.0")
//
//   for i.0, j, i.1, k: matmul: t[i.0*8 + i.1, j] += ...
//   for i, j: relu: y[i, j] = max(t[i, j], 0)
// becomes
//   for i.0:
//     for j, i.1, k: matmul: ...
//     for relu.i in 0..8, relu.j in 0..N: relu: y[i.0*8 + relu.i, relu.j] = ...
//
// The block's old loops are dropped. It visits just what its producer makes in one iteration of the loop. Where that is a box,
// each axis gets one new loop, block.axis; where it is not (below fused loops, say), the producer's own loops are
// copied, as block.<loop>. Axes that the read's indices do not determine, and reduce axes, run over their domains.
//
// 1. The block alone writes its one buffer, and has no scan axes; the loop is not one of its own.
// 2. A producer of it is below the loop, with no reduce or scan axis bound to the loop or one around it (but for loops that
//    are around the block as well). The last such that is
//    one store leads: the new place is behind it and all other producers below the loop.
// 3. The indices at which the block reads what the leading producer makes determine spatial axes of it.
//    Every instance has such an element to read.
// 4. Nothing that the block reads is written, and nobody reads what it writes, between its new and its old place.
// 5. What it reads in one iteration has been made there.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

Outcome check_consumer(const std::vector<BlockSite>& sites, const Block& block) {
  Buffer written = only_buffer_written(block);
  bool scans = std::any_of(block.axes.begin(), block.axes.end(),
                           [](const Axis& a) { return a.kind == AxisKind::scan; });
  if (!written || scans) {
    return refuse(
        RefusalCode::dependence,
        text("expected block ", block.name, " to write one buffer and have no scan axes, got another form"));
  }
  if (reads_buffer(block, written) && !block.init) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", block.name, " to initialise what it updates in ", written.name(),
                       ", got an update of earlier contents"));
  }
  for (const BlockSite& site : sites) {
    if (site.block == &block) continue;
    if (writes_buffer(*site.block, written)) {
      return refuse(RefusalCode::dependence,
                    text("expected ", written.name(), " to be written by ", block.name, " alone, got ",
                         site.block->name, " writing it too"));
    }
  }
  return applied();
}

struct Lead {
  const BlockSite* site = nullptr;
  Buffer buffer;
  const Store* store = nullptr;
  size_t last = 0;   // index of the last producer below the loop
  size_t depth = 0;  // loops around the new place
};

bool makes_input_of(const Block& producer, const Block& block) {
  return std::any_of(producer.writes.begin(), producer.writes.end(),
                     [&](const Region& w) { return reads_buffer(block, w.buffer); });
}

Outcome find_lead(const std::vector<BlockSite>& sites, const Block& block, const For* loop, Lead* lead) {
  // A loop that is around both, a scan over time steps say, stays around both.
  const std::vector<const For*>& own = find_site(sites, block.name)->loops;
  auto surrounds = [&](const For* l) { return std::find(own.begin(), own.end(), l) != own.end(); };
  for (size_t i = 0; i < sites.size(); ++i) {
    const BlockSite& site = sites[i];
    if (site.block == &block || !is_under(site, loop) || !makes_input_of(*site.block, block)) continue;
    lead->last = i;
    lead->depth =
        static_cast<size_t>(std::find(site.loops.begin(), site.loops.end(), loop) - site.loops.begin()) + 1;
    for (size_t l = 0; l < lead->depth; ++l) {
      if (surrounds(site.loops[l])) continue;
      AxisKinds kinds = axes_bound_to(*site.block, site.loops[l]->var);
      if (!kinds.reduce && !kinds.scan) continue;
      return refuse(
          RefusalCode::dependence,
          text("expected block ", site.block->name, " to be finished in one iteration of ", loop->var.name(),
               ", got its ", kinds.scan ? "scan" : "reduce", " loop ", site.loops[l]->var.name(), " around"));
    }
    const auto* store = site.block->body.as<Store>();
    if (store == nullptr || store->predicate.defined()) continue;
    lead->site = &site;
    lead->buffer = store->buffer;
    lead->store = store;
  }
  if (lead->site == nullptr) {
    return refuse(RefusalCode::not_nested,
                  text("expected a producer of block ", block.name, " that is one store below loop ",
                       loop->var.name(), ", got none"));
  }
  return applied();
}

Outcome check_order(const std::vector<BlockSite>& sites, const Block& block, const Lead& lead) {
  size_t from = site_index(sites, &block);
  if (from < lead.last) {
    return refuse(RefusalCode::dependence,
                  text("expected block ", block.name, " behind its producers, got it before ",
                       sites[lead.last].block->name));
  }
  if (Outcome o = check_reads_move(sites, from, lead.last, lead.depth); !o) return o;
  Buffer written = only_buffer_written(block);
  for (size_t i = lead.last + 1; i < from; ++i) {
    if (reads_buffer(*sites[i].block, written)) {
      return refuse(RefusalCode::dependence, text("expected no reader of ", written.name(), " before block ",
                                                  block.name, ", got ", sites[i].block->name));
    }
  }
  return applied();
}

// The producer at the new place: the step of a scan that does not say where the result is stored is the reader's, or the last one, as
// all steps below the new place have run there.
Stmt at_last_step(const Block& producer, const Store& store) {
  Block* fixed = producer.copy();
  for (Axis& axis : fixed->axes) {
    const bool is_stored = std::any_of(store.indices.begin(), store.indices.end(),
                                       [&](const Expr& index) { return uses_var(index, axis.var); });
    if (!is_stored && axis.kind == AxisKind::scan) axis.domain.extent = 1;
  }
  return Block::make(fixed);
}

// The indices of the block's first read of the buffer; whether all reads have the same.
std::vector<Expr> read_indices(const Block& block, const Buffer& buffer, bool* all_same) {
  std::vector<Expr> indices;
  *all_same = true;
  for_each_expr(block.body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    if (load == nullptr || !load->buffer.same_as(buffer)) return;
    if (indices.empty()) indices = load->indices;
    for (size_t i = 0; i < indices.size(); ++i)
      *all_same &= structurally_equal(indices[i], load->indices[i]);
  });
  return indices;
}

// The producer's own loops, copied, and the block's axes solved for the elements stored under them. Only if each copied loop
// and each read element is accounted for.
std::optional<Binding> follow_producer(const Func& f, const Block& block, const Lead& lead,
                                       const std::vector<Expr>& elements,
                                       const std::vector<std::optional<AxisSolution>>& solutions,
                                       const std::vector<Expr>& reads, Names& names) {
  std::optional<Binding> made = follow_loops(*lead.site, lead.depth, elements, block.name, names);
  if (!made) return std::nullopt;
  BlockSite place = *lead.site;
  place.loops.resize(lead.depth);
  Analyzer analyzer = analyzer_at(f, place.loops);
  for (LoopSpec& l : made->loops) {
    l.kind = LoopKind::serial;
    analyzer.bind(l.var, 0, l.extent);
  }
  Binding out;
  out.loops = made->loops;
  std::vector<Expr> conditions = conjuncts(made->predicate);
  VarMap axes;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    const Axis& axis = block.axes[i];
    Expr value;
    if (solutions[i]) {
      value = analyzer.simplify(apply_solution(*solutions[i], made->values, analyzer));
      axes[axis.var.get()] = value;
      Expr above = value >= axis.domain.min, below = value < axis.domain.min + axis.domain.extent;
      if (!analyzer.can_prove(above)) conditions.push_back(analyzer.simplify(above));
      if (!analyzer.can_prove(below)) conditions.push_back(analyzer.simplify(below));
    } else {
      Var var(names.unique(text(block.name, ".", axis.var.name())));
      out.loops.push_back({var, axis.domain.extent});
      value = axis.domain.min + var;
    }
    out.values.push_back(value);
  }
  for (size_t d = 0; d < reads.size(); ++d) {
    for (size_t i = 0; i < block.axes.size(); ++i) {
      if (!solutions[i] && uses_var(reads[d], block.axes[i].var)) return std::nullopt;
    }
    if (!analyzer.can_prove(substitute(reads[d], axes) == made->values[d])) return std::nullopt;
  }
  // A condition may come from the producer and from the block's own domain.
  std::vector<Expr> distinct;
  for (const Expr& c : conditions) {
    bool seen = std::any_of(distinct.begin(), distinct.end(), [&](const Expr& d) {
      return structurally_equal(analyzer.simplify(d), analyzer.simplify(c));
    });
    if (!seen) distinct.push_back(c);
  }
  out.predicate = conjunction(distinct);
  return out;
}

}  // namespace

Outcome apply_step(const ReverseComputeAt& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  const Block& block = *site->block;
  if (is_under(*site, loop)) {
    return refuse(RefusalCode::not_nested,
                  text("expected a loop that is not around block ", step.block, ", got ", step.loop));
  }
  if (Outcome o = check_consumer(sites, block); !o) return o;
  Lead lead;
  if (Outcome o = find_lead(sites, block, loop, &lead); !o) return o;
  if (Outcome o = check_order(sites, block, lead); !o) return o;

  bool all_same = false;
  std::vector<Expr> reads = read_indices(block, lead.buffer, &all_same);
  std::vector<std::optional<AxisSolution>> solutions = solve_axes(reads, block.axes);
  bool solved = false;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (block.axes[i].kind != AxisKind::spatial) solutions[i].reset();
    solved |= solutions[i].has_value();
  }
  if (!is_fed(f, *at_last_step(*lead.site->block, *lead.store).as<Block>(), *lead.store, block, reads)) {
    return refuse(
        RefusalCode::region_not_covered,
        text("expected block ", lead.site->block->name, " to make an element of ", lead.buffer.name(),
             " for every instance of block ", step.block, ", got a read that may be beyond"));
  }
  VarMap bound;
  for (size_t i = 0; i < lead.site->block->axes.size(); ++i) {
    bound[lead.site->block->axes[i].var.get()] = lead.site->block->values[i];
  }
  std::vector<Expr> elements;
  for (const Expr& i : lead.store->indices)
    elements.push_back(substitute(i, bound));

  Func rest = f;
  rest.body = replace_stmt(f.body, &block, nullptr);
  Names names(rest);
  RegionAnalysis regions = regions_at(f, *lead.site, lead.depth);
  Box made = regions.box(elements, lead.buffer.shape());
  std::vector<std::optional<Stretch>> ranges = axis_stretches(regions, solutions, made);
  bool is_box = step.follow == 0 && made.exact && predicate_is_domain(regions, *lead.site->block, &lead.store->indices) &&
                std::all_of(ranges.begin(), ranges.end(), [](const auto& s) { return !s || s->exact; });
  std::optional<Binding> binding;
  if (is_box) {
    binding = run_axes(regions, step.block, block.axes, ranges, names);
  } else if (solved && all_same) {
    binding = follow_producer(f, block, lead, elements, solutions, reads, names);
  }
  if (!binding) {
    return refuse(RefusalCode::not_affine,
                  text("expected what block ", lead.site->block->name, " makes in one iteration of ",
                       step.loop, " to be a box, or to be read element by element, got another pattern"));
  }

  Block* moved = block.copy();
  moved->values = binding->values;
  moved->predicate = binding->predicate;
  set_recomputed(moved, is_recomputed(*lead.site->block));
  Stmt nest = make_nest(binding->loops, Block::make(moved));
  const BlockSite& last = sites[lead.last];
  Stmt anchor = last.loops.size() > lead.depth ? handle(last.loops[lead.depth]) : handle(last.block);
  Func result = f;
  result.body = replace_stmt(insert_after(f.body, anchor, nest), &block, nullptr);
  std::vector<BlockSite> after = block_sites(result.body);
  const Buffer* except = is_box ? nullptr : &lead.buffer;
  if (!reads_are_covered(result, after, *find_site(after, step.block), except)) {
    return refuse(RefusalCode::region_not_covered,
                  text("expected all that block ", step.block, " reads in one iteration of ", step.loop,
                       " to be made there, which is not certain"));
  }
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
