// ONNX test cases: a model with sets of inputs and expected outputs, as folders.
#pragma once

#include <map>
#include <set>
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
  std::vector<frontend::NamedValue> inputs, outputs;
};

// The values in a folder; the model's inputs and outputs say, by position, which of them are sequences and optional values. Errors where the
// data cannot be read, among them unsupported kinds of data.
Result<DataSet> read_data_set(const std::string& folder, const frontend::ModelSummary& model);

// For each of these inputs or outputs the value of that name, else the one at its position. Nothing where the set has neither.
std::vector<const frontend::NamedValue*> match_by_name(const std::vector<frontend::DeclaredTensor>& declared,
                                                       const std::vector<frontend::NamedValue>& values);

// Values as a compiled model takes and gives them: of sequences their tensors, of optional values without anything nothing.
struct DividedValues {
  struct Tensor {
    std::string name;
    size_t position = 0;                     // of the input or output that it is, or is a part of
    const graph::Constant* value = nullptr;  // null: the set has none
  };
  std::vector<Tensor> tensors;
  std::map<std::string, int64_t> lengths;  // of sequences
  std::set<std::string> left_out;          // optional values
};
DividedValues divide_values(const std::vector<frontend::DeclaredTensor>& declared,
                            const std::vector<frontend::NamedValue>& values);

}  // namespace mcc::tools
