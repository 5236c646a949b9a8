// Products whose right operand is repeated for groups of the batch get an axis for these:
//
//   MatMul(q [n, s g, m, k], Reshape(Expand(k [n, s, 1, k, l] to [n, s, g, k, l])))
//   = Reshape(MatMul(q [n, s, g, m, k], k [n, s, 1, k, l]))
//
// as keys and values are for the queries of grouped-query attention (Ainslie et al., GQA, 2023): what is repeated is read for the rows
// of all of a group at once, instead of being written g times to be read g times.
#include <algorithm>
#include <optional>

#include "graph/passes/open_view.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

// Where a value of so many axes has one that stands for two of another value.
struct Split {
  ValueId whole = kNoValue;  // with the two axes, in the same order
  size_t axis = 0;           // the first of them; that of both in the value itself
  int64_t outer = 1, group = 1;
};

// The axes with `axis` twice, in the order of a permutation that keeps it as it is among the others.
Ints with_split_axis(const Ints& perm, int64_t axis) {
  Ints out;
  for (int64_t p : perm) {
    out.push_back(p + (p > axis ? 1 : 0));
    if (p == axis) out.push_back(p + 1);
  }
  return out;
}

class GroupHeads {
 public:
  GroupHeads(Graph& g, const tensor::Target& t) : g_(g), t_(t), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      rewrite(static_cast<NodeId>(n));
    eliminate_dead_code(g_);
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }

  void rewrite(NodeId id) {
    const Node product = g_.node(id);
    if (product.dead || !is_op(product, "MatMul") || !product.op->domain.empty()) return;
    const ValueId left = product.inputs[0], right = product.inputs[1], result = product.outputs[0];
    // Of known sizes GPUs have attention with groups of its own (fuse_attention).
    if (t_.kind == tensor::TargetKind::cuda && is_static(shape(result))) return;
    if (g_.value(left).constant || g_.value(right).constant || shape(left).size() != shape(right).size())
      return;
    // Through a transposition of what is repeated.
    NodeId moved = single_user(g_, users_, right) >= 0 ? g_.value(right).producer : -1;
    if (moved >= 0 && !is_op(g_.node(moved), "Transpose")) moved = -1;
    Ints perm;
    for (size_t d = 0; d < shape(right).size(); ++d)
      perm.push_back(static_cast<int64_t>(d));
    if (moved >= 0) perm = permutation_of(g_, g_.node(moved));
    const std::optional<Split> split = repeated(moved >= 0 ? g_.node(moved).inputs[0] : right);
    if (!split) return;
    const auto axis = static_cast<size_t>(
        std::find(perm.begin(), perm.end(), static_cast<int64_t>(split->axis)) - perm.begin());
    if (axis + 2 >= shape(right).size() || !same_shape({shape(left)[axis]}, {shape(right)[axis]})) return;

    const ValueId grouped =
        transposed(product.name, split->whole, with_split_axis(perm, static_cast<int64_t>(split->axis)));
    Shape rows = shape(left);
    rows[axis] = Expr(split->outer);
    rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(axis) + 1, Expr(split->group));
    const ValueId y = emit(g_, "", "MatMul", product.name, {reshaped(g_, product.name, left, rows), grouped},
                           product.attributes);
    g_.node(g_.value(y).producer).origins = product.origins;
    // Its transposition keeps both axes side by side.
    const NodeId user = single_user(g_, users_, result);
    ValueId out = result, last = y;
    if (user >= 0 && is_op(g_.node(user), "Transpose") && !g_.node(user).dead) {
      last = transposed(product.name, y,
                        with_split_axis(permutation_of(g_, g_.node(user)), static_cast<int64_t>(axis)));
      out = g_.node(user).outputs[0];
      absorb(g_, user, g_.value(last).producer);
    }
    take_place(g_, out, reshaped(g_, product.name, last, shape(out)));
    g_.node(id).dead = true;
  }

  // What a Reshape of two axes into one, by this user alone, makes of a value that is repeated along the second of them.
  std::optional<Split> repeated(ValueId v) const {
    const NodeId id = g_.value(v).producer;
    if (id < 0 || single_user(g_, users_, v) < 0 || !is_op(g_.node(id), "Reshape")) return std::nullopt;
    const ValueId whole = g_.node(id).inputs[0];
    const Shape &from = shape(whole), &to = shape(v);
    if (from.size() != to.size() + 1) return std::nullopt;
    size_t axis = 0;
    while (axis < to.size() && same_shape({from[axis]}, {to[axis]}))
      ++axis;
    // Where the first of the two is as long as both, the second is 1.
    Split split{whole, axis};
    if (axis == to.size() || !tensor::as_int(from[axis], &split.outer) ||
        !tensor::as_int(from[axis + 1], &split.group) || split.group < 2)
      return std::nullopt;
    for (size_t d = axis + 1; d < to.size(); ++d)
      if (!same_shape({from[d + 1]}, {to[d]})) return std::nullopt;
    const OpenView view = follow_open_view(g_, whole, false);
    const Ints& step = view.steps[axis + 1];
    const bool stands = std::all_of(step.begin(), step.end(), [](int64_t s) { return s == 0; });
    return view.source != whole && stands ? std::optional(split) : std::nullopt;
  }

  ValueId transposed(const std::string& name, ValueId v, const Ints& perm) {
    if (std::is_sorted(perm.begin(), perm.end())) return v;
    Attributes a;
    a.set("perm", perm);
    return emit(g_, "", "Transpose", name, {v}, a);
  }

  Graph& g_;
  const tensor::Target& t_;
  const std::vector<std::vector<NodeId>> users_;
};

}  // namespace

void group_heads(Graph& graph, const tensor::Target& target) { GroupHeads(graph, target).run(); }

}  // namespace mcc::graph
