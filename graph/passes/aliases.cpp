#include "graph/passes/aliases.h"

#include <map>

#include "graph/op.h"
#include "graph/passes/box.h"
#include "graph/passes/rewrite.h"
#include "tensor/kernel_abi.h"

namespace mcc::graph {
namespace {

constexpr int64_t kVector = 8;  // elements that a thread moves at once

using Ints = std::vector<int64_t>;
using tensor::kBufferAlignment;

// Of images and volumes with their channels last (Layout::channels_last).
bool is_rank_of_images(size_t rank) { return rank == 5 || rank == 6; }

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

// What a join consists of: the operands of a Concat; or, where a result of the model is another value in a different shape, that value.
std::vector<ValueId> pieces_of(const Graph& graph, const Node& node) {
  if (is_op(node, "Concat")) return node.inputs;
  if (node.op->is_view && graph.is_output(node.outputs[0])) return {node.inputs[0]};
  return {};
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
  if (offset % kBufferAlignment != 0) return std::nullopt;
  return offset;
}

bool joins_pieces(const Graph& graph, const Node& node) {
  const std::vector<ValueId> pieces = pieces_of(graph, node);
  if (pieces.empty() || !is_static(graph.value(node.outputs[0]).type.shape)) return false;
  const Ints whole = static_shape(graph.value(node.outputs[0]).type.shape);
  int64_t offset = 0;
  for (ValueId v : pieces) {
    const TensorType& type = graph.value(v).type;
    if (!is_static(type.shape) || static_count(type.shape) == 0 || offset % kBufferAlignment != 0) return false;
    if (!node.op->is_view && !is_one_piece(static_shape(type.shape), Ints(whole.size(), 1), whole)) return false;
    offset += bytes_of_type(type);
  }
  return true;
}

std::optional<RowPart> row_part(const Graph& graph, ValueId part) {
  const std::optional<Box> box = box_of(graph, part);
  if (!box) return std::nullopt;
  const Node& node = graph.node(graph.value(part).producer);
  const Ints whole = static_shape(graph.value(node.inputs[0]).type.shape), extents = static_shape(graph.value(part).type.shape);
  if (!is_rank_of_images(extents.size()) || static_count(graph.value(part).type.shape) == 0 || box->steps.back() != 1) return std::nullopt;
  if (!std::equal(whole.begin(), whole.end() - 1, extents.begin())) return std::nullopt;
  for (size_t d = 0; d + 1 < whole.size(); ++d) {
    if (box->steps[d] != 1) return std::nullopt;
  }
  const RowPart rows{whole.back(), box->starts.back()};
  const bool is_aligned = rows.pitch % kVector == 0 && rows.first % kVector == 0 && extents.back() % kVector == 0;
  return is_aligned ? std::optional(rows) : std::nullopt;
}

bool joins_rows(const Graph& graph, const Node& concat) {
  if (!is_op(concat, "Concat") || !is_static(graph.value(concat.outputs[0]).type.shape)) return false;
  const Ints whole = static_shape(graph.value(concat.outputs[0]).type.shape);
  return is_rank_of_images(whole.size()) && std::all_of(concat.inputs.begin(), concat.inputs.end(), [&](ValueId v) {
    const TensorType& type = graph.value(v).type;
    if (!is_static(type.shape) || static_count(type.shape) == 0) return false;
    const Ints own = static_shape(type.shape);
    return std::equal(whole.begin(), whole.end() - 1, own.begin()) && own.back() % kVector == 0;
  });
}

bool may_lie_in_rows(const Graph& graph, ValueId v, const std::vector<NodeId>& users) {
  return !graph.is_output(v) && std::none_of(users.begin(), users.end(), [&](NodeId id) {
    const Node& node = graph.node(id);
    return node.op->is_view || is_op(node, "Slice") || is_op(node, "Split") || node.op->fusion == FusionClass::host;
  });
}

Aliases::Aliases(const Graph& graph, const std::vector<KernelGroup>& groups) : Aliases(graph) {
  for (const KernelGroup& group : groups) {
    if (group.kind == KernelGroup::Kind::view) add_view(group.nodes[0]);
  }
  for (const KernelGroup& group : groups) {
    if (group.kind != KernelGroup::Kind::join) continue;
    MCC_CHECK(add_join(group.nodes[0]) || add_row_join(group.nodes[0]), "operands of a join lie elsewhere");
  }
}

int64_t Aliases::bytes_of(ValueId v) const { return bytes_of_type(g_.value(v).type); }

Aliases::Alias Aliases::of(ValueId v) const {
  int64_t offset = 0;
  RowPart rows;
  auto narrow = [&](const RowPart& part) { rows = {part.pitch, rows.first + part.first}; };
  for (;;) {
    const NodeId producer = g_.value(v).producer;
    if (auto joined = joined_.find(v); joined != joined_.end()) {
      offset += joined->second.offset;
      if (joined->second.rows.pitch != 0) narrow(joined->second.rows);
      v = joined->second.owner;
    } else if (producer >= 0 && views_.count(producer) != 0) {
      const Node& view = g_.node(producer);
      if (!view.op->is_view) {
        const std::optional<int64_t> piece = piece_offset(g_, v);
        if (piece) offset += *piece;
        if (!piece) narrow(*row_part(g_, v));
      }
      v = view.inputs[0];
    } else {
      return {v, offset, rows};
    }
  }
}

bool Aliases::add_join(NodeId id) {
  const Node& node = g_.node(id);
  if (!joins_pieces(g_, node)) return false;
  struct Placed {
    int64_t offset, bytes;  // in the result; as much of the owner as it holds
  };
  std::map<ValueId, Placed> owners;
  int64_t at = 0;
  for (ValueId v : pieces_of(g_, node)) {
    const Alias alias = of(v);
    if (alias.rows.pitch != 0) return false;
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

bool Aliases::add_row_join(NodeId concat) {
  const Node& node = g_.node(concat);
  if (!joins_rows(g_, node)) return false;
  struct Placed {
    int64_t first, width;  // in the result's rows; as much of the owner's as it holds
  };
  std::map<ValueId, Placed> owners;
  int64_t at = 0;
  auto row_of = [&](ValueId v) { return static_shape(g_.value(v).type.shape).back(); };
  for (ValueId v : node.inputs) {
    const Alias alias = of(v);
    const bool are_its_rows = alias.offset == 0 && (alias.rows.pitch == 0 ? row_of(v) : alias.rows.pitch) == row_of(alias.owner);
    if (!are_its_rows) return false;
    auto [owner, is_new] = owners.try_emplace(alias.owner, Placed{at - alias.rows.first, 0});
    if (owner->second.first != at - alias.rows.first) return false;
    owner->second.width += row_of(v);
    at += row_of(v);
  }
  for (const auto& [owner, placed] : owners) {
    if (placed.first < 0 || placed.width != row_of(owner) || !may_become_rows(owner)) return false;
  }
  for (const auto& [owner, placed] : owners)
    joined_[owner] = {node.outputs[0], 0, {at, placed.first}};
  return true;
}

// Whether all that lies in the value does so in its rows, and is read by kernels alone.
bool Aliases::may_become_rows(ValueId owner) const {
  if (g_.value(owner).producer < 0 || g_.value(owner).constant || g_.is_output(owner)) return false;
  for (const auto& [v, alias] : joined_) {
    if (alias.owner == owner && alias.rows.pitch == 0) return false;
  }
  const int64_t row = static_shape(g_.value(owner).type.shape).back();
  for (NodeId id : users_[static_cast<size_t>(owner)]) {
    const Node& user = g_.node(id);
    if (user.op->fusion == FusionClass::host) return false;
    if (views_.count(id) == 0) continue;
    for (ValueId part : user.outputs) {
      if (part == kNoValue) continue;
      const bool is_of_rows = user.op->is_view ? static_shape(g_.value(part).type.shape).back() == row : !piece_offset(g_, part);
      if (!is_of_rows || !may_become_rows(part)) return false;
    }
  }
  return true;
}

}  // namespace mcc::graph
