#include "tensor/schedule/move.h"

#include <algorithm>

namespace mcc::tensor {

Outcome require_own_loops(const BlockSite& site, size_t from) {
  const Block& block = *site.block;
  bool is_plain =
      site.loops.size() == block.axes.size() && is_true(block.predicate) &&
      (from >= site.loops.size() || chain_from(site.loops[from]).size() == site.loops.size() - from) &&
      (site.loops.empty() || site.loops.back()->body.get() == &block);
  for (size_t i = 0; is_plain && i < block.axes.size(); ++i) {
    is_plain = block.values[i].same_as(site.loops[i]->var) && is_int(block.axes[i].domain.min, 0) &&
               site.loops[i]->loop == LoopKind::serial;
  }
  if (is_plain) return applied();
  return refuse(RefusalCode::not_nested, text("expected block ", block.name,
                                              " to stand under serial loops of its own, one for each axis"));
}

Binding run_axes(const RegionAnalysis& regions, const std::string& block, const std::vector<Axis>& axes,
                 const std::vector<std::optional<Stretch>>& axis_stretches, Names& names) {
  Binding out;
  std::vector<Expr> conditions;
  RegionAnalysis inner = regions;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Range& domain = axes[i].domain;
    Var var(names.unique(text(block, ".", axes[i].var.name())));
    std::optional<Stretch> s = axis_stretches[i];
    const Analyzer& analyzer = regions.analyzer();
    bool is_whole = !s || (analyzer.can_prove(s->low <= domain.min) &&
                           analyzer.can_prove(s->low + s->width >= domain.min + domain.extent - 1));
    if (is_whole) {
      out.loops.push_back({var, domain.extent});
      out.values.push_back(domain.min + var);
      continue;
    }
    Expr extent = analyzer.simplify(s->width + 1);
    inner.run(var, 0, extent);
    Expr value = inner.analyzer().simplify(s->low + var);
    out.loops.push_back({var, extent});
    out.values.push_back(value);
    Expr end = domain.min + domain.extent;
    if (!analyzer.can_prove(s->low >= domain.min)) {
      conditions.push_back(inner.analyzer().simplify(value >= domain.min));
    }
    if (!analyzer.can_prove(s->low + s->width < end)) {
      conditions.push_back(inner.analyzer().simplify(value < end));
    }
  }
  out.predicate = conjunction(conditions);
  return out;
}

std::optional<Binding> follow_loops(const BlockSite& site, size_t standing, const std::vector<Expr>& values,
                                    const std::string& block, Names& names) {
  Binding out;
  VarMap map;
  std::vector<const For*> left_out;
  for (size_t i = standing; i < site.loops.size(); ++i) {
    const For* loop = site.loops[i];
    bool used =
        std::any_of(values.begin(), values.end(), [&](const Expr& v) { return uses_var(v, loop->var); });
    if (!used) {
      left_out.push_back(loop);
      continue;
    }
    Var var(names.unique(text(block, ".", name_in_block(loop->var.name(), site.block->name))));
    map[loop->var.get()] = loop->min + var;
    LoopSpec copy{var, substitute(loop->extent, map), loop->loop};
    if (loop->loop == LoopKind::bound) copy.thread = loop->annotations.at("thread");
    out.loops.push_back(std::move(copy));
  }
  std::vector<Expr> conditions;
  for (const Expr& c : conjuncts(site.block->predicate)) {
    if (!uses_any(c, left_out)) {
      conditions.push_back(substitute(c, map));
      continue;
    }
    for (const For* loop : site.loops) {
      bool left = std::find(left_out.begin(), left_out.end(), loop) != left_out.end();
      if (!left && uses_var(c, loop->var)) return std::nullopt;
    }
  }
  for (const LoopSpec& l : out.loops) {
    if (uses_any(l.extent, left_out)) return std::nullopt;
  }
  for (const Expr& v : values)
    out.values.push_back(substitute(v, map));
  out.predicate = conjunction(conditions);
  return out;
}

std::optional<Binding> visit_instances(const Func& f, const BlockSite& site, size_t standing,
                                       const std::string& block, Names& names) {
  std::vector<Axis> axes = axes_of_kind(*site.block, AxisKind::spatial);
  std::vector<Expr> values = values_of_kind(*site.block, AxisKind::spatial);
  RegionAnalysis regions = regions_at(f, site, standing);
  std::vector<std::optional<Stretch>> ranges(axes.size());
  if (standing == 0) return run_axes(regions, block, axes, ranges, names);
  std::vector<Expr> extents;
  for (const Axis& a : axes)
    extents.push_back(a.domain.extent);
  Box box = regions.box(values, extents);
  if (!box.exact || !predicate_is_domain(regions, *site.block)) {
    std::optional<Binding> copies = follow_loops(site, standing, values, block, names);
    if (copies) {
      for (LoopSpec& l : copies->loops)
        l.kind = LoopKind::serial;
    }
    return copies;
  }
  for (size_t i = 0; i < axes.size(); ++i)
    ranges[i] = box.dims[i];
  return run_axes(regions, block, axes, ranges, names);
}

