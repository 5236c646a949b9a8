// What is done to the ONNX message before a graph is built from it. Internal to this layer: includes protobuf.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "frontend/import.h"
#include "onnx/onnx_pb.h"

namespace mcc::frontend {

// Nodes that were found wrong are moved to this domain, so that ONNX's library leaves them alone and the graph builder
// knows that they have been reported.
inline constexpr const char* kRefusedDomain = "mcc.refused";

// Scan of opset 8, over batches of sequences, is another operator than the later ones, which ONNX's conversion does not turn into them:
// its nodes move to this domain. Their bodies are converted.
inline constexpr const char* kBatchedScanDomain = "mcc.batched";

// Runs f, which calls into ONNX's library; what it throws comes back as one plain line, without source paths.
std::optional<std::string> onnx_error(const std::function<void()>& f);

// Version of the default domain; nothing when the model does not import it.
std::optional<int64_t> default_opset(const onnx::ModelProto& model);

// Whether the opsets that the model imports are among those that this program knows.
bool check_versions(const onnx::ModelProto& model, Diagnostics& problems);

// What the graph of a branch or a loop reads, graphs inside of it as well, and does not make itself.
std::set<std::string> outer_names(const onnx::GraphProto& graph);

// Puts each node behind those whose results it uses, also in graphs inside of it, where that is not so; others keep their places. What
// lies on a cycle stays behind all else.
void order_nodes(onnx::GraphProto& graph);

// Checks every node, value and name by the rules of the model's own opset. Faults go to problems (all of them); the nodes
// concerned are moved to kRefusedDomain. folder is where the file is.
void check_model(onnx::ModelProto& model, const std::string& folder, Diagnostics& problems);

// Whether the dimension has a name of its own: exporters also write "?" and "-1", of which two need not be equal.
bool has_name(const onnx::TensorShapeProto::Dimension& dim);

// The options with constants for the inputs that they give numbers for; wrong ones go to problems.
ImportOptions fix_inputs(const onnx::GraphProto& graph, ImportOptions options, Diagnostics& problems);

// Inputs that are no tensors (containers.cpp). The options with what they say of sequences and their dimensions said of the tensors
// of these; wrong ones go to problems.
ImportOptions divide_options(const onnx::GraphProto& graph, ImportOptions options, Diagnostics& problems);
std::map<std::string, Container> input_containers(const onnx::GraphProto& graph,
                                                  const ImportOptions& options);
// Puts tensors in place of sequences, and nodes that make sequences of them and nothing of optional values that are left out. Sequences
// without a length go to problems.
void divide_inputs(onnx::GraphProto& graph, const ImportOptions& options, Diagnostics& problems);

// What an open dimension of an input is called that the model has no name for.
std::string open_dim_name(const std::string& input, size_t axis);
// The sizes that the options give such a dimension; those that they leave all others, in an input of this shape (nothing: it needs a value).
std::optional<graph::DimRange> given_range(const ImportOptions& options, const std::string& input,
                                           size_t axis, const std::string& name);
std::optional<graph::DimRange> other_range(const ImportOptions& options, size_t axis,
                                           const onnx::TensorShapeProto& shape, bool may_be_empty);

// Names of dimensions along which something is appended to the inputs that have them, and nothing else is done with these: what a decoder
// remembers of the tokens before (keys and values), of which there are none in the beginning.
std::set<std::string> appended_dimensions(const onnx::GraphProto& graph);

// Names of dimensions that the shapes given for inputs contradict: the shapes hold if the model works with them, else they may be what
// is wrong.
struct NameDoubts {
  std::string note;      // a sentence for a person; empty where there is no doubt
  Diagnostics problems;  // what contradicts what
};

// Gives every dimension of every input the value that the options have for it; those that these leave open get a name. Initializers that are also inputs are
// constants: they are dropped from the inputs. Dimensions without a value go to problems; names that the shapes given contradict are
// dropped. False: the options are wrong, or an input is larger than any memory.
bool bind_shapes(onnx::ModelProto& model, const ImportOptions& options, Diagnostics& problems,
                 NameDoubts& doubts);

// Inlines local functions. False: nothing further can be done with the model.
bool inline_functions(onnx::ModelProto& model, Diagnostics& problems);

// Converts to kOpset and infers the types of all values. False as above.
bool convert_model(onnx::ModelProto& model, Diagnostics& problems);

struct PreparedModel {
  onnx::ModelProto model;
  Diagnostics problems;
  NameDoubts doubts;
  bool usable = false;  // a graph can be built from the model
  bool failed = false;  // ONNX's library crashed on it; the model is as far as it came without
};

// All of the above in order, in a process of its own: ONNX's library can crash on attributes and shapes that make no sense.
PreparedModel prepare_model(const onnx::ModelProto& model, const std::string& folder,
                            const ImportOptions& options);

}  // namespace mcc::frontend
