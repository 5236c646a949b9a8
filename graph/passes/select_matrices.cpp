// Products with matrices that data picks out of constant ones are made with these where they lie:
//   MatMul(x, Gather(w, s))              ->   mcc.SelectedMatMul(x, w, s)
//   MatMul(Gather(w, s), x) of columns   ->   the same of rows
// w [E, K, N] is a constant, or dequantised from one, its matrices as they are or, by a Transpose behind Gather, with rows and columns
// exchanged. What exporters write for experts would copy as many matrices as there are pairs of row and expert.
#include <numeric>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

struct Selected {
  ValueId matrices, selector;
  bool is_transposed = false;
};

class SelectMatrices {
 public:
  explicit SelectMatrices(Graph& g) : g_(g), known_(known_values(g)) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      const Node& node = g_.node(id);
      if (node.dead || !is_op(node, "MatMul") || !node.op->domain.empty()) continue;
      rewrite(id);
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }

  std::optional<Selected> selected(ValueId v) const {
    Selected out{};
    const Node* node = maker(v);
    if (node && is_op(*node, "Transpose")) {
      if (!exchanges_last(permutation_of(g_, *node))) return std::nullopt;
      out.is_transposed = true;
      node = maker(node->inputs[0]);
    }
    if (!node || !is_op(*node, "Gather") || node->attributes.integer("axis", 0) != 0) return std::nullopt;
    out.matrices = node->inputs[0];
    out.selector = node->inputs[1];
    constexpr size_t kOfSeveral = 3;
    const bool is_given =
        known_[static_cast<size_t>(out.matrices)] && shape(out.matrices).size() == kOfSeveral;
    return is_given && !known_[static_cast<size_t>(out.selector)] ? std::optional(out) : std::nullopt;
  }

  const Node* maker(ValueId v) const {
    const NodeId made_by = g_.value(v).producer;
    return made_by < 0 ? nullptr : &g_.node(made_by);
  }

  static bool exchanges_last(const std::vector<int64_t>& perm) {
    std::vector<int64_t> exchanged(perm.size());
    std::iota(exchanged.begin(), exchanged.end(), 0);
    if (perm.size() < 2) return false;
    std::swap(exchanged[perm.size() - 1], exchanged[perm.size() - 2]);
    return perm == exchanged;
  }

  // Whether x [.., a, b] has a matrix for each of its batch.
  bool has_one_for_each(ValueId x, ValueId selector) const {
    const Shape &rows = shape(x), &s = shape(selector);
    return rows.size() == s.size() + 2 && same_shape(Shape(rows.begin(), rows.end() - 2), s);
  }

  void rewrite(NodeId id) {
    const Node node = g_.node(id);
    const ValueId left = node.inputs[0], right = node.inputs[1];
    if (const std::optional<Selected> w = selected(right); w && has_one_for_each(left, w->selector)) {
      replace(id, multiply(node, left, *w, w->is_transposed));
      return;
    }
    const std::optional<Selected> w = selected(left);
    if (!w || !has_one_for_each(right, w->selector) || !tensor::is_int(shape(right).back(), 1)) return;
    Shape row = shape(right);
    std::swap(row[row.size() - 1], row[row.size() - 2]);
    const ValueId x = reshaped(g_, node.name, right, row);
    replace(id, reshaped(g_, node.name, multiply(node, x, *w, !w->is_transposed), shape(node.outputs[0])));
  }

  ValueId multiply(const Node& node, ValueId x, const Selected& w, bool transposed) {
    Attributes a;
    a.set("transposed", int64_t{transposed});
    const ValueId y = emit(g_, "mcc", "SelectedMatMul", node.name, {x, w.matrices, w.selector}, a);
    add_origins(g_.node(g_.value(y).producer), node);
    return y;
  }

  void replace(NodeId id, ValueId with) {
    take_place(g_, g_.node(id).outputs[0], with);
    g_.node(id).dead = true;
  }

  Graph& g_;
  const std::vector<bool> known_;
};

}  // namespace

void select_matrices(Graph& graph) { SelectMatrices(graph).run(); }

}  // namespace mcc::graph