std::vector<std::optional<Stretch>> axis_stretches(const RegionAnalysis& regions,
                                                   const std::vector<std::optional<AxisSolution>>& solutions,
                                                   const Box& box) {
  std::vector<std::optional<Stretch>> out;
  for (const std::optional<AxisSolution>& s : solutions) {
    if (!s) {
      out.emplace_back();
      continue;
    }
    std::vector<Expr> lows, widths;
    for (const Stretch& d : box.dims) {
      lows.push_back(d.low);
      widths.push_back(d.width);
    }
    AxisSolution width = *s;
    width.offset = 0;
    Stretch stretch{regions.analyzer().simplify(apply_solution(*s, lows, regions.analyzer())),
                    regions.analyzer().simplify(apply_solution(width, widths, regions.analyzer())), true};
    std::vector<std::pair<int64_t, Expr>> strides;
    for (const auto& [dimension, stride] : s->terms) {
      stretch.exact &= box.dims[dimension].exact;
      if (is_int(widths[dimension], 0)) continue;
      int64_t step = 0;
      stretch.exact &= as_int(stride, &step);
      strides.emplace_back(step, widths[dimension]);
    }
    stretch.exact = stretch.exact && is_dense(strides);
    out.push_back(stretch);
  }
  return out;
}

std::vector<Axis> axes_of_kind(const Block& block, AxisKind kind) {
  std::vector<Axis> axes;
  std::copy_if(block.axes.begin(), block.axes.end(), std::back_inserter(axes),
               [&](const Axis& a) { return a.kind == kind; });
  return axes;
}

std::vector<Expr> values_of_kind(const Block& block, AxisKind kind) {
  std::vector<Expr> values;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (block.axes[i].kind == kind) values.push_back(block.values[i]);
  }
  return values;
}

Anchor outermost_nest(const std::vector<BlockSite>& sites, const BlockSite& site, const Buffer& buffer,
                      bool writers) {
  for (size_t depth = 0; depth < site.loops.size(); ++depth) {
    const For* loop = site.loops[depth];
    bool other = std::any_of(sites.begin(), sites.end(), [&](const BlockSite& s) {
      if (s.block == site.block || !is_under(s, loop)) return false;
      return writers ? writes_buffer(*s.block, buffer) : reads_buffer(*s.block, buffer);
    });
    if (!other) return {handle(loop), depth};
  }
  return {handle(site.block), site.loops.size()};
}

Outcome check_reads_move(const std::vector<BlockSite>& sites, size_t from, size_t to, size_t depth) {
  const BlockSite& moved = sites[from];
  BlockSite target = sites[to];
  target.loops.resize(depth);
  size_t stays = common_loops(moved, target);
  for (size_t i = 0; i < sites.size(); ++i) {
    const BlockSite& writer = sites[i];
    bool is_passed = to > from ? from < i && i <= to : to < i && i < from;
    // A later writer comes before the next iteration of a loop that only the new place is in.
    bool repeats = to > from && i > to && common_loops(writer, target) > stays;
    if (!is_passed && !repeats) continue;
    for (const Region& r : moved.block->reads) {
      if (writes_buffer(*moved.block, r.buffer) || !writes_buffer(*writer.block, r.buffer)) continue;
      return refuse(RefusalCode::dependence,
                    text("expected no writer of ", r.buffer.name(), " between block ", moved.block->name,
                         " and its new place, got block ", writer.block->name));
    }
  }
  return applied();
}

bool is_fed(const Func& f, const Block& producer, const Store& store, const Block& reader,
            const std::vector<Expr>& indices) {
  Analyzer analyzer = analyzer_at(f, {});
  for (const Axis& a : reader.axes)
    analyzer.bind(a.var, a.domain.min, a.domain.extent);
  std::vector<std::optional<AxisSolution>> solutions = solve_axes(store.indices, producer.axes);
  VarMap axes;
  for (size_t i = 0; i < producer.axes.size(); ++i) {
    const Axis& axis = producer.axes[i];
    if (axis.kind == AxisKind::reduce) continue;  // takes all its values for each element
    if (!solutions[i] && !is_int(axis.domain.extent, 1)) return false;
    Expr value =
        solutions[i] ? analyzer.simplify(apply_solution(*solutions[i], indices, analyzer)) : axis.domain.min;
    if (!analyzer.can_prove(value >= axis.domain.min)) return false;
    if (!analyzer.can_prove(value < axis.domain.min + axis.domain.extent)) return false;
    axes[axis.var.get()] = value;
  }
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!analyzer.can_prove(substitute(store.indices[d], axes) == indices[d])) return false;
  }
  return true;
}

size_t site_index(const std::vector<BlockSite>& sites, const Block* block) {
  return static_cast<size_t>(
      std::find_if(sites.begin(), sites.end(), [&](const BlockSite& s) { return s.block == block; }) -
      sites.begin());
}

namespace {

class CountNodes : public Visitor {
 public:
  explicit CountNodes(int64_t limit) : limit_(limit) {}
  int64_t count = 0;

 protected:
#define X(Name) \
  void on(const Name& n) override { step(n); }
  X(IntImm)
  X(FloatImm)
  X(VarNode)
 X(Cast)
 X(Binary) X(Select) X(Load) X(Ramp) X(Broadcast) X(Shuffle) X(VectorReduce) X(Call) MCC_STMT_NODES(X)
#undef X

     private : template <class N>
               void step(const N& n) {
    if (++count <= limit_) Visitor::on(n);
  }
  const int64_t limit_;
};

}  // namespace

int64_t count_nodes(const Stmt& s, int64_t limit) {
  CountNodes counter(limit);
  counter.visit(s);
  return counter.count;
}

}  // namespace mcc::tensor
