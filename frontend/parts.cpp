// Nodes that the builder makes itself, for what other nodes stand for.
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

Entry Builder::make(const std::string& type, const std::vector<Entry>& inputs, const Attribute& attribute, const Origin& origin) {
  Scope scope;
  onnx::NodeProto node;
  node.set_op_type(type);
  for (const Entry& input : inputs) {
    const std::string name = text("input_", node.input_size());
    scope.names[name] = input;
    node.add_input(name);
  }
  if (!attribute.name.empty()) *node.add_attribute() = onnx::MakeAttribute(attribute.name, attribute.value);
  node.add_output(text(origin.name, ".", type));
  add_node(node, scope, origin);
  return scope.find(node.output(0));
}

Entry Builder::concatenate(const std::vector<Entry>& parts, int64_t axis, const Origin& origin) {
  return make("Concat", parts, {"axis", axis}, origin);
}

Entry Builder::stack(const std::vector<Entry>& parts, int64_t axis, const Origin& origin) {
  std::vector<Entry> rows;
  const Entry axes = make_constant(Constant::ints({axis}), text(origin.name, ".axis"));
  for (const Entry& part : parts) {
    if (part.kind == Entry::absent || part.kind == Entry::sequence || part.kind == Entry::labelled)
      report(ErrorKind::bad_input, origin.where, "expected tensors to put together");
    if (part.kind != Entry::value) return {};
    rows.push_back(make("Unsqueeze", {part, axes}, {}, origin));
    if (rows.back().kind != Entry::value) return {};
  }
  return concatenate(rows, axis, origin);
}

Entry Builder::slice(const Entry& operand, int64_t axis, int64_t begin, int64_t end, const Origin& origin) {
  const std::string name = text(origin.name, ".slice");
  const Entry from = make_constant(Constant::ints({begin}), name), to = make_constant(Constant::ints({end}), name);
  return make("Slice", {operand, from, to, make_constant(Constant::ints({axis}), name)}, {}, origin);
}

Entry Builder::slice_at(const Entry& operand, int64_t axis, int64_t position, const Origin& origin) {
  const Entry row = slice(operand, axis, position, position + 1, origin);
  if (row.kind != Entry::value) return {};
  return make("Squeeze", {row, make_constant(Constant::ints({axis}), text(origin.name, ".axis"))}, {}, origin);
}

}  // namespace mcc::frontend
