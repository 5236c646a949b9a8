#include "graph/passes/aliases.h"

#include <map>

#include "graph/op.h"
#include "graph/passes/box.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: what kernels assume of their parameters

using Ints = std::vector<int64_t>;

int64_t bytes_of_type(const TensorType& type) { return static_count(type.shape) * byte_size(type.element); }

// Whether a box of these extents is one piece of a tensor: one element along the first axes, whole along the last ones.
bool is_one_piece(const Ints& extents, const Ints& steps, const Ints& whole) {
  size_t axis = 0;
  while (axis < extents.size() && extents[axis] == 1)
    ++axis;
  if (axis < extents.size() && steps[axis] != 1) return false;
  for (size_t d = axis + 1; d < extents.size(); ++d) {
    if (extents[d] != whole[d] || steps[d] != 1) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> piece_offset(const Graph& graph, ValueId part) {
  const std::optional<Box> box = box_of(graph, part);
  if (!box) return std::nullopt;
  const Node& node = graph.node(graph.value(part).producer);
  const TensorType& type = graph.value(part).type;
  const Ints whole = static_shape(graph.value(node.inputs[0]).type.shape), extents = static_shape(type.shape);
  if (static_count(type.shape) == 0 || !is_one_piece(extents, box->steps, whole)) return std::nullopt;
  int64_t offset = 0;
  for (size_t d = 0; d < whole.size(); ++d)
    offset = offset * whole[d] + box->starts[d];
  offset *= byte_size(type.element);
  if (offset % kAlignment != 0) return std::nullopt;
  return offset;
}

bool joins_pieces(const Graph& graph, const Node& concat) {
  if (!is_op(concat, "Concat") || !is_static(graph.value(concat.outputs[0]).type.shape)) return false;
  const Ints whole = static_shape(graph.value(concat.outputs[0]).type.shape);
  int64_t offset = 0;
  for (ValueId v : concat.inputs) {
    const TensorType& type = graph.value(v).type;
    if (!is_static(type.shape) || static_count(type.shape) == 0 || offset % kAlignment != 0) return false;
    if (!is_one_piece(static_shape(type.shape), Ints(whole.size(), 1), whole)) return false;
    offset += bytes_of_type(type);
  }
  return true;
}

Aliases::Aliases(const Graph& graph, const std::vector<KernelGroup>& groups) : g_(graph) {
  for (const KernelGroup& group : groups) {
    if (group.kind == KernelGroup::Kind::view) add_view(group.nodes[0]);
  }
  for (const KernelGroup& group : groups) {
    if (group.kind == KernelGroup::Kind::join) MCC_CHECK(add_join(group.nodes[0]), "operands of a join lie elsewhere");
  }
}

int64_t Aliases::bytes_of(ValueId v) const { return bytes_of_type(g_.value(v).type); }

Aliases::Alias Aliases::of(ValueId v) const {
  int64_t offset = 0;
  for (;;) {
    const NodeId producer = g_.value(v).producer;
    if (auto joined = joined_.find(v); joined != joined_.end()) {
      offset += joined->second.offset;
      v = joined->second.owner;
    } else if (producer >= 0 && views_.count(producer) != 0) {
      const Node& view = g_.node(producer);
      if (!view.op->is_view) offset += *piece_offset(g_, v);
      v = view.inputs[0];
    } else {
      return {v, offset};
    }
  }
}

bool Aliases::add_join(NodeId concat) {
  const Node& node = g_.node(concat);
  if (!joins_pieces(g_, node)) return false;
  struct Placed {
    int64_t offset, bytes;  // in the result; as much of the owner as it holds
  };
  std::map<ValueId, Placed> owners;
  int64_t at = 0;
  for (ValueId v : node.inputs) {
    const Alias alias = of(v);
    auto [owner, is_new] = owners.try_emplace(alias.owner, Placed{at - alias.offset, 0});
    if (owner->second.offset != at - alias.offset) return false;
    owner->second.bytes += bytes_of(v);
    at += bytes_of(v);
  }
  for (const auto& [owner, placed] : owners) {
    if (g_.value(owner).producer < 0 || g_.value(owner).constant || g_.is_output(owner)) return false;
    if (placed.offset < 0 || placed.bytes != bytes_of(owner)) return false;
  }
  for (const auto& [owner, placed] : owners)
    joined_[owner] = {node.outputs[0], placed.offset};
  return true;
}

}  // namespace mcc::graph
