#include "tensor/schedule/regions.h"

#include <algorithm>
#include <numeric>

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

namespace {

void flatten(const Expr& e, int64_t scale, std::vector<std::pair<int64_t, Expr>>* terms) {
  const auto* b = e.as<Binary>();
  int64_t c = 0;
  if (b != nullptr && b->op == BinaryOp::add) {
    flatten(b->a, scale, terms);
    flatten(b->b, scale, terms);
  } else if (b != nullptr && b->op == BinaryOp::sub) {
    flatten(b->a, scale, terms);
    flatten(b->b, -scale, terms);
  } else if (b != nullptr && b->op == BinaryOp::mul && as_int(b->b, &c)) {
    flatten(b->a, scale * c, terms);
  } else if (b != nullptr && b->op == BinaryOp::mul && as_int(b->a, &c)) {
    flatten(b->b, scale * c, terms);
  } else {
    terms->emplace_back(scale, e);
  }
}

}  // namespace

void split_sum(const Expr& e, std::vector<std::pair<int64_t, Expr>>* terms) { flatten(e, 1, terms); }

// By ascending stride, no stride may leave a gap.
bool is_dense(std::vector<std::pair<int64_t, Expr>> strides) {
  std::sort(strides.begin(), strides.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t reach = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i].first > reach + 1) return false;
    int64_t width = 0;
    if (!as_int(strides[i].second, &width)) return i + 1 == strides.size();
    reach += strides[i].first * width;
  }
  return true;
}

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
      Expr below = analyzer.simplify(block.values[i] < domain.min + domain.extent);
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

// ---- Solving for axes ----

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

Digit as_digit(const Expr& e) {
  Digit d{e};
  int64_t c = 0;
  if (const auto* b = e.as<Binary>()) {
    bool sum = b->op == BinaryOp::add || b->op == BinaryOp::sub;
    if (sum && as_int(b->b, &c) && !b->a.as<IntImm>()) {
      d.base = b->a;
      d.offset = b->op == BinaryOp::add ? c : -c;
    } else if (b->op == BinaryOp::add && as_int(b->a, &c)) {
      d.base = b->b;
      d.offset = c;
    }
  }
  const auto* outer = d.base.as<Binary>();
  if (outer == nullptr || !as_int(outer->b, &c) || c <= 0) return d;
  const auto* inner = outer->a.as<Binary>();
  int64_t k = 0;
  bool has_inner = inner != nullptr && as_int(inner->b, &k) && k > 0;
  if (outer->op == BinaryOp::floor_mod) {
    bool divides = has_inner && inner->op == BinaryOp::floor_div;
    d.base = divides ? inner->a : outer->a;
    d.stride = divides ? k : 1;
    d.modulus = c;
  } else if (outer->op == BinaryOp::floor_div) {
    bool wraps = has_inner && inner->op == BinaryOp::floor_mod && k % c == 0;
    d.base = wraps ? inner->a : outer->a;
    d.stride = c;
    d.modulus = wraps ? k / c : 0;
  }
  return d;
}

bool is_complete(std::vector<PlacedDigit>* digits, const Expr& extent) {
  std::sort(digits->begin(), digits->end(),
            [](const PlacedDigit& a, const PlacedDigit& b) { return a.digit.stride < b.digit.stride; });
  int64_t next = 1, limit = 0;
  for (const PlacedDigit& d : *digits) {
    if (next == 0 || d.digit.stride != next) return false;
    next = d.digit.modulus * d.digit.stride;
  }
  return next == 0 || (extent.defined() && as_int(extent, &limit) && limit <= next);
}

std::vector<std::optional<AxisSolution>> solve_axes(const std::vector<Expr>& indices,
                                                    const std::vector<Axis>& axes) {
  std::vector<std::optional<AxisSolution>> solutions(axes.size());
  for (size_t a = 0; a < axes.size(); ++a) {
    std::vector<PlacedDigit> digits;
    const PlacedDigit* whole = nullptr;
    for (size_t d = 0; d < indices.size(); ++d) {
      Digit digit = as_digit(indices[d]);
      if (digit.base.same_as(axes[a].var)) digits.push_back({d, digit});
    }
    for (const PlacedDigit& d : digits) {
      if (d.digit.stride == 1 && d.digit.modulus == 0 && whole == nullptr) whole = &d;
    }
    AxisSolution solution;
    if (whole != nullptr) {
      solution.terms = {{whole->dimension, 1}};
      solution.offset = whole->digit.offset;
    } else {
      bool from_zero = is_int(axes[a].domain.min, 0);
      if (digits.empty() || !from_zero || !is_complete(&digits, axes[a].domain.extent)) continue;
      for (const PlacedDigit& d : digits) {
        solution.terms.emplace_back(d.dimension, d.digit.stride);
        solution.offset += d.digit.stride * d.digit.offset;
      }
    }
    solutions[a] = std::move(solution);
  }
  return solutions;
}

Expr apply_solution(const AxisSolution& solution, const std::vector<Expr>& elements) {
  Expr sum = 0;
  for (const auto& [dimension, stride] : solution.terms)
    sum = sum + elements[dimension] * stride;
  return sum - solution.offset;
}

bool repeats_instances(const Func& f, const BlockSite& site, size_t first, size_t last) {
  std::vector<Expr> values;
  for (size_t i = 0; i < site.block->axes.size(); ++i) {
    if (site.block->axes[i].kind == AxisKind::spatial) values.push_back(site.block->values[i]);
  }
  for (size_t i = first; i < last; ++i) {
    const For* loop = site.loops[i];
    if (axes_bound_to(*site.block, loop->var).reduce) continue;
    if (!is_int(loop->extent, 1) && !separates(regions_at(f, site, i), loop->var, values)) return true;
  }
  return false;
}

