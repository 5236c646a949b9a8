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

Result<std::vector<frontend::NamedTensor>> read_tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<frontend::NamedTensor> tensors;
  for (const fs::path& file : numbered_entries(folder, prefix, ".pb")) {
    Result<frontend::NamedTensor> tensor = frontend::read_tensor_file(file.string());
    if (!tensor.ok()) return tensor.errors();
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
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

Result<DataSet> read_data_set(const std::string& folder) {
  DataSet set;
  Result<std::vector<frontend::NamedTensor>> inputs = read_tensors(folder, "input_");
  if (!inputs.ok()) return inputs.errors();
  Result<std::vector<frontend::NamedTensor>> outputs = read_tensors(folder, "output_");
  if (!outputs.ok()) return outputs.errors();
  return DataSet{std::move(*inputs), std::move(*outputs)};
}

std::vector<const graph::Constant*> match_by_name(const std::vector<std::string>& names,
                                                  const std::vector<frontend::NamedTensor>& tensors) {
  std::vector<const graph::Constant*> matched(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == names[i]; });
    if (found != tensors.end())
      matched[i] = &found->value;
    else if (i < tensors.size() && tensors[i].name.empty())
      matched[i] = &tensors[i].value;
  }
  return matched;
}

}  // namespace mcc::tools
