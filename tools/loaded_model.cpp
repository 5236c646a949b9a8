#include "tools/loaded_model.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "nlohmann/json.hpp"

#include "tools/compare.h"
#include "tools/console.h"
#include "tools/npy.h"
#include "tools/options.h"

namespace mcc::tools {

namespace {

using graph::Constant;

static_assert(sizeof(graph::StringView) == sizeof(mcc_string) &&
              offsetof(graph::StringView, size) == offsetof(mcc_string, size));

ElementType element_of(mcc_dtype dtype) {
  std::optional<ElementType> element = parse_element_type(mcc_dtype_name(dtype));
  if (!element)
    throw runtime::Error(MCC_BAD_MODEL,
                         text("element type ", mcc_dtype_name(dtype), " is not one that mcc knows"));
  return *element;
}

mcc_dtype dtype_of(ElementType element) {
  const std::string name(to_text(element));
#define MCC_CASE(dtype, value, bytes) \
  if (name == #dtype) return MCC_DTYPE_##dtype;
  MCC_DTYPES(MCC_CASE)
#undef MCC_CASE
  MCC_UNREACHABLE("the runtime has no element type ", name);
}

TensorSpec to_spec(const runtime::TensorInfo& info) { return {info.name, element_of(info.dtype), info.dims, info.dim_names}; }

using Sizes = std::map<std::string, int64_t>;

// The size has to be one that the model takes.
Status set_size(const runtime::Model& model, const std::string& spec, Sizes& sizes) {
  const size_t split = spec.rfind('=');
  const std::string name = spec.substr(0, split), digits = split == std::string::npos ? "" : spec.substr(split + 1);
  int64_t size = 0, min = 0, max = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return Diagnostic{ErrorKind::usage, "", text("--dim ", spec, ": expected NAME=8"), ""};
  if (mcc_model_dim_range(model.handle(), name.c_str(), &min, &max) != MCC_OK)
    return Diagnostic{ErrorKind::usage, "", text("the model has no open dimension '", name, "'"), ""};
  if (size < min || size > max)
    return Diagnostic{ErrorKind::usage, "", text("--dim ", spec, ": the model takes sizes from ", min, " to ", max), ""};
  sizes[name] = size;
  return done();
}

// The shape of a random input; dimensions that have no size go to open.
std::vector<int64_t> shape_of(const TensorSpec& spec, const Sizes& sizes, std::vector<std::string>& open) {
  std::vector<int64_t> shape = spec.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0) continue;
    const auto known = sizes.find(spec.symbols[i]);
    shape[i] = known == sizes.end() ? 1 : known->second;
    if (known == sizes.end() && std::find(open.begin(), open.end(), spec.symbols[i]) == open.end()) open.push_back(spec.symbols[i]);
  }
  return shape;
}

// Sizes for dimensions of random inputs that have none and no bound: one where an input begins, else so many.
constexpr int64_t kUsualSize = 128;

// What was chosen, as text: "N=1 T=128"; empty where nothing had to be.
std::string choose_sizes(const runtime::Model& model, const std::vector<TensorSpec>& specs, const std::vector<std::optional<Constant>>& given,
                         Sizes& sizes) {
  std::vector<std::string> chosen;
  for (size_t input = 0; input < specs.size(); ++input) {
    if (given[input]) continue;
    for (size_t i = 0; i < specs[input].shape.size(); ++i) {
      const std::string& name = specs[input].symbols[i];
      int64_t min = 0, max = 0;
      if (specs[input].shape[i] >= 0 || sizes.contains(name) || mcc_model_dim_range(model.handle(), name.c_str(), &min, &max) != MCC_OK) continue;
      if (max < tensor::kLargestSize) continue;
      sizes[name] = std::max(min, i == 0 ? 1 : kUsualSize);
      chosen.push_back(text(name, "=", sizes[name]));
    }
  }
  return join(chosen, " ");
}

// Strings that the model knows, or some of them (of a model with inputs of strings).
std::vector<std::string> known_strings(const runtime::Model& model) {
  const nlohmann::json list = nlohmann::json::parse(model.metadata("strings"), nullptr, false);
  std::vector<std::string> words;
  for (const nlohmann::json& word : list.is_array() ? list : nlohmann::json::array())
    if (word.is_string()) words.push_back(word.get<std::string>());
  return words;
}

// How to give the dimensions sizes.
std::string size_hint(const runtime::Model& model, const std::vector<std::string>& open) {
  std::vector<std::string> hints;
  for (const std::string& name : open) {
    int64_t min = 0, max = 0;
    if (mcc_model_dim_range(model.handle(), name.c_str(), &min, &max) == MCC_OK)
      hints.push_back(text("--dim ", name, "=", min, " (", min, " to ", max, ")"));
  }
  return text("give ", join(hints, ", "));
}

}  // namespace

