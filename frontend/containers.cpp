// Inputs that are no tensors: tensors in place of a sequence, whose number is given; and what of optional values is there.
#include <algorithm>
#include <set>

#include "frontend/model_prepare.h"
#include "frontend/onnx_tensor.h"

namespace mcc::frontend {

namespace {

// Each of them is an input of the library.
constexpr int64_t kMostTensors = 10'000;

Diagnostic usage(std::string message) { return {ErrorKind::usage, "", std::move(message), ""}; }

std::set<std::string> initialized_names(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& tensor : graph.initializer())
    names.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer())
    names.insert(tensor.values().name());
  return names;
}

const onnx::TypeProto::Tensor* item_type(const onnx::TypeProto& type) {
  const onnx::TypeProto& held = held_type(type);
  if (!is_tensor_sequence(held)) return nullptr;
  return &held.sequence_type().elem_type().tensor_type();
}

// "the model has no input 'x' that is optional; there are: a, b".
std::string has_none(const char* what, const std::string& name, const std::set<std::string>& known) {
  const std::string have = known.empty() ? text("there is none") : text("there are: ", join(known, ", "));
  return text("the model has no input '", name, "' that is ", what, "; ", have);
}

// What is given for the sequence as a whole holds for this tensor of it, unless that has its own.
void pass_on(const std::string& sequence, const std::string& item, const onnx::TypeProto::Tensor& type,
             ImportOptions& options) {
  const auto shape = options.input_shapes.find(sequence);
  if (shape != options.input_shapes.end() && !options.input_shapes.contains(item)) {
    options.input_shapes[item] = shape->second;
    const auto ranges = options.input_ranges.find(sequence);
    if (ranges != options.input_ranges.end()) options.input_ranges[item] = ranges->second;
  }
  for (const auto& dim : type.shape().dim()) {
    if (dim.dim_param().empty()) continue;
    const std::string own = item_dim_name(item, dim.dim_param());
    const bool has_own = options.dims.contains(own) || options.dim_ranges.contains(own);
    if (has_own) continue;
    if (const auto value = options.dims.find(dim.dim_param()); value != options.dims.end())
      options.dims[own] = value->second;
    const auto range = options.dim_ranges.find(dim.dim_param());
    if (range != options.dim_ranges.end()) options.dim_ranges[own] = range->second;
  }
}

struct InputNames {
  std::set<std::string> sequences, optionals;
  std::set<std::string> symbols,
      held_symbols;  // dimensions of tensors; of what sequences have, and optional values that are left out
};

void add_symbols(const onnx::TypeProto::Tensor& type, std::set<std::string>& symbols) {
  for (const auto& dim : type.shape().dim())
    if (!dim.dim_param().empty()) symbols.insert(dim.dim_param());
}

InputNames input_names(const onnx::GraphProto& graph, const ImportOptions& options) {
  InputNames names;
  const std::set<std::string> initialized = initialized_names(graph);
  for (const auto& input : graph.input()) {
    if (initialized.contains(input.name())) continue;
    if (input.type().has_optional_type()) names.optionals.insert(input.name());
    const onnx::TypeProto::Tensor* item = item_type(input.type());
    if (item) names.sequences.insert(input.name());
    const onnx::TypeProto& held = held_type(input.type());
    if (item) add_symbols(*item, names.held_symbols);
    if (held.has_tensor_type())
      add_symbols(held.tensor_type(),
                  options.left_out.contains(input.name()) ? names.held_symbols : names.symbols);
  }
  return names;
}

void check_names(const InputNames& names, const ImportOptions& options, Diagnostics& problems) {
  for (const auto& [name, length] : options.sequence_lengths) {
    const std::string where = text("--sequence-length ", name, "=", length, ": ");
    if (!names.sequences.contains(name))
      problems.push_back(usage(where + has_none("a sequence of tensors", name, names.sequences)));
    else if (length < 0 || length > kMostTensors)
      problems.push_back(usage(text(where, "expected a number from 0 to ", kMostTensors)));
    else if (options.left_out.contains(name))
      problems.push_back(usage(text(where, "the input is left out (--without ", name, ")")));
  }
  for (const std::string& name : options.left_out) {
    const std::string where = text("--without ", name, ": ");
    if (!names.optionals.contains(name))
      problems.push_back(usage(where + has_none("optional", name, names.optionals)));
    else if (options.input_shapes.contains(name) || options.constants.contains(name))
      problems.push_back(usage(text(where, "what is left out has neither a shape nor a value")));
  }
}

// Names of the graph that a tensor of a sequence must not have.
std::set<std::string> taken_names(const onnx::GraphProto& graph) {
  std::set<std::string> names = initialized_names(graph);
  for (const auto& input : graph.input())
    names.insert(input.name());
  for (const auto& node : graph.node())
    names.insert(node.output().begin(), node.output().end());
  return names;
}

onnx::NodeProto make_node(const char* type, const std::string& output) {
  onnx::NodeProto node;
  node.set_op_type(type);
  node.set_name(output);
  node.add_output(output);
  return node;
}

