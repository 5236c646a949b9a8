#include "tensor/schedule/regions.h"

#include <algorithm>

#include "tensor/schedule/digits.h"
#include "tensor/text.h"

namespace mcc::tensor {

void RegionAnalysis::stand(const Var& var, const Expr& min, const Expr& extent) {
  standing_.insert(var.get());
  analyzer_.bind(var, min, extent);
}

void RegionAnalysis::run(const Var& var, const Expr& min, const Expr& extent) {
  running_[var.get()] = {min, extent};
  analyzer_.bind(var, min, extent);
}

namespace {

// The variables of an expression, and whether anything in it depends on data.
class Leaves : public Visitor {
 public:
  std::vector<const ExprNode*> vars;
  bool data = false;

 protected:
  using Visitor::on;
  void on(const VarNode& n) override { vars.push_back(&n); }
  void on(const Load&) override { data = true; }
  void on(const Call&) override { data = true; }
};

Leaves leaves_of(const Expr& e) {
  Leaves leaves;
  leaves.visit(e);
  return leaves;
}

Expr larger(const Analyzer& analyzer, const Expr& a, const Expr& b) {
  if (analyzer.can_prove(a >= b)) return a;
  if (analyzer.can_prove(b >= a)) return b;
  return max(a, b);
}

}  // namespace

bool RegionAnalysis::runs(const Expr& e) const {
  Leaves leaves = leaves_of(e);
  return std::any_of(leaves.vars.begin(), leaves.vars.end(),
                     [&](const ExprNode* v) { return running_.count(v) != 0; });
}

bool RegionAnalysis::is_known(const Expr& e) const {
  Leaves leaves = leaves_of(e);
  return !leaves.data && std::all_of(leaves.vars.begin(), leaves.vars.end(), [&](const ExprNode* v) {
    return running_.count(v) != 0 || standing_.count(v) != 0;
  });
}

std::optional<Stretch> RegionAnalysis::stretch(const Expr& e) const {
  if (is_known(e)) {
    if (auto s = walk(analyzer_.simplify(e))) return s;
  }
  Interval bounds = analyzer_.bounds(e);
  if (!bounds.low || !bounds.high) return std::nullopt;
  return Stretch{*bounds.low, *bounds.high - *bounds.low, false};
}

std::optional<Stretch> RegionAnalysis::linear(const Expr& e) const {
  std::vector<std::pair<int64_t, Expr>> terms;
  split_sum(e, &terms);
  Stretch sum{0, 0, true};
  std::vector<std::pair<int64_t, Expr>> strides;
  std::unordered_set<const ExprNode*> seen;
  for (const auto& [coefficient, atom] : terms) {
    if (!runs(atom)) {
      sum.low = sum.low + atom * coefficient;
      continue;
    }
    std::optional<Stretch> s = walk(atom);
    if (!s) return std::nullopt;
    int64_t stride = std::abs(coefficient);
    sum.low = sum.low + (coefficient > 0 ? s->low : s->low + s->width) * coefficient;
    sum.width = sum.width + s->width * stride;
    sum.exact &= s->exact;
    if (!is_int(s->width, 0)) strides.emplace_back(stride, s->width);
    for (const ExprNode* v : leaves_of(atom).vars) {
      if (running_.count(v) != 0) sum.exact &= seen.insert(v).second;
    }
  }
  sum.low = analyzer_.simplify(sum.low);
  sum.width = analyzer_.simplify(sum.width);
  sum.exact = sum.exact && is_dense(strides);
  return sum;
}

std::optional<Stretch> RegionAnalysis::divided(const Stretch& a, int64_t c) const {
  // [low, low+w] // c starts at low // c and is (low %% c + w) // c wide, at most (w + c - 1) // c.
  Expr first = analyzer_.simplify(floor_mod(a.low, c));
  int64_t phase = 0;
  bool aligned = as_int(first, &phase);
  return Stretch{analyzer_.simplify(floor_div(a.low, c)),
                 analyzer_.simplify(floor_div(a.width + (aligned ? phase : c - 1), c)),
                 a.exact && (aligned || is_int(a.width, 0))};
}

std::optional<Stretch> RegionAnalysis::remainder(const Stretch& a, int64_t c) const {
  Expr low = analyzer_.simplify(floor_mod(a.low, c));
  if (analyzer_.can_prove(low + a.width < c)) return Stretch{low, a.width, a.exact};
  return Stretch{0, c - 1, a.exact && analyzer_.can_prove(a.width >= c - 1)};
}

Stretch RegionAnalysis::divided_by_size(const Stretch& a, const Binary& n) const {
  const bool is_aligned = is_int(analyzer_.simplify(floor_mod(a.low, n.b)), 0);
  if (n.op == BinaryOp::floor_mod) {
    if (is_aligned && analyzer_.can_prove(a.width < n.b)) return Stretch{0, a.width, a.exact};
    return Stretch{0, analyzer_.simplify(n.b - 1), false};
  }
  const Expr width = is_aligned ? a.width : a.width + n.b - 1;
  return Stretch{analyzer_.simplify(floor_div(a.low, n.b)), analyzer_.simplify(floor_div(width, n.b)), a.exact && is_aligned};
}

std::optional<Stretch> RegionAnalysis::walk(const Expr& e) const {
  if (!runs(e)) return Stretch{e, 0, true};
  if (e.as<VarNode>()) {
    const Running& loop = running_.at(e.get());
    if (runs(loop.min) || runs(loop.extent) || !is_known(loop.min) || !is_known(loop.extent))
      return std::nullopt;
    return Stretch{loop.min, analyzer_.simplify(loop.extent - 1), true};
  }
  if (const auto* n = e.as<Cast>()) {
    bool widens = is_signed_int(n->value.element()) && is_signed_int(n->type.element) &&
                  bit_width(n->value.element()) <= bit_width(n->type.element);
    return widens && n->value.type() == kIndex ? walk(n->value) : std::nullopt;
  }
  const auto* n = e.as<Binary>();
  if (n == nullptr) return std::nullopt;
  int64_t c = 0;
  switch (n->op) {
    case BinaryOp::add:
    case BinaryOp::sub:
      return linear(e);
    case BinaryOp::mul: {
      if (as_int(n->a, &c) || as_int(n->b, &c)) return linear(e);
      const Expr& fixed = runs(n->a) ? n->b : n->a;
      const Expr& moving = runs(n->a) ? n->a : n->b;
      if (runs(fixed) || !analyzer_.can_prove(fixed >= 0)) return std::nullopt;
      std::optional<Stretch> s = walk(moving);
      if (!s) return std::nullopt;
      return Stretch{s->low * fixed, s->width * fixed, false};
    }
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod: {
      std::optional<Stretch> s = walk(n->a);
      if (s && !as_int(n->b, &c) && !runs(n->b) && analyzer_.can_prove(n->b >= 1)) return divided_by_size(*s, *n);
      if (!s || !as_int(n->b, &c) || c <= 0) return std::nullopt;
      return n->op == BinaryOp::floor_div ? divided(*s, c) : remainder(*s, c);
    }
    case BinaryOp::min:
    case BinaryOp::max: {
      // min(a + wa, b + wb) <= min(a, b) + max(wa, wb), and so for max.
      std::optional<Stretch> a = walk(n->a), b = walk(n->b);
      if (!a || !b) return std::nullopt;
      return Stretch{analyzer_.simplify(binary(n->op, a->low, b->low)), larger(analyzer_, a->width, b->width),
                     false};
    }
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      return std::nullopt;
  }
  MCC_UNREACHABLE("unknown operator");
}

Box RegionAnalysis::box(const std::vector<Expr>& indices, const std::vector<Expr>& shape) const {
  Box box{{}, true};
  std::unordered_set<const ExprNode*> seen;
  for (size_t d = 0; d < indices.size(); ++d) {
    Expr index = analyzer_.simplify(indices[d]);
    std::optional<Stretch> s = stretch(index);
    box.dims.push_back(s ? *s : Stretch{0, analyzer_.simplify(shape[d] - 1), false});
    box.exact &= box.dims.back().exact;
    std::unordered_set<const ExprNode*> here;
    for (const ExprNode* v : leaves_of(index).vars) {
      auto loop = running_.find(v);
      if (loop != running_.end() && !is_int(loop->second.extent, 1)) here.insert(v);
    }
    for (const ExprNode* v : here)
      box.exact &= seen.insert(v).second;
  }
  return box;
}

Box RegionAnalysis::unite(const Box& a, const Box& b, const std::vector<Expr>& shape) const {
  if (a.exact && covers(a, b, shape)) return a;
  if (b.exact && covers(b, a, shape)) return b;
  Box out{{}, false};
  for (size_t d = 0; d < shape.size(); ++d) {
    const Stretch &x = a.dims[d], &y = b.dims[d];
    std::optional<int64_t> distance = analyzer_.constant_difference(y.low, x.low);
    if (!distance) {
      out.dims.push_back({0, analyzer_.simplify(shape[d] - 1), false});
    } else if (*distance >= 0) {
      out.dims.push_back({x.low, larger(analyzer_, x.width, analyzer_.simplify(y.width + *distance)), false});
    } else {
      out.dims.push_back({y.low, larger(analyzer_, y.width, analyzer_.simplify(x.width - *distance)), false});
    }
  }
  return out;
}

bool RegionAnalysis::covers(const Box& outer, const Box& inner, const std::vector<Expr>& shape) const {
  for (size_t d = 0; d < shape.size(); ++d) {
    const Stretch &o = outer.dims[d], &i = inner.dims[d];
    if (!analyzer_.can_prove(o.low <= i.low) && !analyzer_.can_prove(o.low <= 0)) return false;
    Expr end = o.low + o.width;
    if (!analyzer_.can_prove(i.low + i.width <= end) && !analyzer_.can_prove(end >= shape[d] - 1))
      return false;
  }
  return true;
}

RegionAnalysis regions_at(const Func& f, const BlockSite& site, size_t standing) {
  RegionAnalysis regions(analyzer_at(f, site.loops));
  for (const Var& d : f.dims)
    regions.stand(d);
  for (size_t i = 0; i < site.loops.size(); ++i) {
    const For* loop = site.loops[i];
    if (i < standing) {
      regions.stand(loop->var);
    } else {
      regions.run(loop->var, loop->min, loop->extent);
    }
  }
  return regions;
}

namespace {

// Unites the boxes of a block's loads from, or stores to, one buffer.
class AccessBoxes : public Visitor {
 public:
  AccessBoxes(const RegionAnalysis& regions, const Block& block, const Buffer& buffer, bool stores)
      : regions_(regions), buffer_(buffer), stores_(stores) {
    for (size_t i = 0; i < block.axes.size(); ++i)
      map_[block.axes[i].var.get()] = block.values[i];
  }
  std::optional<Box> box;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    Visitor::on(n);
    if (!stores_ && n.buffer.same_as(buffer_)) add(n.indices, !n.predicate.defined());
  }
  void on(const Store& n) override {
    Visitor::on(n);
    if (stores_ && n.buffer.same_as(buffer_)) add(n.indices, !n.predicate.defined() && !conditional_);
  }
  void on(const For& n) override {
    regions_.run(n.var, substitute(n.min, map_), substitute(n.extent, map_));
    Visitor::on(n);
  }
  void on(const If& n) override {
    bool outer = std::exchange(conditional_, true);
    Visitor::on(n);
    conditional_ = outer;
  }
  void on(const Let& n) override {
    visit(n.value);
    map_[n.var.get()] = substitute(n.value, map_);
    visit(n.body);
  }