Diagnostic to_diagnostic(const runtime::Error& error) {
  ErrorKind kind = ErrorKind::bad_input;
  if (error.status() == MCC_NOT_HERE || error.status() == MCC_OUT_OF_MEMORY || error.status() == MCC_DEVICE_FAILED)
    kind = ErrorKind::environment;
  return {kind, "", error.what(), ""};
}

Result<runtime::Model> open_model(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return Diagnostic{ErrorKind::bad_input, path, "there is no such file", ""};
  try {
    return runtime::Model(path);
  } catch (const runtime::Error& failure) {
    Diagnostic diagnostic = to_diagnostic(failure);
    if (diagnostic.message.find(path) == std::string::npos) diagnostic.where = path;
    return diagnostic;
  }
}

std::vector<TensorSpec> input_specs(const runtime::Model& model) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < model.input_count(); ++i)
    specs.push_back(to_spec(model.input(i)));
  return specs;
}

std::vector<TensorSpec> output_specs(const runtime::Model& model) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < model.output_count(); ++i)
    specs.push_back(to_spec(model.output(i)));
  return specs;
}

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs)
    names.push_back(spec.name);
  return names;
}

std::string type_text(const TensorSpec& spec) {
  std::vector<std::string> dims;
  for (size_t i = 0; i < spec.shape.size(); ++i)
    dims.push_back(spec.shape[i] >= 0 ? std::to_string(spec.shape[i]) : spec.symbols[i].empty() ? "?" : printable(spec.symbols[i]));
  return text(to_text(spec.element), list_text(dims));
}

Result<std::vector<Constant>> make_inputs(const runtime::Model& model, const InputOptions& options) {
  const std::vector<TensorSpec> specs = input_specs(model);
  const std::vector<std::string> names = names_of(specs);
  std::vector<std::optional<Constant>> given(specs.size());
  Diagnostics errors;
  Sizes sizes;
  for (const std::string& spec : options.files) {
    Result<NamedFile> file = parse_named_file(spec, names, "--input");
    if (!file.ok()) {
      errors.push_back(file.errors().front());
      continue;
    }
    Result<Constant> value = read_npy(file->path);
    if (!value.ok()) {
      errors.push_back(value.errors().front());
      continue;
    }
    given[file->index] = from_numpy_type(*value, specs[file->index].element);
    const TensorSpec& of = specs[file->index];
    for (size_t i = 0; i < of.shape.size() && i < value->shape().size(); ++i)
      if (of.shape[i] < 0) sizes[of.symbols[i]] = value->shape()[i];
  }
  for (const std::string& spec : options.sizes) {
    if (Status status = set_size(model, spec, sizes); !status.ok()) errors.push_back(status.errors().front());
  }
  if (!errors.empty()) return errors;

  if (options.seed) {
    const std::string chosen = choose_sizes(model, specs, given, sizes);
    if (!chosen.empty()) say(text("open dimensions: ", printable(chosen), "; others by --dim NAME=8"));
  }
  const std::vector<std::string> words = known_strings(model);
  std::vector<Constant> inputs;
  std::vector<std::string> missing, open;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (given[i]) {
      inputs.push_back(*given[i]);
    } else if (options.seed) {
      inputs.push_back(random_tensor(specs[i].name, specs[i].element, shape_of(specs[i], sizes, open),
                                     *options.seed, words));
    } else {
      missing.push_back(text("'", specs[i].name, "' (", type_text(specs[i]), ")"));
    }
  }
  if (!missing.empty()) {
    return Diagnostic{ErrorKind::usage, "", text("no value for input ", join(missing, ", ")),
                      "give --input NAME=FILE.npy for each, or --random SEED"};
  }
  if (!open.empty()) {
    return Diagnostic{ErrorKind::usage, "", text("no size for dimension '", join(open, "', '"), "'"), size_hint(model, open)};
  }
  return inputs;
}

runtime::Tensor tensor_of(const Constant& value) {
  runtime::Tensor tensor;
  tensor.data = const_cast<std::byte*>(value.bytes().data());  // kernels do not write to inputs
  tensor.size_bytes = value.bytes().size();
  tensor.dtype = dtype_of(value.element());
  tensor.dims = value.shape();
  return tensor;
}

void set_inputs(runtime::Session& session, std::span<const Constant> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) session.set_input(i, tensor_of(inputs[i]));
}

std::vector<Constant> copy_outputs(const runtime::Model& model, const runtime::Session& session) {
  std::vector<Constant> outputs;
  for (size_t i = 0; i < model.output_count(); ++i) {
    const runtime::Tensor tensor = session.output(i);
    const ElementType element = element_of(tensor.dtype);
    if (element == ElementType::string) {
      outputs.push_back(Constant::strings(tensor.dims, tensor.strings()));
      continue;
    }
    const size_t bytes = tensor.element_count() * static_cast<size_t>(byte_size(element));
    outputs.push_back(
        Constant::copy_of(element, tensor.dims, {static_cast<const std::byte*>(tensor.data), bytes}));
  }
  return outputs;
}

}  // namespace mcc::tools