onnx::NodeProto nothing(const onnx::ValueInfoProto& input) {
  onnx::NodeProto node = make_node("Optional", input.name());
  onnx::AttributeProto& type = *node.add_attribute();
  type.set_name("type");
  type.set_type(onnx::AttributeProto::TYPE_PROTO);
  *type.mutable_tp() = held_type(input.type());
  return node;
}

onnx::NodeProto empty_sequence(const std::string& name, int element) {
  onnx::NodeProto node = make_node("SequenceEmpty", name);
  onnx::AttributeProto& type = *node.add_attribute();
  type.set_name("dtype");
  type.set_type(onnx::AttributeProto::INT);
  type.set_i(element);
  return node;
}

onnx::ValueInfoProto item_input(const std::string& name, const onnx::TypeProto::Tensor& type) {
  onnx::ValueInfoProto item;
  item.set_name(name);
  *item.mutable_type()->mutable_tensor_type() = type;
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    auto& dim = *item.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(i);
    // Tensors of a sequence may be of different sizes.
    if (!dim.dim_param().empty()) dim.set_dim_param(item_dim_name(name, dim.dim_param()));
  }
  return item;
}

}  // namespace

std::string item_name(const std::string& sequence, int64_t i) { return text(sequence, "[", i, "]"); }

std::string item_dim_name(const std::string& item, const std::string& dim) { return text(item, ".", dim); }

ImportOptions divide_options(const onnx::GraphProto& graph, ImportOptions options, Diagnostics& problems) {
  const InputNames names = input_names(graph, options);
  check_names(names, options, problems);
  if (!problems.empty()) return options;
  for (const auto& input : graph.input()) {
    const auto length = options.sequence_lengths.find(input.name());
    const onnx::TypeProto::Tensor* type = item_type(input.type());
    if (!type || !names.sequences.contains(input.name())) continue;
    for (int64_t i = 0; length != options.sequence_lengths.end() && i < length->second; ++i)
      pass_on(input.name(), item_name(input.name(), i), *type, options);
    options.input_shapes.erase(input.name());
    options.input_ranges.erase(input.name());
  }
  // What no tensor has is no named dimension any more.
  for (const std::string& symbol : names.held_symbols) {
    if (names.symbols.contains(symbol)) continue;
    options.dims.erase(symbol);
    options.dim_ranges.erase(symbol);
  }
  return options;
}

std::map<std::string, Container> input_containers(const onnx::GraphProto& graph,
                                                  const ImportOptions& options) {
  std::map<std::string, Container> containers;
  const InputNames names = input_names(graph, options);
  for (const std::string& name : names.sequences) {
    const auto length = options.sequence_lengths.find(name);
    if (length != options.sequence_lengths.end()) containers[name].length = length->second;
  }
  for (const std::string& name : names.optionals) {
    containers[name].is_optional = true;
    containers[name].holds = !options.left_out.contains(name);
  }
  return containers;
}

void divide_inputs(onnx::GraphProto& graph, const ImportOptions& options, Diagnostics& problems) {
  const std::set<std::string> initialized = initialized_names(graph), taken = taken_names(graph);
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> inputs;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (onnx::ValueInfoProto& input : *graph.mutable_input()) {
    const std::string where = text("input '", input.name(), "'");
    const onnx::TypeProto::Tensor* type = item_type(input.type());
    const bool is_optional = input.type().has_optional_type();
    if (options.left_out.contains(input.name()) && is_optional) {
      *nodes.Add() = nothing(input);
      continue;
    }
    const auto length = options.sequence_lengths.find(input.name());
    if (!type || initialized.contains(input.name())) {
      *inputs.Add() = input;
    } else if (length == options.sequence_lengths.end()) {
      problems.push_back(
          {ErrorKind::unsupported, where, "is a sequence, whose number of tensors has to be known",
           text("give it, for example --sequence-length ", input.name(), "=2",
                is_optional ? text(", or leave the input out, --without ", input.name()) : "")});
      *inputs.Add() = input;
    } else {
      onnx::NodeProto sequence = length->second == 0 ? empty_sequence(input.name(), type->elem_type())
                                                     : make_node("SequenceConstruct", input.name());
      for (int64_t i = 0; i < length->second; ++i) {
        const std::string item = item_name(input.name(), i);
        if (taken.contains(item)) {
          problems.push_back({ErrorKind::unsupported, where,
                              text("is a sequence, and the name of its tensor '", item, "' is taken"),
                              "rename what has that name"});
        }
        *inputs.Add() = item_input(item, *type);
        sequence.add_input(item);
      }
      *nodes.Add() = std::move(sequence);
    }
  }
  graph.mutable_input()->Swap(&inputs);
  for (onnx::NodeProto& node : *graph.mutable_node())
    *nodes.Add() = std::move(node);
  graph.mutable_node()->Swap(&nodes);
}

}  // namespace mcc::frontend
