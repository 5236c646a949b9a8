#include "tuner/packing.h"

#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/schedule/weight_order.h"
#include "tensor/visit.h"
#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Loads of a block's body, in the order in which the analysis has them.
class FindLoads : public Visitor {
 public:
  explicit FindLoads(const Buffer& skipped) : skipped_(skipped) {}
  std::vector<const Load*> loads;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    if (!n.buffer.same_as(skipped_)) loads.push_back(&n);
    Visitor::on(n);
  }

 private:
  const Buffer& skipped_;
};

int result_axis(const BlockInfo& info) {
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (!info.axes[a].is_reduce && info.store.strides[a] == 1 && info.axes[a].extent >= 2)
      return static_cast<int>(a);
  }
  return -1;
}

// The one load that moves along the axis; -1 when there are none or several.
int moving_load(const BlockInfo& info, int axis) {
  int found = -1;
  for (size_t i = 0; i < info.loads.size(); ++i) {
    if (info.loads[i].strides[static_cast<size_t>(axis)] == 0) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

// An index that walks through groups of elements, each along the whole of a reduction: the elements of one; 0 for others.
int64_t group_width(const Block& block, const Expr& index) {
  const auto* sum = index.as<Binary>();
  if (!sum || sum->op != BinaryOp::add) return 0;
  const Expr& scaled = sum->a.as<Binary>() ? sum->a : sum->b;
  const Expr& inner = sum->a.as<Binary>() ? sum->b : sum->a;
  const auto* group = scaled.as<Binary>();
  int64_t width = 0, extent = 0;
  const bool is_multiple =
      group && group->op == BinaryOp::mul && (as_int(group->b, &width) || as_int(group->a, &width));
  if (!is_multiple) return 0;
  const auto axis_of = [&](const Expr& var) {
    return std::ranges::find_if(block.axes, [&](const Axis& a) { return var.same_as(a.var); });
  };
  const auto outer = axis_of(is_int(group->b, width) ? group->a : group->b), within = axis_of(inner);
  const bool is_whole = outer != block.axes.end() && within != block.axes.end() &&
                        outer->kind == AxisKind::spatial && within->kind == AxisKind::reduce &&
                        as_int(within->domain.extent, &extent) && extent == width;
  return is_whole ? width : 0;
}

// The operand along the result's contiguous axis.
struct Operand {
  const Block* block;
  Packing packing;  // its load and axis
  const Load* load;
  bool is_alone;  // the block reads the buffer nowhere else
};
std::optional<Operand> find_operand(const Schedule& schedule, const BlockInfo& info) {
  const Block* block = schedule.find_block(info.name);
  Packing p;
  p.axis = result_axis(info);
  if (p.axis < 0 || block == nullptr || block->axes.size() != info.axes.size()) return std::nullopt;
  int moving = moving_load(info, p.axis);
  if (moving < 0) return std::nullopt;
  p.load = static_cast<size_t>(moving);
  const Buffer& buffer = info.loads[p.load].buffer;
  FindLoads found(info.store.buffer);
  found.visit(block->body);
  if (found.loads.size() != info.loads.size()) return std::nullopt;
  const Load& load = *found.loads[p.load];
  const auto reads =
      std::ranges::count_if(found.loads, [&](const Load* l) { return l->buffer.same_as(buffer); });
  if (load.predicate.defined() && !is_true(load.predicate)) return std::nullopt;
  p.is_transposed = info.loads[p.load].strides[static_cast<size_t>(p.axis)] != 1;
  p.name = info.name + ".packed";
  return Operand{block, p, &load, reads == 1};
}

// Dimensions of the copy, d0 and so on: outside of a panel, that which is cut into panels, those of the reduction.
std::string panel_map(size_t rank, std::vector<std::string> outer, const std::string& along,
                      const std::vector<std::string>& inner) {
  std::vector<std::string> from;
  for (size_t d = 0; d < rank; ++d)
    from.push_back(text("d", d));
  outer.push_back(along + " // WIDTH");
  outer.insert(outer.end(), inner.begin(), inner.end());
  outer.push_back(along + " %% WIDTH");
  return text("(", join(from, ", "), ") -> (", join(outer, ", "), ")");
}

// An operand that is a plain array: each index is an axis of the block, or one that walks through groups, or stands still. Without widths yet.
std::optional<Packing> plain_operand(const Operand& operand) {
  const Block* block = operand.block;
  const Load& load = *operand.load;
  Packing p = operand.packing;
  std::vector<std::string> outer, inner;  // dimensions outside of a panel, and those of the reduction
  bool has_dim = false;
  for (size_t d = 0; d < load.indices.size(); ++d) {
    const std::string dim = text("d", d);
    p.loops.push_back(text(p.name, ".i", d));
    if (const int64_t width = group_width(*block, load.indices[d]); width > 0) {
      outer.push_back(text(dim, " // ", width));
      inner.push_back(text(dim, " %% ", width));
      continue;
    }
    auto axis = std::find_if(block->axes.begin(), block->axes.end(),
                             [&](const Axis& a) { return load.indices[d].same_as(a.var); });
    if (axis == block->axes.end()) {
      bool moves = std::any_of(block->axes.begin(), block->axes.end(),
                               [&](const Axis& a) { return uses_var(load.indices[d], a.var); });
      if (moves) return std::nullopt;
      outer.push_back(dim);
    } else if (axis - block->axes.begin() == p.axis) {
      if (has_dim) return std::nullopt;
      has_dim = true;
      p.dim = d;
    } else {
      (axis->kind == AxisKind::reduce ? inner : outer).push_back(dim);
    }
  }
  if (!has_dim || inner.empty()) return std::nullopt;
  p.map = panel_map(load.indices.size(), std::move(outer), text("d", p.dim), inner);
  return p;
}

// Any other view of a buffer that reads no element twice: parts of axes, steps along them, a part of a joint projection. The copy has the
// block's axes for dimensions, in the order in which they lie in memory.
std::optional<Packing> viewed_operand(const Func& f, const Operand& operand, const BlockInfo& info) {
  Packing p = operand.packing;
  std::vector<std::string> outer, inner;
  std::vector<size_t> axes;
  auto uses = [&](size_t a) {
    return std::any_of(operand.load->indices.begin(), operand.load->indices.end(),
                       [&](const Expr& index) { return uses_var(index, operand.block->axes[a].var); });
  };
  auto add = [&](size_t a, std::vector<std::string>* dims) {
    if (dims != nullptr) dims->push_back(text("d", axes.size()));
    axes.push_back(a);
  };
  const auto along = static_cast<size_t>(p.axis);
  const std::vector<int64_t>& strides = info.loads[p.load].strides;
  for (size_t a = 0; a < info.axes.size(); ++a)
    if (a != along && !info.axes[a].is_reduce && uses(a)) add(a, &outer);
  if (p.is_transposed) p.dim = axes.size(), add(along, nullptr);
  for (const bool is_last : {false, true})
    for (size_t a = 0; a < info.axes.size(); ++a)
      if (info.axes[a].is_reduce && uses(a) && (strides[a] == 1) == is_last) add(a, &inner);
  if (!p.is_transposed) p.dim = axes.size(), add(along, nullptr);
  int64_t elements = 1;
  for (const size_t a : axes) {
    elements *= info.axes[a].extent;
    p.axes.push_back(operand.block->axes[a].var.name());
    p.loops.push_back(text(p.name, ".", p.axes.back()));
  }
  // Weights are stored in the order in which they are read.
  if (inner.empty() || elements > count_of(info.loads[p.load].buffer) ||
      is_weight(f, info.loads[p.load].buffer))
    return std::nullopt;
  p.map = panel_map(axes.size(), std::move(outer), text("d", p.dim), inner);
  return p;
}

// The step that makes the copy, before the block's loops.
Step copying_step(const BlockInfo& info, const Packing& p) {
  const std::string& buffer = info.loads[p.load].buffer.name();
  if (!p.axes.empty()) return Reindex{info.name, buffer, "global", p.name, p.axes};
  return CacheRead{info.name, buffer, "global", p.name};
}

std::string replace_all(std::string s, const std::string& what, const std::string& by) {
  for (size_t at = s.find(what); at != std::string::npos; at = s.find(what, at + by.size()))
    s.replace(at, what.size(), by);
  return s;
}

// Elements between neighbours along the innermost reduction of what is packed, when read where it is.
int64_t row_stride(const BlockInfo& info, const Packing& p) {
  int64_t stride = 0;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce) stride = std::abs(info.loads[p.load].strides[a]);
  }
  return stride;
}