 private:
  void add(const std::vector<Expr>& indices, bool always) {
    std::vector<Expr> elements;
    for (const Expr& i : indices)
      elements.push_back(substitute(i, map_));
    Box b = regions_.box(elements, buffer_.shape());
    b.exact &= always;
    box = box ? regions_.unite(*box, b, buffer_.shape()) : b;
  }
  RegionAnalysis regions_;
  VarMap map_;
  const Buffer& buffer_;
  const bool stores_;
  bool conditional_ = false;
};

}  // namespace

bool RegionAnalysis::mentions_standing(const Expr& e) const {
  Leaves leaves = leaves_of(e);
  return std::any_of(leaves.vars.begin(), leaves.vars.end(),
                     [&](const ExprNode* v) { return running_.count(v) == 0; });
}

// value < end; for an open end x < end * m in place of x // m < end.
static Expr is_below(const Expr& value, const Expr& end) {
  const auto* quotient = value.as<Binary>();
  int64_t m = 0, known = 0;
  const bool is_quotient =
      quotient && quotient->op == BinaryOp::floor_div && as_int(quotient->b, &m) && m > 0;
  return is_quotient && !as_int(end, &known) ? quotient->a < end * m : value < end;
}

bool predicate_is_domain(const RegionAnalysis& regions, const Block& block,
                         const std::vector<Expr>* indices) {
  const Analyzer& analyzer = regions.analyzer();
  std::vector<std::optional<AxisSolution>> determined;
  if (indices != nullptr) determined = solve_axes(*indices, block.axes);
  for (const Expr& c : conjuncts(block.predicate)) {
    bool found = false;
    Expr condition = analyzer.simplify(c);
    for (size_t i = 0; i < block.axes.size() && !found; ++i) {
      if (indices != nullptr && !determined[i] && regions.mentions_standing(condition)) continue;
      const Range& domain = block.axes[i].domain;
      Expr below =
          analyzer.simplify(is_below(analyzer.simplify(block.values[i]), domain.min + domain.extent));
      Expr above = analyzer.simplify(block.values[i] >= domain.min);
      found = structurally_equal(condition, below) || structurally_equal(condition, above);
    }
    if (!found) return false;
  }
  return true;
}

