#include "graph/passes/repeated_heads.h"

#include <algorithm>

#include "graph/passes/open_view.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

// The axes with `axis` twice, in the order of a permutation that keeps it as it is among the others.
Ints with_split_axis(const Ints& perm, int64_t axis) {
  Ints out;
  for (int64_t p : perm) {
    out.push_back(p + (p > axis ? 1 : 0));
    if (p == axis) out.push_back(p + 1);
  }
  return out;
}

ValueId transposed(Graph& graph, const std::string& name, ValueId v, const Ints& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return v;
  Attributes a;
  a.set("perm", perm);
  return emit(graph, "", "Transpose", name, {v}, a);
}

// What a Reshape of two axes into one, by a single user, makes of a value that is repeated along the second of them.
std::optional<RepeatedHeads> repeated(const Graph& graph, const std::vector<std::vector<NodeId>>& users,
                                      ValueId v) {
  const NodeId id = graph.value(v).producer;
  if (id < 0 || single_user(graph, users, v) < 0 || !is_op(graph.node(id), "Reshape")) return std::nullopt;
  const ValueId whole = graph.node(id).inputs[0];
  const Shape &from = graph.value(whole).type.shape, &to = graph.value(v).type.shape;
  if (from.size() != to.size() + 1) return std::nullopt;
  size_t axis = 0;
  while (axis < to.size() && same_shape({from[axis]}, {to[axis]}))
    ++axis;
  // Where the first of the two is as long as both, the second is 1.
  RepeatedHeads heads{whole, axis};
  if (axis == to.size() || !tensor::as_int(from[axis], &heads.groups) ||
      !tensor::as_int(from[axis + 1], &heads.of_group) || heads.of_group < 2)
    return std::nullopt;
  for (size_t d = axis + 1; d < to.size(); ++d)
    if (!same_shape({from[d + 1]}, {to[d]})) return std::nullopt;
  const OpenView view = follow_open_view(graph, whole, false);
  const Ints& step = view.steps[axis + 1];
  const bool stands = std::all_of(step.begin(), step.end(), [](int64_t s) { return s == 0; });
  return view.source != whole && stands ? std::optional(heads) : std::nullopt;
}

}  // namespace

Shape RepeatedHeads::split(Shape shape) const {
  shape[axis] = Expr(groups);
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, Expr(of_group));
  return shape;
}

std::optional<RepeatedHeads> repeated_heads(Graph& graph, const std::vector<std::vector<NodeId>>& users,
                                            NodeId product) {
  const Node node = graph.node(product);
  const ValueId left = node.inputs[0], right = node.inputs[1];
  const Shape &of_left = graph.value(left).type.shape, &of_right = graph.value(right).type.shape;
  if (graph.value(left).constant || graph.value(right).constant || of_left.size() != of_right.size())
    return std::nullopt;
  // Through a transposition of what is repeated.
  NodeId moved = single_user(graph, users, right) >= 0 ? graph.value(right).producer : -1;
  if (moved >= 0 && !is_op(graph.node(moved), "Transpose")) moved = -1;
  Ints perm;
  for (size_t d = 0; d < of_right.size(); ++d)
    perm.push_back(static_cast<int64_t>(d));
  if (moved >= 0) perm = permutation_of(graph, graph.node(moved));
  std::optional<RepeatedHeads> heads =
      repeated(graph, users, moved >= 0 ? graph.node(moved).inputs[0] : right);
  if (!heads) return std::nullopt;
  const auto before = static_cast<int64_t>(heads->axis);
  heads->axis = static_cast<size_t>(std::find(perm.begin(), perm.end(), before) - perm.begin());
  if (heads->axis + 2 >= of_right.size() || !same_shape({of_left[heads->axis]}, {of_right[heads->axis]}))
    return std::nullopt;
  heads->operand = transposed(graph, node.name, heads->operand, with_split_axis(perm, before));
  return heads;
}

void take_grouped_result(Graph& graph, const std::vector<std::vector<NodeId>>& users, NodeId product,
                         const RepeatedHeads& heads, ValueId grouped) {
  const std::string name = graph.node(product).name;
  ValueId out = graph.node(product).outputs[0], last = grouped;
  // Its transposition keeps both axes side by side.
  const NodeId user = single_user(graph, users, out);
  if (user >= 0 && is_op(graph.node(user), "Transpose") && !graph.node(user).dead) {
    last = transposed(
        graph, name, grouped,
        with_split_axis(permutation_of(graph, graph.node(user)), static_cast<int64_t>(heads.axis)));
    out = graph.node(user).outputs[0];
    absorb(graph, user, graph.value(last).producer);
  }
  take_place(graph, out, reshaped(graph, name, last, graph.value(out).type.shape));
  graph.node(product).dead = true;
}

}  // namespace mcc::graph
