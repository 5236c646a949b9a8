#include <algorithm>
#include <set>

#include "frontend/model_prepare.h"
#include "frontend/onnx_tensor.h"

namespace mcc::frontend {

namespace {

using Dim = onnx::TensorShapeProto::Dimension;

void drop_initialized_inputs(onnx::GraphProto& graph) {
  std::set<std::string> initialized;
  for (const auto& tensor : graph.initializer())
    initialized.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer())
    initialized.insert(tensor.values().name());
  auto& inputs = *graph.mutable_input();
  inputs.erase(std::remove_if(inputs.begin(), inputs.end(),
                              [&](const auto& input) { return initialized.count(input.name()) != 0; }),
               inputs.end());
}

// An optional tensor is taken to be there: then it is a tensor.
void take_optional_tensors(onnx::GraphProto& graph) {
  for (auto& input : *graph.mutable_input()) {
    const onnx::TypeProto held = held_type(input.type());
    if (input.type().has_optional_type() && held.has_tensor_type()) *input.mutable_type() = held;
  }
}

// What exporters write in place of a name or a size says nothing, not even of two dimensions that have it.
void drop_placeholders(onnx::GraphProto& graph) {
  for (auto& input : *graph.mutable_input()) {
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape()) continue;
    for (Dim& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
      const bool is_number_of_none = dim.has_dim_value() && dim.dim_value() < 0;
      if (is_number_of_none || (dim.has_dim_param() && !has_name(dim))) dim.clear_value();
    }
  }
}

Diagnostic usage(std::string message) { return {ErrorKind::usage, "", std::move(message), ""}; }

std::string shape_option(const std::vector<int64_t>& shape) { return join(shape, "x"); }

// Values of the named dimensions: those given by --dim, and those that follow from given shapes.
class DimValues {
 public:
  DimValues(const ImportOptions& options, Diagnostics& problems) : problems_(problems) {
    for (const auto& [name, value] : options.dims) {
      if (value < 0)
        problems_.push_back(usage(text("--dim ", name, "=", value, ": a dimension is not negative")));
      values_[name] = value;
    }
  }

  // Whether it has no other value.
  bool bind(const std::string& name, int64_t value, const std::string& input) {
    auto [known, fresh] = values_.emplace(name, value);
    if (!fresh && known->second != value) {
      problems_.push_back(usage(text("dimension '", name, "' is ", value, " in the shape given for input '",
                                     input, "', but ", known->second, " elsewhere")));
    }
    return known->second == value;
  }