std::optional<Box> box_read(const RegionAnalysis& regions, const Block& block, const Buffer& buffer) {
  AccessBoxes boxes(regions, block, buffer, false);
  boxes.visit(block.init);
  boxes.visit(block.body);
  return boxes.box;
}

std::optional<Box> box_written(const RegionAnalysis& regions, const Block& block, const Buffer& buffer) {
  AccessBoxes boxes(regions, block, buffer, true);
  boxes.visit(block.body);
  const auto* store = block.body.as<Store>();
  const std::vector<Expr> none;
  if (boxes.box && !predicate_is_domain(regions, block, store != nullptr ? &store->indices : &none)) {
    boxes.box->exact = false;
  }
  return boxes.box;
}

bool is_fully_written(const Func& f, const std::vector<BlockSite>& sites, const Buffer& buffer) {
  for (size_t i = 0; i < static_cast<size_t>(f.num_inputs()); ++i) {
    if (f.params[i].same_as(buffer)) return true;
  }
  for (const BlockSite& site : sites) {
    const auto* store = site.block->body.as<Store>();
    if (store == nullptr || !store->buffer.same_as(buffer) || store->predicate.defined()) continue;
    RegionAnalysis regions(analyzer_at(f, {}));
    for (const Var& d : f.dims)
      regions.stand(d);
    for (const Axis& a : site.block->axes)
      regions.run(a.var, a.domain.min, a.domain.extent);
    Box all{{}, true};
    for (const Expr& e : buffer.shape())
      all.dims.push_back({0, regions.analyzer().simplify(e - 1), true});
    Box box = regions.box(store->indices, buffer.shape());
    if (box.exact && regions.covers(box, all, buffer.shape())) return true;
  }
  return false;
}

