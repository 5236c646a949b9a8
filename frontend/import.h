// An ONNX file -> a graph.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "graph/fold.h"
#include "graph/graph.h"

namespace mcc::frontend {

// In a shape given for an input, a dimension that has a range.
inline constexpr int64_t kOpenDim = -1;

// Without a bound, for other_dims: import_onnx says what is typical for each of them.
inline constexpr graph::DimRange kAnySize{1, tensor::kLargestSize, 1};

struct ImportOptions {
  std::map<std::string, std::vector<int64_t>> input_shapes;  // by input
  std::map<std::string, int64_t> dims;                       // by the name of the dimension
  // Dimensions that stay symbolic, with the sizes that they may have: by their names, and by input and position.
  std::map<std::string, graph::DimRange> dim_ranges;
  std::map<std::string, std::map<size_t, graph::DimRange>> input_ranges;
  // Dimensions that have neither a value nor a range: refused; or all of them have these sizes.
  std::optional<graph::DimRange> other_dims;
  // Of inputs that are sequences of tensors: how many they have. These are inputs of their own, "x[0]", "x[1]", ... in place of x: shapes and
  // values are given by their names, or shapes for all of them by that of the sequence. A dimension that the sequence's type calls N is
  // "x[0].N", ..., as tensors of a sequence may be of different sizes, or N for all of them.
  std::map<std::string, int64_t> sequence_lengths;
  // Optional inputs that hold nothing; all others hold what their type says.
  std::set<std::string> left_out;
  // Inputs that are fixed to a value: they become constants of the graph.
  std::map<std::string, graph::Constant> constants;
  // The same by numbers, of the type that the model says: one for each element, or one for all of them.
  std::map<std::string, std::vector<double>> numbers;
  // Whether inputs and outputs may be tensors of strings (graph/ops/mcc_text.h). Else an output is one of positions in a list (OutputLabels).
  bool has_strings = true;
};

// Of an output that the model has as maps, or as strings where these are not possible, what its numbers stand for.
struct OutputLabels {
  enum class Kind {
    keys,     // of the maps: of each number along the last axis
    strings,  // numbers are positions in the list
  };
  Kind kind = Kind::keys;
  std::variant<std::vector<int64_t>, std::vector<std::string>> list;
};

// What became of an input or output that is no tensor in the model.
struct Container {
  std::optional<int64_t> length;  // of a sequence x: that of its tensors x[0], x[1], ...
  bool is_optional = false;
  bool holds =
      true;  // of an optional value: whether it holds something. Else there is no input or output for it
};

struct ImportedModel {
  graph::Graph graph;
  std::map<std::string, Container> input_containers, output_containers;  // by the name that the model has
  std::map<std::string, OutputLabels> labels;  // by output
  std::vector<std::string> notes;              // what a person may want to know of it, a sentence each
  std::string producer;  // "pytorch 2.4.0"
  std::string doc;
  int64_t opset = 0;       // of the default domain, as the file has it
  int64_t ir_version = 0;  // of the file
  int64_t node_count = 0;  // nodes of the file's main graph
  int64_t file_bytes = 0;
};

// The newest ONNX opset: every model is converted to it, and operators have its semantics.
inline constexpr int kOpset = 28;

// Reads, checks and converts the model and builds its graph. Every dimension of an input needs a value, from the
// file or from the options, or a range of sizes from these (or none, with other_dims): it is then a symbolic one of the graph's. What can be computed from constants alone is computed at once through
// `fold` where it is small (so that operators see their shape operands); large weights stay in the mapped file, which
// the graph's constants keep alive. On failure, everything that is wrong is listed, node by node.
Result<ImportedModel> import_onnx(const std::string& path, const ImportOptions& options,
                                  const graph::Evaluator& fold);

// Name, element type and shape as declared by the file. -1 for a dimension without a value; symbols[i] is then its name
// or empty. Inputs that have an initializer are not listed. element is empty for what is not a tensor that mcc knows.
struct DeclaredTensor {
  std::string name;
  bool is_optional = false,
       is_sequence = false;  // an optional value, a sequence, an optional sequence: of such tensors
  std::string element;
  bool has_shape = false;
  std::vector<int64_t> shape;
  std::vector<std::string> symbols;
};
struct ModelSummary {
  std::vector<DeclaredTensor> inputs, outputs;
  std::map<std::string, int64_t> operators;  // "Conv" or "domain.Op" -> nodes, sub-graphs included
  std::string producer;
  int64_t opset = 0, ir_version = 0, node_count = 0, file_bytes = 0, weight_bytes = 0;
};
// Options that give the dimensions that other_dims is for the value 1: "--dim N=1", "--input-shape x=1x3" where they have no names.
std::vector<std::string> options_for_other_dims(const ModelSummary& model, const ImportOptions& options);

// Looks at the file without importing it.
Result<ModelSummary> summarize_onnx(const std::string& path);

// The name of a sequence's tensor as an input or output, and of a dimension of it: "x[2]", "x[2].N".
std::string item_name(const std::string& sequence, int64_t i);
std::string item_dim_name(const std::string& item, const std::string& dim);

// A file of ONNX's test data: a serialised TensorProto, or a SequenceProto or OptionalProto where the declared type is one. Whether an
// optional value holds something is for the file to say.
struct NamedValue {
  std::string name;
  bool is_sequence = false, holds = true;
  std::vector<graph::Constant> tensors;  // of a tensor one
};
Result<NamedValue> read_value_file(const std::string& path, const DeclaredTensor& declared);

}  // namespace mcc::frontend
