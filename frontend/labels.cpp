// Tensors of strings and sequences of maps, whose values are known when the model is compiled: in the graph they are tensors of
// numbers, and what these stand for is kept beside it (OutputLabels).
#include <numeric>

#include "frontend/contrib/expansion.h"
#include "frontend/graph_builder.h"

namespace mcc::frontend {

using graph::Constant;

namespace {

Constant positions(const std::vector<int64_t>& shape, size_t count) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return Constant::of(ElementType::i64, shape, values);
}

}  // namespace

Entry Builder::labelled(graph::ValueId numbers, OutputLabels labels) {
  Entry out;
  out.kind = Entry::labelled;
  out.id = numbers;
  out.labels = std::make_shared<const OutputLabels>(std::move(labels));
  return out;
}

void Builder::add_labels(const onnx::NodeProto& node, Scope& scope) {
  const Entry numbers = scope.find(node.input(0));
  if (numbers.kind != Entry::value) {
    scope.names[node.output(0)] = {};
    return;
  }
  OutputLabels labels;
  labels.kind = node.op_type() == kKeysNode ? OutputLabels::Kind::keys : OutputLabels::Kind::strings;
  const onnx::AttributeProto& list = node.attribute(0);
  if (list.type() == onnx::AttributeProto::STRINGS) {
    labels.list = std::vector<std::string>(list.strings().begin(), list.strings().end());
  } else {
    labels.list = std::vector<int64_t>(list.ints().begin(), list.ints().end());
  }
  scope.names[node.output(0)] = labelled(numbers.id, std::move(labels));
}

bool Builder::moves_labels(const onnx::NodeProto& node, const Scope& scope) const {
  static const std::set<std::string> kMoves = {
      "Identity", "Reshape",   "Squeeze", "Unsqueeze", "Flatten",
      "Gather",   "Transpose", "Slice",   "Expand",    "ArrayFeatureExtractor"};
  if (node.input_size() == 0 || node.output_size() != 1) return false;
  const Entry operand = scope.find(node.input(0));
  if (operand.kind != Entry::labelled) return false;
  if (operand.labels->kind == OutputLabels::Kind::keys) return node.op_type() == "Identity";
  if (kMoves.contains(node.op_type())) return true;
  const onnx::AttributeProto* to = node.op_type() == "Cast" ? find_attribute(node, "to") : nullptr;
  return to && to->i() == onnx::TensorProto::STRING;
}

void Builder::add_moved_labels(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const Entry operand = scope.find(node.input(0));
  const char* const kNumbers = "labels.numbers";
  Scope inner;
  inner.parent = &scope;
  inner.names[kNumbers] = {Entry::value, operand.id};
  onnx::NodeProto moves = node;
  moves.set_input(0, kNumbers);
  if (node.op_type() == "Cast") {
    moves.set_op_type("Identity");
    moves.clear_attribute();
  }
  add_node(moves, inner, origin);
  const Entry moved = inner.find(node.output(0));
  scope.names[node.output(0)] = moved.kind == Entry::value ? labelled(moved.id, *operand.labels) : Entry{};
}

void Builder::add_tensor(const std::string& name, const onnx::TensorProto& tensor, const std::string& where,
                         Scope& scope) {
  if (tensor.data_type() != onnx::TensorProto::STRING)
    return add_constant(name, reader_.read(tensor, where), scope);
  Result<std::vector<std::string>> strings = reader_.read_strings(tensor, where);
  if (!strings.ok()) {
    problems_.insert(problems_.end(), strings.errors().begin(), strings.errors().end());
    scope.names[name] = {};
    return;
  }
  const std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  const graph::ValueId numbers = graph_.add_constant(name, positions(shape, strings->size()));
  scope.names[name] = labelled(numbers, {OutputLabels::Kind::strings, std::move(*strings)});
}

void Builder::add_labelled_output(const onnx::ValueInfoProto& output, const Entry& entry) {
  // The numbers may be known under another name, and be an output under that.
  const Entry shown =
      make("Identity", {{Entry::value, entry.id}}, {}, {text("output '", output.name(), "'"), output.name()});
  if (shown.kind != Entry::value) return;
  graph_.value(shown.id).name = output.name();
  graph_.outputs.push_back(shown.id);
  labels_[output.name()] = *entry.labels;
}

}  // namespace mcc::frontend