bool reads_are_covered(const Func& f, const std::vector<BlockSite>& sites, const BlockSite& reader,
                       const Buffer* except) {
  std::vector<Buffer> buffers;
  for (const Region& r : reader.block->reads) {
    bool seen =
        std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& b) { return b.same_as(r.buffer); });
    if (!seen && !writes_buffer(*reader.block, r.buffer)) buffers.push_back(r.buffer);
  }
  for (const Buffer& buffer : buffers) {
    if (except != nullptr && buffer.same_as(*except)) continue;
    bool updated = false;  // a later writer completes what earlier ones began
    for (size_t i = sites.size(); i-- > 0;) {
      const BlockSite& writer = sites[i];
      if (writer.block == reader.block || !writes_buffer(*writer.block, buffer)) continue;
      bool completes = reads_buffer(*writer.block, buffer);
      size_t shared = common_loops(writer, reader);
      if (shared != 0 && !updated) {
        std::optional<Box> made = box_written(regions_at(f, writer, shared), *writer.block, buffer);
        RegionAnalysis regions = regions_at(f, reader, shared);
        std::optional<Box> needed = box_read(regions, *reader.block, buffer);
        if (!made || !made->exact || !needed || !regions.covers(*made, *needed, buffer.shape())) return false;
      }
      updated |= completes;
    }
  }
  return true;
}

