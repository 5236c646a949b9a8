// ONNX test cases: a model with sets of inputs and expected outputs, as folders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/import.h"
#include "tools/compare.h"

namespace mcc::tools {

// One model and the folders of its data sets. Two layouts are known: FOLDER/model.onnx with FOLDER/test_data_set_K, and
// FOLDER/STEM.onnx with FOLDER/STEM.test_data_set_K.
struct TestCase {
  std::string name;
  std::string model;
  std::vector<std::string> sets;
  Tolerance tolerance;
  // Without sets: random inputs, and the reference interpreter's outputs as the expected ones.
  bool against_reference = false;
};

// The cases of a folder, or of a model file (against the reference). Tolerances come from FOLDER/data.json ({"rtol", "atol"}) if it is there, else they are ONNX's
// own, 1e-3 and 1e-7.
Result<std::vector<TestCase>> find_cases(const std::string& path);

struct DataSet {
  std::vector<frontend::NamedTensor> inputs, outputs;
};

// Errors where the data cannot be read, among them unsupported kinds of data (sequences, strings).
Result<DataSet> read_data_set(const std::string& folder);

// For each of the names the tensor of that name, else the one at its position. Nothing where the set has neither.
std::vector<const graph::Constant*> match_by_name(const std::vector<std::string>& names,
                                                  const std::vector<frontend::NamedTensor>& tensors);

}  // namespace mcc::tools
