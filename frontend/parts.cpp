// Nodes that the builder makes itself, for what other nodes stand for.
#include <algorithm>

#include "frontend/graph_builder.h"
#include "onnx/defs/attr_proto_util.h"

namespace mcc::frontend {

using graph::Constant;

Origin part_of(const onnx::NodeProto& node, const Origin& origin) {
  return {where_of(node, origin), origin.name.empty() ? name_of(node) : origin.name, origin.depth + 1};
}

const Constant* Builder::known(const Entry& entry) const {
  if (entry.kind != Entry::value || tainted_.contains(entry.id)) return nullptr;
  const std::optional<Constant>& constant = graph_.value(entry.id).constant;
  return constant ? &*constant : nullptr;
}

bool Builder::is_reported(const Entry& entry) const { return entry.kind == Entry::unknown || tainted_.contains(entry.id); }

Entry Builder::make_constant(Constant value, const std::string& name) {
  return {Entry::value, graph_.add_constant(name, std::move(value))};
}

Entry Builder::make(const std::string& type, const std::vector<Entry>& inputs, std::optional<int64_t> axis, const Origin& origin) {
  Scope scope;
  onnx::NodeProto node;
  node.set_op_type(type);
  for (const Entry& input : inputs) {
    const std::string name = text("input_", node.input_size());
    scope.names[name] = input;
    node.add_input(name);
  }
  if (axis) *node.add_attribute() = onnx::MakeAttribute("axis", *axis);
  node.add_output(text(origin.name, ".", type));
  add_node(node, scope, origin);
  return scope.find(node.output(0));
}

Entry Builder::concatenate(std::vector<Entry> parts, int64_t axis, const Origin& origin) {
  // A kernel of a GPU takes so many operands.
  constexpr size_t kMostOperands = 256;
  while (parts.size() > 1) {
    std::vector<Entry> joined;
    for (size_t i = 0; i < parts.size(); i += kMostOperands) {
      const std::vector<Entry> some(parts.begin() + static_cast<std::ptrdiff_t>(i),
                                    parts.begin() + static_cast<std::ptrdiff_t>(std::min(i + kMostOperands, parts.size())));
      joined.push_back(some.size() == 1 ? some[0] : make("Concat", some, axis, origin));
      if (joined.back().kind != Entry::value) return {};
    }
    parts = std::move(joined);
  }
  return parts[0];
}

Entry Builder::stack(const std::vector<Entry>& parts, int64_t axis, const Origin& origin) {
  std::vector<Entry> rows;
  const Entry axes = make_constant(Constant::ints({axis}), text(origin.name, ".axis"));
  for (const Entry& part : parts) {
    if (part.kind == Entry::absent || part.kind == Entry::sequence)
      report(ErrorKind::bad_input, origin.where, "expected tensors to put together");
    if (part.kind != Entry::value) return {};
    rows.push_back(make("Unsqueeze", {part, axes}, std::nullopt, origin));
    if (rows.back().kind != Entry::value) return {};
  }
  return concatenate(std::move(rows), axis, origin);
}

Entry Builder::slice(const Entry& operand, int64_t axis, int64_t begin, int64_t end, const Origin& origin) {
  const std::string name = text(origin.name, ".slice");
  const Entry from = make_constant(Constant::ints({begin}), name), to = make_constant(Constant::ints({end}), name);
  return make("Slice", {operand, from, to, make_constant(Constant::ints({axis}), name)}, std::nullopt, origin);
}

Entry Builder::slice_at(const Entry& operand, int64_t axis, int64_t position, const Origin& origin) {
  const Entry row = slice(operand, axis, position, position + 1, origin);
  if (row.kind != Entry::value) return {};
  return make("Squeeze", {row, make_constant(Constant::ints({axis}), text(origin.name, ".axis"))}, std::nullopt, origin);
}

}  // namespace mcc::frontend