  std::optional<int64_t> find(const std::string& name) const {
    auto known = values_.find(name);
    return known == values_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  Diagnostics& problems_;
  std::map<std::string, int64_t> values_;
};

void drop_names(onnx::TypeProto& type, const std::set<std::string>& names) {
  if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return;
  for (Dim& dim : *type.mutable_tensor_type()->mutable_shape()->mutable_dim())
    if (dim.has_dim_param() && names.contains(dim.dim_param())) dim.clear_value();
}

bool is_open(const ImportOptions& options, const std::string& input, size_t axis) {
  const auto ranges = options.input_ranges.find(input);
  return ranges != options.input_ranges.end() && ranges->second.count(axis) != 0;
}

// What costs and schedules are made for where nothing is said: a batch of few, lengths of some hundred, and heights and widths of images
// as networks for these mostly have them. More channels than a picture's colours are those of a latent image, or of another network.
int64_t usual_size(size_t axis, const onnx::TensorShapeProto& shape) {
  constexpr int64_t kColours = 3;
  if (axis == 0) return 4;
  if (shape.dim_size() != 4 || axis < 2) return 128;
  return shape.dim(1).has_dim_value() && shape.dim(1).dim_value() > kColours ? 64 : 224;
}

std::vector<int64_t> given_shape(const onnx::ValueInfoProto& input, const ImportOptions& options,
                                 bool* given) {
  auto constant = options.constants.find(input.name());
  auto shape = options.input_shapes.find(input.name());
  *given = true;
  if (constant != options.constants.end()) return constant->second.shape();
  if (shape != options.input_shapes.end()) return shape->second;
  *given = false;
  return {};
}

// The sizes that the shape given for an input has for each name of its dimensions; kOpenDim for a range.
std::map<std::string, std::set<int64_t>> named_sizes(const onnx::ValueInfoProto& input,
                                                     const ImportOptions& options) {
  std::map<std::string, std::set<int64_t>> sizes;
  bool given = false;
  const std::vector<int64_t> shape = given_shape(input, options, &given);
  const auto& dims = input.type().tensor_type().shape().dim();
  if (!given || dims.size() != static_cast<int>(shape.size())) return sizes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (const Dim& dim = dims[static_cast<int>(i)]; has_name(dim)) sizes[dim.dim_param()].insert(shape[i]);
  return sizes;
}

// Exporters give tensors of different sizes the same names ("height" of a picture and of a smaller one). Where the shapes given for
// inputs say so, such a name says nothing, nor do those beside it that have ranges; --dim says that a name does.
void drop_contradicted_names(onnx::GraphProto& graph, const ImportOptions& options, NameDoubts& doubts) {
  const auto is_trusted = [&](const std::string& name) {
    return options.dims.contains(name) || options.dim_ranges.contains(name);
  };
  DimValues first(ImportOptions(), doubts.problems);
  std::set<std::string> contradicted;
  for (const auto& input : graph.input()) {
    for (const auto& [name, given] : named_sizes(input, options)) {
      for (const int64_t size : given) {
        if (size != kOpenDim && !is_trusted(name) && !first.bind(name, size, input.name()))
          contradicted.insert(name);
      }
    }
  }
  if (contradicted.empty()) return;
  std::set<std::string> dropped = contradicted;
  for (const auto& input : graph.input()) {
    const auto named = named_sizes(input, options);
    if (std::none_of(named.begin(), named.end(),
                     [&](const auto& entry) { return contradicted.contains(entry.first); }))
      continue;
    for (const auto& [name, given] : named)
      if (given.contains(kOpenDim) && !is_trusted(name)) dropped.insert(name);
  }
  doubts.note = text("the model gives dimensions of different sizes the same names, which are not used: ",
                     join(dropped, ", "));
  for (auto* values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
    for (auto& value : *values)
      drop_names(*value.mutable_type(), dropped);
}

// Writes a shape given for the input into its type.
void apply_given(onnx::ValueInfoProto& input, const std::vector<int64_t>& shape, const ImportOptions& options, DimValues& dims,
                 Diagnostics& problems) {
  auto& type = *input.mutable_type()->mutable_tensor_type();
  const bool declared = type.has_shape();
  if (declared && type.shape().dim_size() != static_cast<int>(shape.size())) {
    problems.push_back(
        usage(text("the shape ", shape_option(shape), " given for input '", input.name(), "' has ",
                   shape.size(), " dimensions; the model has ", type.shape().dim_size())));
    return;
  }
  auto* target = type.mutable_shape();
  for (size_t i = 0; i < shape.size(); ++i) {
    Dim* dim = declared ? target->mutable_dim(static_cast<int>(i)) : target->add_dim();
    if (is_open(options, input.name(), i)) {
      if (dim->has_dim_value()) {
        problems.push_back(usage(text("dimension ", i, " of input '", input.name(), "' is ", dim->dim_value(),
                                      " in the model, and can have no other size")));
      } else if (!has_name(*dim)) {
        dim->set_dim_param(open_dim_name(input.name(), i));
      }
      continue;
    }
    if (shape[i] < 0) {
      problems.push_back(usage(
          text("the shape given for input '", input.name(), "' has the negative dimension ", shape[i])));
    } else if (dim->has_dim_value() && dim->dim_value() != shape[i]) {
      problems.push_back(usage(text("dimension ", i, " of input '", input.name(), "' is ", dim->dim_value(),
                                    " in the model, not ", shape[i])));
      continue;
    }
    if (has_name(*dim))
      dims.bind(dim->dim_param(), shape[i], input.name());
    dim->set_dim_value(shape[i]);
  }
}

void substitute_dims(onnx::TypeProto* type, const DimValues& dims) {
  if (!type->has_tensor_type() || !type->tensor_type().has_shape()) return;
  for (auto& dim : *type->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
    if (!dim.has_dim_param()) continue;
    if (auto value = dims.find(dim.dim_param())) dim.set_dim_value(*value);
  }
}

bool has_value(const Dim& dim) { return dim.has_dim_value() && dim.dim_value() >= 0; }

// Sizes for the dimensions that have neither a value nor a range.
void bind_others(onnx::ValueInfoProto& input, const ImportOptions& options) {
  if (!options.other_dims) return;
  const graph::DimRange& sizes = *options.other_dims;
  auto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
  for (int i = 0; i < shape.dim_size(); ++i) {
    Dim& dim = *shape.mutable_dim(i);
    const auto axis = static_cast<size_t>(i);
    if (has_value(dim) || given_range(options, input.name(), axis, dim.dim_param())) continue;
    if (sizes.min == sizes.max)
      dim.set_dim_value(sizes.min);
    else if (!has_name(dim))
      dim.set_dim_param(open_dim_name(input.name(), axis));
  }
}

// One diagnostic that names every open dimension of the input and the option that closes it.
void report_open_dims(const onnx::ValueInfoProto& input, const ImportOptions& options, Diagnostics& problems) {
  const std::string where = text("input '", input.name(), "'");
  const auto& type = input.type().tensor_type();
  if (!type.has_shape()) {
    problems.push_back({ErrorKind::unsupported, where, "has no shape",
                        text("give it one, for example --input-shape ", input.name(), "=1x3x224x224")});
    return;
  }
  std::vector<std::string> open, given, example;
  bool nameless = false;
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const Dim& dim = type.shape().dim(i);
    const bool known = has_value(dim) || options.other_dims ||
                       given_range(options, input.name(), static_cast<size_t>(i), dim.dim_param());
    example.push_back(known && dim.has_dim_value() ? std::to_string(dim.dim_value()) : "1");
    if (known) continue;
    const bool named = has_name(dim);
    nameless |= !named;
    open.push_back(named ? text(i, " ('", dim.dim_param(), "')") : std::to_string(i));
    const std::string option = text("--dim ", dim.dim_param(), "=1");
    if (named && std::find(given.begin(), given.end(), option) == given.end())
      given.push_back(option);
  }
  if (open.empty()) return;
  const std::string shape = text("--input-shape ", input.name(), "=", join(example, "x"));
  problems.push_back({ErrorKind::unsupported, where,
                      open.size() == 1 ? text("dimension ", open[0], " has no value")
                                       : text("dimensions ", join(open, ", "), " have no value"),
                      nameless ? text("give its shape, for example ", shape)
                               : text("give values, for example ", join(given, " "), ", or ", shape)});
}

// Larger inputs are refused here: ONNX's inference walks over what it takes for a shape, element by element.
bool check_size(const onnx::ValueInfoProto& input, Diagnostics& problems) {
  constexpr int64_t kMostElements = int64_t{1} << 40;
  int64_t count = 1;
  bool large = false;
  for (const Dim& dim : input.type().tensor_type().shape().dim()) {
    if (!dim.has_dim_value() || dim.dim_value() <= 0) continue;
    large |= __builtin_mul_overflow(count, dim.dim_value(), &count) || count >= kMostElements;
  }
  if (!large) return true;
  problems.push_back({ErrorKind::unsupported, text("input '", input.name(), "'"), "is too large", ""});
  return false;
}

void check_option_names(const onnx::GraphProto& graph, const ImportOptions& options, Diagnostics& problems) {
  std::set<std::string> inputs, symbols;
  for (const auto& input : graph.input()) {
    inputs.insert(input.name());
    for (const auto& dim : input.type().tensor_type().shape().dim())
      if (dim.has_dim_param()) symbols.insert(dim.dim_param());
  }
  auto check = [&](const std::string& name, const char* what, const std::set<std::string>& known) {
    if (known.count(name)) return;
    const std::string have = known.empty() ? text("there is none") : text("there are: ", join(known, ", "));
    problems.push_back(usage(text("the model has no ", what, " '", name, "'; ", have)));
  };
  for (const auto& [name, shape] : options.input_shapes)
    check(name, "input", inputs);
  for (const auto& [name, value] : options.constants)
    check(name, "input", inputs);
  for (const auto& [name, value] : options.numbers)
    check(name, "input", inputs);
  for (const auto& [name, value] : options.dims)
    check(name, "named dimension", symbols);
  for (const auto& [name, range] : options.dim_ranges)
    check(name, "named dimension", symbols);
}

}  // namespace

