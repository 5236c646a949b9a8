#include "tools/loaded_model.h"

#include <filesystem>

#include "tools/compare.h"
#include "tools/npy.h"
#include "tools/options.h"

namespace mcc::tools {

namespace {

using graph::Constant;

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

TensorSpec to_spec(const runtime::TensorInfo& info) { return {info.name, element_of(info.dtype), info.dims}; }

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
  for (int64_t dim : spec.shape)
    dims.push_back(dim < 0 ? "?" : std::to_string(dim));
  return text(to_text(spec.element), list_text(dims));
}

Result<std::vector<Constant>> make_inputs(const runtime::Model& model, const std::vector<std::string>& files,
                                          std::optional<uint64_t> seed) {
  const std::vector<TensorSpec> specs = input_specs(model);
  const std::vector<std::string> names = names_of(specs);
  std::vector<std::optional<Constant>> given(specs.size());
  Diagnostics errors;
  for (const std::string& spec : files) {
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
  }
  if (!errors.empty()) return errors;

  std::vector<Constant> inputs;
  std::vector<std::string> missing;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool is_static =
        std::all_of(specs[i].shape.begin(), specs[i].shape.end(), [](int64_t d) { return d >= 0; });
    if (given[i]) {
      inputs.push_back(*given[i]);
    } else if (seed && is_static) {
      inputs.push_back(random_tensor(specs[i].name, specs[i].element, specs[i].shape, *seed));
    } else {
      missing.push_back(text("'", specs[i].name, "' (", type_text(specs[i]), ")"));
    }
  }
  if (!missing.empty()) {
    return Diagnostic{ErrorKind::usage, "", text("no value for input ", join(missing, ", ")),
                      "give --input NAME=FILE.npy for each, or --random SEED"};
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
    const size_t bytes = tensor.element_count() * static_cast<size_t>(byte_size(element));
    outputs.push_back(
        Constant::copy_of(element, tensor.dims, {static_cast<const std::byte*>(tensor.data), bytes}));
  }
  return outputs;
}

}  // namespace mcc::tools