// Cycles that a row tile loses for each vector of a panel that it reads from the unpacked operand.
double cycles_lost(const BlockInfo& info, const Packing& p, const Target& t) {
  if (p.is_transposed) return p.lanes;
  int64_t bytes = byte_size(info.loads[p.load].buffer.element());
  int64_t stride = row_stride(info, p) * bytes;
  if (stride <= p.width() * bytes) return 0;  // its rows are as in a panel
  int64_t run = ceil_div64(p.width() * bytes, t.l1.line), lines = info.reduce * run;
  double lost = 0;
  constexpr int64_t kPage = 4096, kPagesNear = 64;  // pages whose addresses the first-level TLB holds
  if (stride % t.l1.line != 0) lost += 1;           // vectors across two lines
  if (2 * lines > t.l1.lines_held(stride, run)) lost += 1;
  if (lines > t.l2.lines_held(stride, run)) lost += 10;
  if (info.reduce * std::min(stride, kPage) / kPage > kPagesNear) lost += 2;
  return lost;
}

// Rows of the product that read the same panels.
int64_t shared_rows(const BlockInfo& info, const Packing& p) {
  int64_t rows = 1;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (!info.axes[a].is_reduce && info.loads[p.load].strides[a] == 0) rows *= info.axes[a].extent;
  }
  return rows;
}

