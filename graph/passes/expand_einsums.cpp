// Einsum as what other passes and schedules know better.
//
// One of three or more operands, which as one sum would multiply all of them for every combination of labels, as sums of two at a
// time: in the order with the fewest multiplications (Pfeifer et al., Faster identification of optimal contraction sequences for tensor
// networks, 2014: exhaustively, bounded by the best order so far).
//
// One of two operands stays, as its loop nest reads and writes at strides where a MatMul would copy, but for three forms:
// - with constant weights, which are packed then
// - around a softmax, where attention is made of it
// - with a label of both operands as the output's last one, along which neither has the numbers of one vector beside one another
#include <algorithm>
#include <limits>
#include <map>

#include "graph/elements.h"
#include "graph/ops/einsum.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Labels = std::vector<Label>;

constexpr size_t kMostLabels = 52;  // for which there are letters

bool has(const Labels& labels, Label l) { return std::find(labels.begin(), labels.end(), l) != labels.end(); }

Labels joined(std::initializer_list<Labels> parts) {
  Labels all;
  for (const Labels& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Operand {
  ValueId value = kNoValue;  // none: of a sum that has not been made yet
  Labels labels;
};

// What the labels of a sum of two operands, a b, stand for.
struct Roles {
  Labels batch, rows, columns, summed;  // of both and the output, of a, of b, of both alone
};

class ExpandEinsums {
 public:
  explicit ExpandEinsums(Graph& g) : g_(g) {}

  void run() {
    auto has_many = [](const Node& n) { return !n.dead && is_op(n, "Einsum") && n.inputs.size() > 2; };
    if (!g_.dims.empty() && std::any_of(g_.nodes.begin(), g_.nodes.end(), has_many))
      typical_ = likely_instance(g_);
    each([&](const Node& n) { return n.inputs.size() > 2 ? pairs(n) : kNoValue; });
    users_ = g_.users();
    each([&](const Node& n) { return n.inputs.size() == 2 ? product(n) : kNoValue; });
    eliminate_dead_code(g_);
  }

 private:
  // What `rewritten` gives for an Einsum takes its place.
  template <class Rewritten>
  void each(Rewritten&& rewritten) {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead || !is_op(g_.node(id), "Einsum") ||
          !is_float(type(g_.node(id).outputs[0]).element))
        continue;
      const Node node = g_.node(id);
      const ValueId y = rewritten(node);
      // Of equal dimensions the sums by twos may have another one.
      if (y == kNoValue || !same_shape(type(y).shape, type(node.outputs[0]).shape)) continue;
      g_.node(g_.value(y).producer).origins = node.origins;
      take_place(g_, node.outputs[0], y);
      g_.node(id).dead = true;
    }
  }

  const TensorType& type(ValueId v) const { return g_.value(v).type; }

  Equation equation_of(const Node& n) const {
    std::vector<int> ranks;
    for (ValueId v : n.inputs)
      ranks.push_back(static_cast<int>(type(v).shape.size()));
    return *parse_equation(n.attributes.text("equation", ""), ranks).equation;
  }

  // ---- Three operands or more ----

  // The pairs of operands that are summed one after the other, as positions in the list of what is left; the sum comes last in it.
  using Order = std::vector<std::pair<size_t, size_t>>;

  // Beyond so many operands the cheapest pair comes first, until so many are left.
  static constexpr size_t kMostTried = 6;

  ValueId pairs(const Node& n) {
    const Equation e = equation_of(n);
    std::vector<Operand> operands;
    for (size_t i = 0; i < n.inputs.size(); ++i)
      operands.push_back({n.inputs[i], e.operands[i]});
    set_extents(operands);
    Labels all;
    for (const Operand& o : operands) {
      for (Label l : o.labels) {
        if (!has(all, l)) all.push_back(l);
      }
    }
    if (all.size() > kMostLabels) return kNoValue;
    if (all.size() == e.output.size())
      return kNoValue;  // nothing is summed: one loop nest has no products in memory
    Order order;
    std::vector<Operand> left = operands;
    double spent = 0;
    while (left.size() > kMostTried) {
      order.push_back(cheapest_pair(left, e.output, &spent));
      replace(&left, order.back(), e.output);
    }
    best_ = combinations(all) * static_cast<double>(operands.size() - 1);
    best_order_.clear();
    Order tried = order;
    search(left, e.output, spent, &tried);
    if (best_order_.empty()) return kNoValue;
    for (const auto& [i, k] : best_order_) {
      const bool is_last = operands.size() == 2;
      const Labels kept = is_last ? e.output : remaining(operands, i, k, e.output);
      Attributes a;
      a.set("equation", to_text(Equation{{operands[i].labels, operands[k].labels}, kept}));
      const ValueId sum = emit(g_, "", "Einsum", n.name, {operands[i].value, operands[k].value}, a);
      replace(&operands, {i, k}, e.output);
      operands.back() = {sum, kept};
    }
    return operands[0].value;
  }

  // Sizes of open dimensions are typical ones.
  void set_extents(const std::vector<Operand>& operands) {
    extents_.clear();
    for (const Operand& o : operands) {
      for (size_t d = 0; d < o.labels.size(); ++d) {
        int64_t extent = 1;
        tensor::as_int((typical_ ? *typical_ : g_).value(o.value).type.shape[d], &extent);
        int64_t& known = extents_.try_emplace(o.labels[d], 1).first->second;
        known = std::max(known, extent);
      }
    }
  }

  double combinations(const Labels& labels) const {
    double count = 1;
    for (Label l : labels)
      count *= static_cast<double>(extents_.at(l));
    return count;
  }

  double cost(const Operand& a, const Operand& b) const {
    Labels all;
    for (Label l : joined({a.labels, b.labels})) {
      if (!has(all, l)) all.push_back(l);
    }
    return combinations(all);
  }

  // The labels of the sum of two operands that others or the output have: those of both first, as a product of matrices has them.
  static Labels remaining(const std::vector<Operand>& operands, size_t i, size_t k, const Labels& output) {
    auto is_needed = [&](Label l) {
      if (has(output, l)) return true;
      for (size_t o = 0; o < operands.size(); ++o) {
        if (o != i && o != k && has(operands[o].labels, l)) return true;
      }
      return false;
    };
    const Labels &a = operands[i].labels, &b = operands[k].labels;
    Labels both, first, second;
    for (Label l : a) {
      Labels& to = has(b, l) ? both : first;
      if (is_needed(l) && !has(to, l)) to.push_back(l);
    }
    for (Label l : b) {
      if (is_needed(l) && !has(a, l) && !has(second, l)) second.push_back(l);
    }
    return joined({both, first, second});
  }

  static void replace(std::vector<Operand>* operands, std::pair<size_t, size_t> pair, const Labels& output) {
    Operand sum{kNoValue, remaining(*operands, pair.first, pair.second, output)};
    operands->erase(operands->begin() + static_cast<std::ptrdiff_t>(pair.second));
    operands->erase(operands->begin() + static_cast<std::ptrdiff_t>(pair.first));
    operands->push_back(std::move(sum));
  }

  std::pair<size_t, size_t> cheapest_pair(const std::vector<Operand>& operands, const Labels& output,
                                          double* spent) const {
    std::pair<size_t, size_t> best{0, 1};
    double least = std::numeric_limits<double>::infinity();
    for (size_t k = 1; k < operands.size(); ++k) {
      for (size_t i = 0; i < k; ++i) {
        // What a pair leaves is written and read: it counts, too.
        const double c = cost(operands[i], operands[k]) + combinations(remaining(operands, i, k, output));
        if (c < least) best = {i, k}, least = c;
      }
    }
    *spent += cost(operands[best.first], operands[best.second]);
    return best;
  }

  // All orders of what is left, behind `tried`, which has cost `spent`; those that are dearer than the best one are left out.
  void search(const std::vector<Operand>& operands, const Labels& output, double spent, Order* tried) {
    if (operands.size() == 1) {
      best_ = spent;
      best_order_ = *tried;
      return;
    }
    for (size_t k = 1; k < operands.size(); ++k) {
      for (size_t i = 0; i < k; ++i) {
        const double with = spent + cost(operands[i], operands[k]);
        if (with >= best_) continue;
        std::vector<Operand> left = operands;
        replace(&left, {i, k}, output);
        tried->push_back({i, k});
        search(left, output, with, tried);
        tried->pop_back();
      }
    }
  }

  // ---- Two operands ----

  // Nothing where an operand has a label twice or one that is summed by itself, or where extents of one label differ (1 and others).
  std::optional<Roles> roles_of(const Operand& a, const Operand& b, const Labels& output) const {
    Roles r;
    for (const Operand* o : {&a, &b}) {
      const Operand& other = o == &a ? b : a;
      for (size_t d = 0; d < o->labels.size(); ++d) {
        const Label l = o->labels[d];
        const auto there = std::find(other.labels.begin(), other.labels.end(), l);
        const bool is_kept = has(output, l);
        if (std::count(o->labels.begin(), o->labels.end(), l) != 1 ||
            (there == other.labels.end() && !is_kept))
          return std::nullopt;
        if (there == other.labels.end()) {
          (o == &a ? r.rows : r.columns).push_back(l);
          continue;
        }
        const Shape extents{type(o->value).shape[d]},
            theirs{type(other.value).shape[static_cast<size_t>(there - other.labels.begin())]};
        if (!same_shape(extents, theirs)) return std::nullopt;
        if (o == &a) (is_kept ? r.batch : r.summed).push_back(l);
      }
    }
    return r;
  }

  ValueId product(const Node& n) {
    const Equation e = equation_of(n);
    Operand a{n.inputs[0], e.operands[0]}, b{n.inputs[1], e.operands[1]};
    const bool a_is_weights = g_.value(a.value).constant && !g_.value(b.value).constant;
    if (a_is_weights || goes_second(a, b, e.output)) std::swap(a, b);
    const std::optional<Roles> r = roles_of(a, b, e.output);
    if (!r || r->summed.empty()) return kNoValue;
    if (is_dense(a, b, *r, e.output)) return dense(n.name, a, b, *r, columns_of(*r, e.output));
    const bool is_product = r->rows.size() == 1 && r->columns.size() == 1 && r->summed.size() == 1;
    const bool ends_in_batch = !e.output.empty() && has(r->batch, e.output.back());
    if (!is_product || !(ends_in_batch || is_in_attention(n, a.value))) return kNoValue;
    const Labels made = joined({r->batch, r->rows, r->columns});
    const ValueId left = ordered(n.name, a, joined({r->batch, r->rows, r->summed}));
    const ValueId right = ordered(n.name, b, joined({r->batch, r->summed, r->columns}));
    return ordered(n.name, {emit(g_, "", "MatMul", n.name, {left, right}), made}, e.output);
  }

  // Whether the second operand is to be the one with the rows: the one that a softmax made, or that whose label is not the last one.
  bool goes_second(const Operand& a, const Operand& b, const Labels& output) const {
    const bool is_mixed = comes_from_softmax(a.value), mixes = comes_from_softmax(b.value);
    if (is_mixed != mixes) return mixes;
    for (auto l = output.rbegin(); l != output.rend(); ++l) {
      if (has(a.labels, *l) != has(b.labels, *l)) return has(a.labels, *l);
    }
    return false;
  }

  // The value with its axes in another order.
  ValueId ordered(const std::string& name, const Operand& o, const Labels& order) {
    if (o.labels == order) return o.value;
    std::vector<int64_t> perm;
    for (Label l : order)
      perm.push_back(std::find(o.labels.begin(), o.labels.end(), l) - o.labels.begin());
    Attributes a;
    a.set("perm", perm);
    return emit(g_, "", "Transpose", name, {o.value}, a);
  }

  // ---- With constant weights ----

  // Whether rows lie beside one another in the operand and in the result.
  bool is_dense(const Operand& a, const Operand& b, const Roles& r, const Labels& output) const {
    const bool has_weights =
        g_.value(b.value).constant && !g_.value(a.value).constant && g_.value(b.value).constant->count() > 0;
    if (!has_weights || !r.batch.empty() || r.rows.empty() || r.columns.empty()) return false;
    return a.labels == joined({r.rows, r.summed}) && output == joined({r.rows, columns_of(r, output)});
  }

  // In the output's order, where rows come first in it.
  static Labels columns_of(const Roles& r, const Labels& output) {
    return {output.begin() + static_cast<std::ptrdiff_t>(r.rows.size()), output.end()};
  }

  ValueId dense(const std::string& name, const Operand& a, const Operand& b, const Roles& r,
                const Labels& columns) {
    auto extents = [&](const Labels& labels) {
      std::vector<int64_t> dims;
      for (Label l : labels) {
        const auto d = static_cast<size_t>(std::find(b.labels.begin(), b.labels.end(), l) - b.labels.begin());
        dims.push_back(g_.value(b.value).constant->shape()[d]);
      }
      return dims;
    };
    auto count = [&](const Labels& labels) {
      int64_t product = 1;
      for (int64_t d : extents(labels))
        product *= d;
      return product;
    };
    // Rows stay the dimensions that they are, which may be open.
    auto reshape = [&](ValueId v, const std::vector<int64_t>& last) {
      Shape dims(type(v).shape.begin(), type(v).shape.begin() + static_cast<std::ptrdiff_t>(r.rows.size()));
      dims.insert(dims.end(), last.begin(), last.end());
      return reshaped(g_, name, v, dims);
    };
    const ValueId x = r.summed.size() == 1 ? a.value : reshape(a.value, {count(r.summed)});
    ValueId w = ordered(name, b, joined({r.summed, columns}));
    if (b.labels.size() != 2) w = reshaped(g_, name, w, {Expr(count(r.summed)), Expr(count(columns))});
    const ValueId y = emit(g_, "", "MatMul", name, {x, w});
    return columns.size() == 1 ? y : reshape(y, extents(columns));
  }

  // ---- Around a softmax ----

  static constexpr int kMostSteps = 8;  // of elementwise operators between a product and a softmax

  bool is_in_attention(const Node& n, ValueId left) const {
    return comes_from_softmax(left) || goes_to_softmax(n.outputs[0]);
  }

  bool comes_from_softmax(ValueId v) const {
    for (int step = 0; step < kMostSteps && g_.value(v).producer >= 0; ++step) {
      const Node& n = g_.node(g_.value(v).producer);
      if (is_op(n, "Softmax")) return true;
      if (n.op->fusion != FusionClass::elementwise || n.inputs.empty()) return false;
      v = n.inputs[0];
    }
    return false;
  }

  bool goes_to_softmax(ValueId v) const {
    for (int step = 0; step < kMostSteps; ++step) {
      const NodeId user = single_user(g_, users_, v);
      if (user < 0) return false;
      const Node& n = g_.node(user);
      if (is_op(n, "Softmax")) return true;
      if (n.op->fusion != FusionClass::elementwise) return false;
      v = n.outputs[0];
    }
    return false;
  }

  Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  std::optional<Graph> typical_;
  std::map<Label, int64_t> extents_;
  double best_ = 0;
  Order best_order_;
};

}  // namespace

void expand_einsums(Graph& graph) { ExpandEinsums(graph).run(); }

}  // namespace mcc::graph
