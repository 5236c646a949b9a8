#include <algorithm>
#include <numeric>

#include "tensor/verify/context.h"
#include "tensor/verify/sample.h"
#include "tensor/visit.h"

namespace mcc::tensor::verifier {
namespace {

using Details = std::vector<std::string>;  // one for each place where a rule is broken

std::vector<SampledVar> loop_vars(const std::vector<const For*>& loops) {
  std::vector<SampledVar> out;
  for (const For* loop : loops)
    out.push_back({loop->var, loop->min, loop->extent});
  return out;
}

// ---- Axes ----

Details axes_not_scalar(const Context&, const Block& b) {
  Details out;
  for (size_t k = 0; k < b.axes.size(); ++k) {
    const Axis& axis = b.axes[k];
    if (axis.var.type() != kIndex || b.values[k].type() != kIndex || axis.domain.min.type() != kIndex ||
        axis.domain.extent.type() != kIndex) {
      out.push_back(axis.var.name());
    }
  }
  return out;
}

Details reduced_in_parallel(const Context& context, const Block& b) {
  Details out;
  for (size_t k = 0; k < b.axes.size(); ++k) {
    if (b.axes[k].kind == AxisKind::spatial) continue;
    for (const For* loop : context.loops) {
      if (loop->loop != LoopKind::parallel || !uses_var(b.values[k], loop->var)) continue;
      out.push_back(text(to_text(b.axes[k].kind), " axis ", b.axes[k].var.name(), " is bound to loop ",
                         loop->var.name()));
    }
  }
  return out;
}

// The digits of a loop variable between two of its divisors: (var // low) %% (high // low).
struct Piece {
  const ExprNode* var;
  int64_t low, high;
};

std::optional<int64_t> constant_of(const Expr& e) {
  int64_t value = 0;
  return as_int(e, &value) ? std::optional(value) : std::nullopt;
}

std::optional<Piece> as_piece(const Context& context, const Expr& e) {
  for (const For* loop : context.loops) {
    if (!e.same_as(loop->var)) continue;
    const auto extent = constant_of(loop->extent);
    return extent ? std::optional(Piece{e.get(), 1, *extent}) : std::nullopt;
  }
  const auto* n = e.as<Binary>();
  if (!n || (n->op != BinaryOp::floor_div && n->op != BinaryOp::floor_mod)) return std::nullopt;
  std::optional<Piece> piece = as_piece(context, n->a);
  const auto by = constant_of(n->b);
  if (!piece || !by || *by <= 0) return std::nullopt;
  if (n->op == BinaryOp::floor_div) {
    piece->low *= *by;
  } else {
    piece->high = std::min(piece->high, piece->low * *by);
  }
  return piece;
}

struct Term {
  int64_t factor;
  Piece piece;
};

// Adds e * factor as a sum of pieces and constants; false if it is none.
bool add_terms(const Context& context, const Expr& e, int64_t factor, std::vector<Term>* terms) {
  if (constant_of(e)) return true;
  if (const auto piece = as_piece(context, e)) {
    terms->push_back({factor, *piece});
    return true;
  }
  const auto* n = e.as<Binary>();
  if (!n) return false;
  if (n->op == BinaryOp::add || n->op == BinaryOp::sub) {
    return add_terms(context, n->a, factor, terms) &&
           add_terms(context, n->b, n->op == BinaryOp::add ? factor : -factor, terms);
  }
  if (n->op != BinaryOp::mul) return false;
  if (const auto by = constant_of(n->b)) return add_terms(context, n->a, factor * *by, terms);
  if (const auto by = constant_of(n->a)) return add_terms(context, n->b, factor * *by, terms);
  return false;
}

std::optional<std::vector<int64_t>> axis_values(const Block& b, const Point& point) {
  std::vector<int64_t> out;
  for (const Expr& value : b.values) {
    const auto v = evaluate(value, point);
    if (!v) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

bool is_inside(const SampledVar& v, const Point& point) {
  const auto min = evaluate(v.min, point), extent = evaluate(v.extent, point);
  const int64_t value = point.at(v.var.get());
  return min && extent && *min <= value && value - *min < *extent;
}

// Looks from the point for another one at which the block's instance is the same: one loop of the binding goes up, and
// another goes down so that their sum stays. Gives that point's text.
std::string find_same_instance(const Context& context, const Block& b, const std::vector<Term>& terms,
                               const std::vector<SampledVar>& vars, const Point& point) {
  const auto instance = axis_values(b, point);
  if (!instance) return "";
  for (const Term& up : terms) {
    for (const Term& down : terms) {
      if (up.piece.var == down.piece.var || up.factor == 0 || down.factor == 0) continue;
      const int64_t common = std::gcd(up.factor, down.factor);
      Point other = point;
      other[up.piece.var] += down.factor / common;
      other[down.piece.var] -= up.factor / common;
      const bool inside =
          std::all_of(vars.begin(), vars.end(), [&](const SampledVar& v) { return is_inside(v, other); });
      if (inside && all_hold(context.conditions, other) && axis_values(b, other) == instance) {
        return point_text(vars, other);
      }
    }
  }
  return "";
}

// Were a reduction step done twice, its result would be wrong; a spatial instance may be computed again.
Details reduce_steps_repeated(const Context& context, const Block& b) {
  Details out;
  const std::vector<SampledVar> vars = loop_vars(context.loops);
  for (size_t k = 0; k < b.axes.size(); ++k) {
    std::vector<Term> terms;
    if (b.axes[k].kind != AxisKind::reduce || !add_terms(context, b.values[k], 1, &terms)) continue;
    if (terms.size() < 2) continue;
    for_each_sample(vars, [&](const Point& point) {
      if (!all_hold(context.conditions, point)) return true;
      const std::string again = find_same_instance(context, b, terms, vars, point);
      if (again.empty()) return true;
      out.push_back(text(b.axes[k].var.name(), " = ", to_text(b.values[k]), " is the same at ",
                         point_text(vars, point), " and at ", again));
      return false;
    });
  }
  return out;
}

// Such a block would run for some pairs of values of the two axes only.
Details reduce_axes_sharing_loops(const Context& context, const Block& b) {
  std::vector<std::vector<Term>> terms(b.axes.size());
  for (size_t k = 0; k < b.axes.size(); ++k) {
    if (!add_terms(context, b.values[k], 1, &terms[k])) return {};
  }
  const auto overlap = [](const Term& t, const Term& u) {
    return t.piece.var == u.piece.var && t.piece.high > u.piece.low && u.piece.high > t.piece.low;
  };
  Details out;
  for (size_t k = 0; k < b.axes.size(); ++k) {
    if (b.axes[k].kind != AxisKind::reduce) continue;
    for (size_t other = 0; other < b.axes.size(); ++other) {
      const bool shared = other != k && std::any_of(terms[k].begin(), terms[k].end(), [&](const Term& t) {
                            return std::any_of(terms[other].begin(), terms[other].end(),
                                               [&](const Term& u) { return overlap(t, u); });
                          });
      if (!shared) continue;
      out.push_back(text(b.axes[k].var.name(), " = ", to_text(b.values[k]), " and ", b.axes[other].var.name(),
                         " = ", to_text(b.values[other])));
    }
  }
  return out;
}

Details unbound_loop_inside_reduction(const Context& context, const Block& b) {
  bool inside = false;
  Details out;
  for (const For* loop : context.loops) {
    bool reduces = false, used = is_int(loop->extent, 1);
    for (size_t k = 0; k < b.axes.size(); ++k) {
      const bool binds = uses_var(b.values[k], loop->var);
      used |= binds;
      reduces |= binds && b.axes[k].kind == AxisKind::reduce;
    }
    for (const Expr& condition : context.conditions)
      used |= uses_var(condition, loop->var);
    inside |= reduces;
    if (inside && !used) out.push_back(loop->var.name());
  }
  return out;
}

Details axes_outside_domain(const Context& context, const Block& b) {
  Details out;
  const std::vector<SampledVar> vars = loop_vars(context.loops);
  for_each_sample(vars, [&](const Point& point) {
    if (!all_hold(context.conditions, point)) return true;
    for (size_t k = 0; k < b.axes.size(); ++k) {
      const auto value = evaluate(b.values[k], point), min = evaluate(b.axes[k].domain.min, point),
                 extent = evaluate(b.axes[k].domain.extent, point);
      if (!value || !min || !extent || (*min <= *value && *value - *min < *extent)) continue;
      out.push_back(text(b.axes[k].var.name(), " = ", to_text(b.values[k]), " is ", *value, " at ",
                         point_text(vars, point), ", outside of ", *min, " .. ", *min + *extent));
    }
    return out.empty();
  });
  return out;
}

// ---- Init ----

Details init_over_reduce_axes(const Context&, const Block& b) {
  Details out;
  for (const Axis& axis : b.axes) {
    if (b.init && axis.kind == b.kind_of_steps() && uses_var(b.init, axis.var))
      out.push_back(axis.var.name());
  }
  return out;
}

Details init_of_other_buffers(const Context&, const Block& b) {
  if (!b.init) return {};
  std::vector<Region> reads, by_init, by_body;
  collect_accesses(b.init, &reads, &by_init);
  collect_accesses(b.body, &reads, &by_body);
  Details out;
  for (const Region& r : by_init) {
    const bool also_by_body = std::any_of(by_body.begin(), by_body.end(),
                                          [&](const Region& w) { return w.buffer.same_as(r.buffer); });
    if (!also_by_body) out.push_back(r.buffer.name());
  }
  return out;
}

// ---- Regions ----

Details regions_of_wrong_rank(const Context&, const Block& b) {
  Details out;
  for (const auto* regions : {&b.reads, &b.writes}) {
    for (const Region& r : *regions) {
      if (static_cast<int>(r.ranges.size()) != r.buffer.rank()) out.push_back(r.buffer.name());
    }
  }
  return out;
}

struct FoundAccess {
  Buffer buffer;
  std::vector<Expr> indices;
  bool is_write;
  std::vector<const For*> loops;  // between the block and the access
  std::vector<Expr> conditions;   // under which it is done
};

// The accesses of a block itself, not those of blocks inside of it.
class FindAccesses : public Visitor {
 public:
  std::vector<FoundAccess> found;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    add(n.buffer, n.indices, n.predicate, false);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    add(n.buffer, n.indices, n.predicate, true);
    Visitor::on(n);
  }
  void on(const For& n) override {
    loops_.push_back(&n);
    Visitor::on(n);
    loops_.pop_back();
  }
  void on(const If& n) override {
    visit(n.condition);
    under(n.condition, [&] { visit(n.then_body); });
    under(logical_not(n.condition), [&] { visit(n.else_body); });
  }
  void on(const Select& n) override {
    if (n.condition.lanes() > 1) return Visitor::on(n);
    visit(n.condition);
    under(n.condition, [&] { visit(n.on_true); });
    under(logical_not(n.condition), [&] { visit(n.on_false); });
  }
  void on(const Block&) override {}

 private:
  template <class F>
  void under(const Expr& condition, F&& body) {
    conditions_.push_back(condition);
    body();
    conditions_.pop_back();
  }
  void add(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate, bool is_write) {
    found.push_back({buffer, indices, is_write, loops_, conditions_});
    if (predicate.defined()) found.back().conditions.push_back(predicate);
  }
  std::vector<const For*> loops_;
  std::vector<Expr> conditions_;
};

bool is_point_at(const Region& region, const FoundAccess& access) {
  for (size_t d = 0; d < access.indices.size(); ++d) {
    if (!is_int(region.ranges[d].extent, 1) || !structurally_equal(region.ranges[d].min, access.indices[d]))
      return false;
  }
  return true;
}

// Whether a region is known not to hold the element at the point.
bool misses(const Region& region, const std::vector<Expr>& indices, const Point& point) {
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto index = evaluate(indices[d], point), min = evaluate(region.ranges[d].min, point),
               extent = evaluate(region.ranges[d].extent, point);
    if (index && min && extent && (*index < *min || *index - *min >= *extent)) return true;
  }
  return false;
}

// The first sample at which none of the regions holds the access, as text.
std::string find_uncovered(const Block& b, const FoundAccess& access,
                           const std::vector<const Region*>& regions) {
  std::vector<SampledVar> vars;
  for (const Axis& axis : b.axes)
    vars.push_back({axis.var, axis.domain.min, axis.domain.extent});
  for (const SampledVar& loop : loop_vars(access.loops))
    vars.push_back(loop);
  std::string out;
  for_each_sample(vars, [&](const Point& point) {
    if (!all_hold(access.conditions, point)) return true;
    for (const Region* r : regions) {
      if (!misses(*r, access.indices, point)) return true;
    }
    out = vars.empty() ? "always" : text("at ", point_text(vars, point));
    return false;
  });
  return out;
}

// What a block writes it may read, too: the running value of a reduction.
Details accesses_outside_regions(const Context& context, const Block& b) {
  if (!regions_of_wrong_rank(context, b).empty()) return {};
  FindAccesses find;
  find.visit(b.init);
  find.visit(b.body);
  Details out;
  for (const FoundAccess& access : find.found) {
    std::vector<const Region*> regions;
    for (const Region& r : b.writes)
      if (r.buffer.same_as(access.buffer)) regions.push_back(&r);
    for (const Region& r : b.reads)
      if (!access.is_write && r.buffer.same_as(access.buffer)) regions.push_back(&r);
    if (std::any_of(regions.begin(), regions.end(), [&](const Region* r) { return is_point_at(*r, access); }))
      continue;
    const std::string where = regions.empty() ? "never declared" : find_uncovered(b, access, regions);
    if (where.empty()) continue;
    std::vector<std::string> indices;
    for (const Expr& i : access.indices)
      indices.push_back(to_text(i));
    out.push_back(text(access.is_write ? "write of " : "read of ", access.buffer.name(), list_text(indices),
                       ", ", where));
  }
  return out;
}

// ---- The rules ----

struct BlockRule {
  std::string_view says;
  Details (*broken)(const Context&, const Block&);
};

const BlockRule kBlockRules[] = {
    {"block axes, their domains and values are i64", axes_not_scalar},
    {"reduce and scan axes are not bound to parallel loops", reduced_in_parallel},
    {"a step of a reduction is done once", reduce_steps_repeated},
    {"the loops of a reduce axis bind no other axis", reduce_axes_sharing_loops},
    {"a loop inside of a block's reduce loops binds one of its axes", unbound_loop_inside_reduction},
    {"an axis is bound to values of its domain", axes_outside_domain},
    {"init does not depend on reduce axes", init_over_reduce_axes},
    {"init stores only to buffers that the body stores to", init_of_other_buffers},
    {"a region has as many ranges as its buffer has dimensions", regions_of_wrong_rank},
    {"a block's regions cover its accesses", accesses_outside_regions},
};

}  // namespace

void check_block(Context& context, const Block& block) {
  for (const BlockRule& rule : kBlockRules) {
    for (const std::string& detail : rule.broken(context, block))
      context.report(rule.says, detail);
  }
}

}  // namespace mcc::tensor::verifier
