// Products that read their operands where they lie: transposed, split off from others, repeated for several heads.
//
//   MatMul(q, Transpose(k)), the scores of one query: as many bytes are moved to transpose the keys as the product reads.
//
// A product reads either order of its operands' last two axes at about the same speed, in panels that it packs, or along the sum. What
// remains slow to read are elements that lie apart along both.
#include <algorithm>

#include "graph/elements.h"
#include "graph/ops/common.h"
#include "graph/ops/operand_view.h"
#include "graph/passes/open_view.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

int64_t extent_of(const Expr& extent) {
  int64_t n = 0;
  return tensor::as_int(extent, &n) ? n : kOpenExtent;
}

class ViewOperands {
 public:
  ViewOperands(Graph& g, const tensor::Target& t) : g_(g), t_(t), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      rewrite(static_cast<NodeId>(n));
    eliminate_dead_code(g_);
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }

  bool is_product(const Node& n) const {
    if (n.dead || !is_op(n, "MatMul") || !n.op->domain.empty()) return false;
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
      return is_float(g_.value(v).type.element) && !g_.value(v).constant && shape(v).size() >= 2;
    });
  }

  void rewrite(NodeId id) {
    if (!is_product(g_.node(id))) return;
    const Node product = g_.node(id);
    const Shape s = shape(product.outputs[0]);
    // The copy engine of GPUs fetches matrices of known sizes that lie in one piece.
    if (t_.kind == tensor::TargetKind::cuda && is_static(s)) return;
    const size_t batch_rank = s.size() - 2;
    Attributes a;
    std::vector<ValueId> sources;
    bool is_moved = false;
    for (size_t i = 0; i < 2; ++i) {
      const OpenView view = view_of(product.inputs[i], batch_rank, sources, &is_moved);
      a.set(i == 0 ? "a_view" : "b_view", product_view(view, shape(product.inputs[i]), batch_rank));
      sources.push_back(view.source);
    }
    Ints perm;
    const NodeId transposed = transposed_result(product, &perm);
    if (!is_moved && transposed < 0) return;
    Ints batch;
    std::transform(s.begin(), s.end() - 2, std::back_inserter(batch), extent_of);
    a.set("batch", batch);
    a.set("extents",
          Ints{extent_of(s[batch_rank]), extent_of(s.back()), extent_of(shape(product.inputs[0]).back())});
    a.set("y_perm", perm);
    if (product.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});
    if (!finds_extents(product, a, sources)) sources.push_back(said_extents(product));
    const ValueId y = emit(g_, "mcc", "Product", product.name, sources, a);
    const NodeId maker = g_.value(y).producer;
    absorb(g_, id, maker);
    if (transposed >= 0) absorb(g_, transposed, maker);
    take_place(g_, g_.node(transposed >= 0 ? transposed : id).outputs[0], y);
  }

  // Where an operand that this product alone reads lies, if that is a good place to read it; else itself. others: where the operands before
  // it lie; two in one tensor would be one operand to schedules, of which none can be packed. is_moved: set where something has been moved
  // for the operand.
  OpenView view_of(ValueId operand, size_t batch_rank, const std::vector<ValueId>& others,
                   bool* is_moved) const {
    OpenView own;
    own.source = operand;
    const size_t rank = shape(operand).size();
    own.start.assign(rank, 0);
    own.steps.assign(rank, Ints(rank, 0));
    for (size_t d = 0; d < rank; ++d)
      own.steps[d][d] = 1;
    if (single_user(g_, users_, operand) < 0) return own;
    const OpenView view = follow_open_view(g_, operand, false, true);
    const bool is_taken = std::find(others.begin(), others.end(), view.source) != others.end();
    if (is_taken || !is_moved_between(operand, view.source) || !reads_neighbours(view, rank) ||
        !knows_extents(view, operand, batch_rank))
      return own;
    *is_moved = true;
    return view;
  }

  // Reshapes move nothing.
  bool is_moved_between(ValueId operand, ValueId source) const {
    for (ValueId v = operand; v != source; v = g_.node(g_.value(v).producer).inputs[0])
      if (!g_.node(g_.value(v).producer).op->is_view) return true;
    return false;
  }

  // Whether rows or columns go along the source's last dimension, of more than one element, by single steps.
  bool reads_neighbours(const OpenView& view, size_t rank) const {
    const Shape& source = shape(view.source);
    size_t last = source.size();
    while (last > 0 && extent_of(source[last - 1]) == 1)
      --last;
    if (last == 0) return true;
    return view.steps[rank - 1][last - 1] == 1 || view.steps[rank - 2][last - 1] == 1;
  }

  // Whether each open axis of the operand has a dimension of the source, which may be longer, or is none.
  bool knows_extents(const OpenView& view, ValueId operand, size_t batch_rank) const {
    const Shape& own = shape(operand);
    const Ints steps = product_view(view, own, batch_rank);
    const size_t missing = batch_rank + 2 - own.size();
    for (size_t d = 0; d < own.size(); ++d) {
      if (extent_of(own[d]) != kOpenExtent) continue;
      const Expr found = extent_along(steps, shape(view.source), missing + d);
      if (!found.defined()) return false;
    }
    return true;
  }

  // Of the product's axes and of its sum, as a value.
  ValueId said_extents(const Node& product) {
    Shape extents = shape(product.outputs[0]);
    extents.push_back(shape(product.inputs[0]).back());
    return known_elements(g_, product.name + ".extents", ElementType::i64, extents);
  }

  // Whether the operator's own extents are those of the product.
  bool finds_extents(const Node& product, const Attributes& a, const std::vector<ValueId>& sources) const {
    const Shape& s = shape(product.outputs[0]);
    const Ints left = a.integers("a_view"), right = a.integers("b_view");
    for (size_t axis = 0; axis < s.size(); ++axis) {
      if (extent_of(s[axis]) != kOpenExtent) continue;
      Expr found;
      if (axis + 1 != s.size()) found = extent_along(left, shape(sources[0]), axis);
      if (!found.defined() && axis + 2 != s.size()) found = extent_along(right, shape(sources[1]), axis);
      if (!found.defined() || !same_shape({found}, {s[axis]})) return false;
    }
    const Expr summed = shape(product.inputs[0]).back();
    if (extent_of(summed) != kOpenExtent) return true;
    Expr found = extent_along(left, shape(sources[0]), s.size() - 1);
    if (!found.defined()) found = extent_along(right, shape(sources[1]), s.size() - 2);
    return found.defined() && same_shape({found}, {summed});
  }

  // The transposition of the result that nothing else reads, where columns stay beside one another; perm: the order of its axes.
  NodeId transposed_result(const Node& product, Ints* perm) const {
    const size_t rank = shape(product.outputs[0]).size();
    for (size_t d = 0; d < rank; ++d)
      perm->push_back(static_cast<int64_t>(d));
    const NodeId user = single_user(g_, users_, product.outputs[0]);
    if (user < 0 || g_.node(user).dead || !is_op(g_.node(user), "Transpose")) return -1;
    const Ints order = permutation_of(g_, g_.node(user));
    if (order.back() != static_cast<int64_t>(rank) - 1) return -1;
    *perm = order;
    return user;
  }

  Graph& g_;
  const tensor::Target& t_;
  std::vector<std::vector<NodeId>> users_;
};

}  // namespace

void view_operands(Graph& graph, const tensor::Target& target) { ViewOperands(graph, target).run(); }

}  // namespace mcc::graph
