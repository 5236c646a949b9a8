#include "graph/passes/box.h"

#include <algorithm>

#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kOpen = -1;  // the extent of an open dimension

// An input's numbers; `absent` where the node has none, nothing where they are no constant.
std::optional<Ints> ints(const Graph& g, const Node& node, size_t i, const Ints& absent) {
  if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return absent;
  const auto& constant = g.value(node.inputs[i]).constant;
  if (!constant) return std::nullopt;
  return constant->count() == 0 ? absent : constant->to_ints();
}

std::optional<Box> box_of_slice(const Graph& g, const Node& node, const Ints& in) {
  const Attributes& a = node.attributes;
  const std::optional<Ints> starts = ints(g, node, 1, a.integers("starts", {}));
  if (!starts) return std::nullopt;
  Ints first(starts->size());
  for (size_t k = 0; k < first.size(); ++k)
    first[k] = static_cast<int64_t>(k);
  const std::optional<Ints> axes = ints(g, node, 3, a.integers("axes", first));
  const std::optional<Ints> steps = ints(g, node, 4, Ints(starts->size(), 1));
  if (!axes || !steps) return std::nullopt;
  Box box{Ints(in.size(), 0), Ints(in.size(), 1)};
  for (size_t k = 0; k < starts->size(); ++k) {
    const int64_t axis = (*axes)[k], step = (*steps)[k];
    const auto at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(in.size()) : axis);
    if (in[at] == kOpen && (*starts)[k] == 0 && step == 1) continue;  // a beginning
    if (in[at] == kOpen) return std::nullopt;
    const int64_t start = (*starts)[k] < 0 ? (*starts)[k] + in[at] : (*starts)[k];
    box.starts[at] = std::clamp<int64_t>(start, 0, step < 0 ? in[at] - 1 : in[at]);
    box.steps[at] = step;
  }
  return box;
}

std::optional<Box> box_of_split(const Graph& g, const Node& node, ValueId value, const Ints& in) {
  Box box{Ints(in.size(), 0), Ints(in.size(), 1)};
  const int64_t axis = node.attributes.integer("axis", 0);
  const auto at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(in.size()) : axis);
  for (ValueId out : node.outputs) {
    if (out == value) return box;
    if (out == kNoValue) return std::nullopt;  // without a type to take its size from
    int64_t size = 0;
    if (!tensor::as_int(g.value(out).type.shape[at], &size)) return std::nullopt;
    box.starts[at] += size;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Box> open_box_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer < 0) return std::nullopt;
  const Node& node = graph.node(producer);
  const bool is_slice = is_op(node, "Slice"), is_split = is_op(node, "Split");
  if (!is_slice && !is_split) return std::nullopt;
  Ints in;
  for (const Expr& extent : graph.value(node.inputs[0]).type.shape)
    if (!tensor::as_int(extent, &in.emplace_back())) in.back() = kOpen;
  return is_slice ? box_of_slice(graph, node, in) : box_of_split(graph, node, value, in);
}

std::optional<Box> box_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer < 0 || graph.node(producer).inputs.empty() || graph.node(producer).inputs[0] == kNoValue)
    return std::nullopt;
  const bool are_known = is_static(graph.value(graph.node(producer).inputs[0]).type.shape) &&
                         is_static(graph.value(value).type.shape);
  return are_known ? open_box_of(graph, value) : std::nullopt;
}

}  // namespace mcc::graph