bool has_name(const onnx::TensorShapeProto::Dimension& dim) {
  return dim.has_dim_param() && !dim.dim_param().empty() && dim.dim_param() != "?" && dim.dim_param() != "-1";
}

std::string open_dim_name(const std::string& input, size_t axis) { return text(input, ".", axis); }

std::optional<graph::DimRange> given_range(const ImportOptions& options, const std::string& input,
                                           size_t axis, const std::string& name) {
  if (is_open(options, input, axis)) return options.input_ranges.at(input).at(axis);
  const auto named = options.dim_ranges.find(name);
  return named == options.dim_ranges.end() ? std::nullopt : std::optional(named->second);
}

std::optional<graph::DimRange> other_range(const ImportOptions& options, size_t axis,
                                           const onnx::TensorShapeProto& shape, bool may_be_empty) {
  std::optional<graph::DimRange> range = options.other_dims;
  if (!range || range->has_bound()) return range;
  range->typical = usual_size(axis, shape);
  if (may_be_empty) range->min = 0;
  return range;
}

namespace {

// Whether the input's shape, or that of each of its tensors, is given.
bool has_given_shape(const DeclaredTensor& input, const ImportOptions& options) {
  const auto is_given = [&](const std::string& name) {
    return options.input_shapes.contains(name) || options.constants.contains(name) ||
           options.numbers.contains(name);
  };
  if (is_given(input.name) || options.left_out.contains(input.name)) return true;
  const auto length = options.sequence_lengths.find(input.name);
  if (!input.is_sequence || length == options.sequence_lengths.end()) return false;
  for (int64_t i = 0; i < length->second; ++i)
    if (!is_given(item_name(input.name, i))) return false;
  return true;
}

// Whether the dimension, or that of each tensor of the input, has a value or a range by its name.
bool has_given_size(const DeclaredTensor& input, size_t axis, const ImportOptions& options) {
  const std::string& symbol = input.symbols[axis];
  if (options.dims.contains(symbol) || given_range(options, input.name, axis, symbol)) return true;
  const auto length = options.sequence_lengths.find(input.name);
  if (!input.is_sequence || length == options.sequence_lengths.end() || symbol.empty()) return false;
  for (int64_t i = 0; i < length->second; ++i) {
    const std::string own = item_dim_name(item_name(input.name, i), symbol);
    if (!options.dims.contains(own) && !options.dim_ranges.contains(own)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> options_for_other_dims(const ModelSummary& model, const ImportOptions& options) {
  std::vector<std::string> words;
  for (const DeclaredTensor& input : model.inputs) {
    if (has_given_shape(input, options)) continue;
    std::vector<std::string> shape;
    bool is_nameless = false;
    for (size_t i = 0; i < input.shape.size(); ++i) {
      const std::string& symbol = input.symbols[i];
      shape.push_back(input.shape[i] >= 0 ? std::to_string(input.shape[i]) : "1");
      if (input.shape[i] >= 0 || has_given_size(input, i, options)) continue;
      is_nameless |= symbol.empty();
      const std::string word = text("--dim ", symbol, "=1");
      if (!symbol.empty() && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
    if (is_nameless) words.push_back(text("--input-shape ", input.name, "=", join(shape, "x")));
  }
  return words;
}

bool bind_shapes(onnx::ModelProto& model, const ImportOptions& options, Diagnostics& problems,
                 NameDoubts& doubts) {
  onnx::GraphProto& graph = *model.mutable_graph();
  drop_initialized_inputs(graph);
  take_optional_tensors(graph);
  drop_placeholders(graph);
  check_option_names(graph, options, problems);
  drop_contradicted_names(graph, options, doubts);
  DimValues dims(options, problems);
  for (auto& input : *graph.mutable_input()) {
    bool given = false;
    const std::vector<int64_t> shape = given_shape(input, options, &given);
    if (given && input.type().has_tensor_type()) apply_given(input, shape, options, dims, problems);
  }
  for (const Diagnostic& problem : problems)
    if (problem.kind == ErrorKind::usage) return false;
  bool sizes_fit = true;
  for (auto& input : *graph.mutable_input()) {
    substitute_dims(input.mutable_type(), dims);
    if (!input.type().has_tensor_type()) continue;
    if (input.type().tensor_type().has_shape()) bind_others(input, options);
    report_open_dims(input, options, problems);
    sizes_fit &= check_size(input, problems);
  }
  for (auto& value : *graph.mutable_value_info())
    substitute_dims(value.mutable_type(), dims);
  for (auto& output : *graph.mutable_output())
    substitute_dims(output.mutable_type(), dims);
  return sizes_fit;
}

}  // namespace mcc::frontend
