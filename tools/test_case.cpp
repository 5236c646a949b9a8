#include "tools/test_case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"

namespace mcc::tools {

namespace {

namespace fs = std::filesystem;

// The number in "PREFIX_12" or "PREFIX_12.pb".
int index_of(const fs::path& path) {
  const std::string stem = path.extension() == ".pb" ? path.stem().string() : path.filename().string();
  const size_t at = stem.rfind('_');
  return at == std::string::npos ? 0 : std::atoi(stem.c_str() + at + 1);
}

// Entries of a folder whose name starts and ends so, by their number.
std::vector<fs::path> numbered_entries(const fs::path& folder, const std::string& prefix,
                                       const std::string& suffix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    return std::pair(index_of(a), a) < std::pair(index_of(b), b);
  });
  return found;
}

Tolerance read_tolerance(const fs::path& folder) {
  Tolerance tolerance{1e-3, 1e-7};
  std::ifstream in(folder / "data.json");
  if (!in) return tolerance;
  const nlohmann::json data = nlohmann::json::parse(in, nullptr, false);
  if (!data.is_object()) return tolerance;
  for (auto [key, target] : {std::pair{"rtol", &tolerance.rtol}, std::pair{"atol", &tolerance.atol}})
    if (auto found = data.find(key); found != data.end() && found->is_number())
      *target = found->get<double>();
  return tolerance;
}

// A path without the slashes at its end.
fs::path without_trailing_slash(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

Result<std::vector<frontend::NamedValue>> read_values(const fs::path& folder, const std::string& prefix,
                                                      const std::vector<frontend::DeclaredTensor>& declared) {
  std::vector<frontend::NamedValue> values;
  for (const fs::path& file : numbered_entries(folder, prefix, ".pb")) {
    const frontend::DeclaredTensor type =
        values.size() < declared.size() ? declared[values.size()] : frontend::DeclaredTensor{};
    Result<frontend::NamedValue> value = frontend::read_value_file(file.string(), type);
    if (!value.ok()) return value.errors();
    values.push_back(std::move(*value));
  }
  return values;
}

}  // namespace

Result<std::vector<TestCase>> find_cases(const std::string& given) {
  std::error_code error;
  if (fs::is_regular_file(given, error))
    return std::vector<TestCase>{{fs::path(given).stem().string(), given, {}, Tolerance{}, true}};
  const fs::path path = without_trailing_slash(given);
  if (!fs::is_directory(path, error))
    return Diagnostic{ErrorKind::bad_input, given, "is neither a folder nor a model", ""};
  const std::vector<fs::path> models = numbered_entries(path, "", ".onnx");
  std::vector<TestCase> cases;
  for (const fs::path& model : models) {
    TestCase test;
    const bool plain = model.filename() == "model.onnx";
    const std::string folder_name = path.filename().string(), stem = model.stem().string();
    test.name = plain ? folder_name : text(folder_name, "/", stem);
    test.model = model.string();
    for (const fs::path& set :
         numbered_entries(path, plain ? "test_data_set_" : stem + ".test_data_set_", ""))
      test.sets.push_back(set.string());
    test.tolerance = read_tolerance(path);
    cases.push_back(std::move(test));
  }
  if (cases.empty()) return Diagnostic{ErrorKind::bad_input, given, "has no .onnx file", ""};
  return cases;
}

Result<DataSet> read_data_set(const std::string& folder, const frontend::ModelSummary& model) {
  Result<std::vector<frontend::NamedValue>> inputs = read_values(folder, "input_", model.inputs);
  if (!inputs.ok()) return inputs.errors();
  Result<std::vector<frontend::NamedValue>> outputs = read_values(folder, "output_", model.outputs);
  if (!outputs.ok()) return outputs.errors();
  return DataSet{std::move(*inputs), std::move(*outputs)};
}

std::vector<const frontend::NamedValue*> match_by_name(const std::vector<frontend::DeclaredTensor>& declared,
                                                       const std::vector<frontend::NamedValue>& values) {
  std::vector<const frontend::NamedValue*> matched(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    auto found = std::find_if(values.begin(), values.end(),
                              [&](const auto& value) { return value.name == declared[i].name; });
    if (found != values.end())
      matched[i] = &*found;
    else if (i < values.size() && values[i].name.empty())
      matched[i] = &values[i];
  }
  return matched;
}

DividedValues divide_values(const std::vector<frontend::DeclaredTensor>& declared,
                            const std::vector<frontend::NamedValue>& values) {
  DividedValues divided;
  const std::vector<const frontend::NamedValue*> matched = match_by_name(declared, values);
  for (size_t i = 0; i < declared.size(); ++i) {
    const std::string& name = declared[i].name;
    const frontend::NamedValue* value = matched[i];
    if (!value) {
      divided.tensors.push_back({name, i, nullptr});
    } else if (!value->holds) {
      divided.left_out.insert(name);
    } else if (!value->is_sequence) {
      divided.tensors.push_back({name, i, &value->tensors.front()});
    } else {
      const auto length = static_cast<int64_t>(value->tensors.size());
      divided.lengths[name] = length;
      for (int64_t k = 0; k < length; ++k)
        divided.tensors.push_back({frontend::item_name(name, k), i, &value->tensors[static_cast<size_t>(k)]});
    }
  }
  return divided;
}

}  // namespace mcc::tools