// Each element is read and written once, in vectors; across the grain by shuffles.
bool is_worth_packing(const BlockInfo& info, const Packing& p, const Target& t) {
  double cost = p.is_transposed ? 12 : 6;
  int64_t tile_rows = (t.vector_registers - 2) / p.vectors - 1;
  int64_t tiles = ceil_div64(shared_rows(info, p), std::max<int64_t>(1, tile_rows));
  // A transposed operand is not read in vectors otherwise, each of its rows a scalar at a time.
  double uses = static_cast<double>(p.is_transposed ? shared_rows(info, p) : tiles);
  return (uses - 1) * cycles_lost(info, p, t) > cost;
}

// Whether all that the block reads has a value that can be copied.
bool can_copy(const Schedule& schedule, const BlockInfo& info, const Packing& p) {
  Schedule trial = schedule;
  return static_cast<bool>(trial.apply(copying_step(info, p)));
}

int64_t choose_width(Draft& draft, const std::string& block, int64_t vectors) {
  const Target& t = draft.target;
  // Three vectors where nothing or little is left over at the end.
  int64_t wide =
      t.vector_registers >= 32 && (vectors % 3 == 0 || (vectors % 2 != 0 && vectors >= 24)) ? 3 : 2;
  std::vector<int64_t> options;
  for (int64_t n : {1, 2, 3, 4}) {
    if (n <= vectors && (n <= 2 || t.vector_registers >= 32)) options.push_back(n);
  }
  return draft.decide.choose(block + ".panel", options, std::min(wide, vectors));
}

// Panels packed at a time; 0 when those of all columns and batches do not keep the cores busy.
int64_t choose_block(Draft& draft, const BlockInfo& info, const Packing& p) {
  const Target& t = draft.target;
  int64_t panels = ceil_div64(info.axes[static_cast<size_t>(p.axis)].extent, p.width());
  int64_t batch = info.spatial /
                  std::max<int64_t>(1, shared_rows(info, p) * info.axes[static_cast<size_t>(p.axis)].extent);
  int64_t bytes = info.reduce * p.width() * byte_size(info.loads[p.load].buffer.element());
  int64_t fitting = std::clamp<int64_t>(t.l2.bytes / 2 / std::max<int64_t>(1, bytes), 1, panels);
  fitting = ceil_div64(panels, ceil_div64(panels, fitting));
  double us = 2.0 * static_cast<double>(info.iterations()) / (t.peak_gflops() * 1e3);
  int64_t preferred = fitting;
  if (worth_parallel(us, t)) {
    // Share of the cores' time that they work when each takes its blocks.
    auto busy = [&](int64_t n) {
      int64_t rounds = ceil_div64(batch * ceil_div64(panels, n), t.cores);
      return static_cast<double>(batch * panels) / static_cast<double>(rounds * n * t.cores);
    };
    while (preferred > 1 && busy(preferred) < 0.9)
      --preferred;
    if (busy(preferred) < 0.8) preferred = 0;
  }
  // Of an open number of columns the last block would have fewer panels, of which consumers do not know how many.
  if (draft.open_loops.count(info.axes[static_cast<size_t>(p.axis)].loop) != 0)
    preferred = std::min<int64_t>(preferred, 1);
  std::vector<int64_t> options{0, preferred};
  for (int64_t n = 1; n <= panels; n *= 2)
    options.push_back(n);
  std::sort(options.begin(), options.end());
  options.erase(std::unique(options.begin(), options.end()), options.end());
  return draft.decide.choose(info.name + ".block", options, preferred);
}

}  // namespace