namespace {

// Single points, in terms of the statement's own loops as well.
void add_places(const Stmt& s, Block* block) {
  auto add = [](std::vector<Region>* to, const Buffer& buffer, const std::vector<Expr>& indices) {
    Region region{buffer, {}};
    for (const Expr& i : indices)
      region.ranges.push_back({i, Expr(1)});
    const bool is_known = std::any_of(to->begin(), to->end(), [&](const Region& r) {
      return r.buffer.same_as(buffer) && std::equal(indices.begin(), indices.end(), r.ranges.begin(), [](const Expr& i, const Range& range) {
               return structurally_equal(i, range.min);
             });
    });
    if (!is_known) to->push_back(std::move(region));
  };
  for_each_expr(s, [&](const Expr& e) {
    if (const auto* load = e.as<Load>()) add(&block->reads, load->buffer, load->indices);
  });
  for_each_stmt(s, [&](const Stmt& inner) {
    if (const auto* store = inner.as<Store>()) add(&block->writes, store->buffer, store->indices);
  });
}

}  // namespace

void widen_regions(const Func& f, Block* block) {
  RegionAnalysis regions(analyzer_at(f, {}));
  for (const Var& d : f.dims)
    regions.stand(d);
  for (const Axis& a : block->axes)
    regions.stand(a.var, a.domain.min, a.domain.extent);
  bool has_loops = false;
  for_each_stmt(block->body, [&](const Stmt& s) {
    if (const auto* loop = s.as<For>()) {
      regions.run(loop->var, loop->min, loop->extent);
      has_loops = true;
    }
  });
  if (!has_loops) return;
  // The places of each iteration, which the box is around.
  block->reads.clear();
  block->writes.clear();
  for (const Stmt& s : {block->init, block->body})
    if (s.defined()) add_places(s, block);
  for (std::vector<Region>* list : {&block->reads, &block->writes}) {
    for (Region& region : *list) {
      std::vector<Expr> indices;
      for (const Range& r : region.ranges)
        indices.push_back(r.min);
      const Box box = regions.box(indices, region.buffer.shape());
      for (size_t d = 0; d < indices.size(); ++d)
        region.ranges[d] = {box.dims[d].low, regions.analyzer().simplify(box.dims[d].width + 1)};
    }
  }
}

}  // namespace mcc::tensor
