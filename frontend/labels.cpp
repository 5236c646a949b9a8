// Sequences of maps, whose keys are known when the model is compiled: in the graph they are tensors of numbers, and what these stand for
// is kept beside it (OutputLabels).
#include "frontend/contrib/expansion.h"
#include "frontend/graph_builder.h"

namespace mcc::frontend {

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
  const onnx::AttributeProto& list = node.attribute(0);
  if (list.type() == onnx::AttributeProto::STRINGS) {
    labels.list = std::vector<std::string>(list.strings().begin(), list.strings().end());
  } else {
    labels.list = std::vector<int64_t>(list.ints().begin(), list.ints().end());
  }
  scope.names[node.output(0)] = labelled(numbers.id, std::move(labels));
}

bool Builder::moves_labels(const onnx::NodeProto& node, const Scope& scope) const {
  return node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 &&
         scope.find(node.input(0)).kind == Entry::labelled;
}

void Builder::add_moved_labels(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const Entry operand = scope.find(node.input(0));
  const char* const kNumbers = "labels.numbers";
  Scope inner;
  inner.parent = &scope;
  inner.names[kNumbers] = {Entry::value, operand.id};
  onnx::NodeProto moves = node;
  moves.set_input(0, kNumbers);
  add_node(moves, inner, origin);
  const Entry moved = inner.find(node.output(0));
  scope.names[node.output(0)] = moved.kind == Entry::value ? labelled(moved.id, *operand.labels) : Entry{};
}

void Builder::add_tensor(const std::string& name, const onnx::TensorProto& tensor, const std::string& where,
                         Scope& scope) {
  add_constant(name, reader_.read(tensor, where), scope);
}

void Builder::add_labelled_output(const onnx::ValueInfoProto& output, const Entry& entry) {
  // The numbers may be known under another name, and be an output under that.
  const Entry shown =
      make("Identity", {{Entry::value, entry.id}}, {}, {text("output '", output.name(), "'"), output.name()});
  if (shown.kind != Entry::value) return;
  graph_.value(shown.id).name = output.name();
  graph_.outputs.push_back(shown.id);
  imported_.labels[output.name()] = *entry.labels;
}

}  // namespace mcc::frontend