std::optional<Packing> choose_packing(Draft& draft, BlockInfo& info) {
  if (!info.is_contraction || info.is_nested || info.iterations() == 0) return std::nullopt;
  const std::optional<Operand> operand = find_operand(draft.schedule, info);
  if (!operand) return std::nullopt;
  std::optional<Packing> p = operand->is_alone ? plain_operand(*operand) : std::nullopt;
  if (!p) p = viewed_operand(draft.schedule.func(), *operand, info);
  if (!p || draft.schedule.find_block(p->name) != nullptr || shared_rows(info, *p) < 2) return std::nullopt;
  p->lanes = draft.target.lanes(std::max(info.element_bits, 32));
  int64_t vectors = ceil_div64(info.axes[static_cast<size_t>(p->axis)].extent, p->lanes);
  p->vectors = std::min<int64_t>(vectors, 2);
  // As a panel already: nothing to gain in any case.
  if (!p->is_transposed && row_stride(info, *p) <= p->width()) return std::nullopt;
  if (!can_copy(draft.schedule, info, *p)) return std::nullopt;
  bool is_worth_it = is_worth_packing(info, *p, draft.target);
  if (draft.decide.choose(info.name + ".pack", {0, 1}, is_worth_it ? 1 : 0) == 0) return std::nullopt;
  p->vectors = choose_width(draft, info.name, vectors);
  p->map = replace_all(p->map, "WIDTH", std::to_string(p->width()));
  p->panels = choose_block(draft, info, *p);
  if (!p->axes.empty()) {
    must_step(draft, copying_step(info, *p));
    info = *analyze(draft.schedule, info.name);
    p->load = static_cast<size_t>(
        std::ranges::find_if(info.loads, [&](const Access& l) { return l.buffer.name() == p->name; }) -
        info.loads.begin());
  }
  return p;
}

BlockInfo with_packing(BlockInfo info, const Packing& p) {
  Access& load = info.loads[p.load];
  int64_t inside = p.width();
  for (size_t a = info.axes.size(); a-- > 0;) {
    if (!info.axes[a].is_reduce || load.strides[a] == 0) continue;
    load.strides[a] = inside;
    load.runs[a] = 1;
    inside *= info.axes[a].extent;
  }
  auto axis = static_cast<size_t>(p.axis);
  load.strides[axis] = 1;
  load.runs[axis] = std::min(p.width(), info.axes[axis].extent);
  return info;
}

namespace {

void schedule_copy(Draft& draft, const BlockInfo& info, const Packing& p, bool is_alone) {
  Schedule& s = draft.schedule;
  const std::string& along = p.loops[p.dim];
  if (s.find_loop(along) == nullptr) return;
  std::vector<std::string> own = s.loop_names_of(p.name), outer;
  own.erase(own.begin(), std::find_if(own.begin(), own.end(),
                                      [&](const std::string& l) { return l.starts_with(p.name + "."); }));
  // The dimension that is contiguous where the operand is.
  std::string across = own.back();
  must_step(draft, Split{along, {0, p.lanes}, {along + ".tile", along + ".lane"}});
  if (p.is_transposed && across != along) {
    must_step(draft, Split{across, {0, p.lanes}, {across + ".tile", across + ".in"}});
    for (const std::string& l : own)
      outer.push_back(l == along || l == across ? l + ".tile" : l);
    std::vector<std::string> order = outer;
    order.push_back(across + ".in");
    order.push_back(along + ".lane");
    must_step(draft, Reorder{order});
    must_step(draft, Unroll{across + ".in"});
  } else {
    for (const std::string& l : own)
      outer.push_back(l == along ? l + ".tile" : l);
    std::vector<std::string> order = outer;
    order.push_back(along + ".lane");
    if (own.back() != along) must_step(draft, Reorder{order});
  }
  must_step(draft, Vectorize{along + ".lane"});
  if (!is_alone) return;
  double bytes = static_cast<double>(count_of(info.loads[p.load].buffer)) * 8;
  if (choose_parallel(draft, p.name, estimate_us(0, bytes, draft.target)))
    try_step(draft, Parallel{outer.front()});
}

}  // namespace

void apply_packing(Draft& draft, const BlockInfo& info, const Packing& p, const std::string& loop) {
  if (p.axes.empty()) must_step(draft, copying_step(info, p));
  must_step(draft, TransformLayout{p.name, p.map});
  if (!loop.empty()) must_step(draft, ComputeAt{p.name, loop});
  if (draft.refusal) schedule_copy(draft, info, p, loop.empty());
}

}  // namespace mcc::tuner