namespace {

constexpr int64_t kMaxReach = int64_t{1} << 48;  // of one term; sums of some stay in 64 bits

// The term of a sum that depends on the loop, when the sum tells its values apart whatever the other terms are: those of
// smaller coefficients stay below its own, and with it below the greatest common divisor of the larger ones.
Expr separated_term(const RegionAnalysis& regions, const Var& loop, const Expr& e) {
  std::vector<std::pair<int64_t, Expr>> terms;
  split_sum(e, &terms);
  Expr found;
  int64_t own = 0, reach = 0;  // its coefficient, and that times its width
  std::vector<std::pair<int64_t, int64_t>> others;
  for (const auto& [coefficient, atom] : terms) {
    std::optional<Stretch> stretch = regions.stretch(atom);
    int64_t width = 0, size = std::abs(coefficient), product = 0;
    if (!stretch || !as_int(regions.analyzer().simplify(stretch->width), &width)) return nullptr;
    if (__builtin_mul_overflow(size, width, &product) || product > kMaxReach) return nullptr;
    if (uses_var(atom, loop)) {
      if (found.defined()) return nullptr;
      found = atom;
      own = size;
      reach = product;
    } else if (width > 0) {
      others.emplace_back(size, product);
    }
  }
  int64_t below = 0, above = 0;
  for (const auto& [size, product] : others) {
    if (size > own) {
      above = std::gcd(above, size);
    } else {
      below += product;
    }
  }
  return below < own && (above == 0 || reach + below < above) ? found : nullptr;
}

// A sum of the values that takes back together what was divided: of n * 14 + (n * 4 + t) // 18 and (n * 4 + t) %% 18 the sum
// of 18 times the first and the second, n * 256 + t. For each base of a division.
std::vector<Expr> recombined(const RegionAnalysis& regions, const Var& loop,
                             const std::vector<Expr>& values) {
  struct Part {
    Expr base, sum;
  };
  std::vector<Part> parts;
  for (const Expr& value : values) {
    std::vector<std::pair<int64_t, Expr>> terms;
    split_sum(value, &terms);
    for (const auto& [coefficient, atom] : terms) {
      Digit digit = as_digit(atom);
      if (!uses_var(atom, loop) || coefficient != 1 || digit.base.same_as(atom)) continue;
      auto it = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& p) { return structurally_equal(p.base, digit.base); });
      if (it == parts.end()) it = parts.insert(parts.end(), {digit.base, 0});
      it->sum = it->sum + value * Expr(digit.stride);
    }
  }
  std::vector<Expr> out;
  for (const Part& p : parts)
    out.push_back(regions.analyzer().simplify(p.sum));
  return out;
}

// Whether such terms of several values are together all digits of the loop's variable, or of a sum that tells its values
// apart.
bool separates_in_sums(const RegionAnalysis& regions, const Var& loop, const std::vector<Expr>& values) {
  std::vector<PlacedDigit> digits;
  for (size_t i = 0; i < values.size(); ++i) {
    Expr term = separated_term(regions, loop, values[i]);
    if (!term.defined()) continue;
    if (term.same_as(loop)) return true;
    digits.push_back({i, as_digit(term)});
  }
  for (const PlacedDigit& first : digits) {
    const Expr& base = first.digit.base;
    if (!base.same_as(loop) && !separated_term(regions, loop, base).same_as(loop)) continue;
    std::vector<PlacedDigit> same;
    for (const PlacedDigit& d : digits) {
      if (structurally_equal(d.digit.base, base)) same.push_back(d);
    }
    if (is_complete(&same, nullptr)) return true;
  }
  // What all values determine, their sums do, too.
  for (const Expr& sum : recombined(regions, loop, values)) {
    if (separated_term(regions, loop, sum).same_as(loop)) return true;
  }
  return false;
}

}  // namespace

bool separates(const RegionAnalysis& regions, const Var& loop, const std::vector<Expr>& values,
               bool in_sums) {
  auto is_separated = [&](const Expr& e) {
    if (in_sums) return separated_term(regions, loop, e).same_as(loop);
    std::optional<LinearForm> form = linear_form(e, {loop});
    if (!form || form->coefficients[0] == 0) return false;
    std::optional<Stretch> rest = regions.stretch(form->rest);
    return rest && regions.analyzer().can_prove(rest->width < std::abs(form->coefficients[0]));
  };
  std::vector<Expr> simple;
  for (const Expr& v : values) {
    if (uses_var(v, loop)) simple.push_back(regions.analyzer().simplify(v));
  }
  if (std::any_of(simple.begin(), simple.end(), is_separated)) return true;
  if (in_sums && separates_in_sums(regions, loop, simple)) return true;
  for (const Expr& e : simple) {
    Digit first = as_digit(e);
    if (first.stride == 1 && first.modulus == 0) continue;
    std::vector<PlacedDigit> digits;
    for (size_t i = 0; i < simple.size(); ++i) {
      Digit digit = as_digit(simple[i]);
      if (structurally_equal(digit.base, first.base)) digits.push_back({i, digit});
    }
    if (is_complete(&digits, nullptr) && is_separated(first.base)) return true;
  }
  return false;
}

}  // namespace mcc::tensor
