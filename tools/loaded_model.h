// A model library in this process, with tensors as the compiler's constants.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "mcc/mcc.hpp"

namespace mcc::tools {

// The path as the loader takes it, if it is a model library at all (errors are bad input).
Result<runtime::Model> open_model(const std::string& path);

Diagnostic to_diagnostic(const runtime::Error& error);

struct TensorSpec {
  std::string name;
  ElementType element;
  std::vector<int64_t> shape;      // -1: not fixed
  std::vector<std::string> symbols;  // then its name; "": it depends on data
};
std::vector<TensorSpec> input_specs(const runtime::Model& model);
std::vector<TensorSpec> output_specs(const runtime::Model& model);
std::vector<std::string> names_of(const std::vector<TensorSpec>& specs);

// "f32[1, 3, H, 224]"
std::string type_text(const TensorSpec& spec);

// What a model is run on: files ("NAME=F.npy"), the rest random when there is a seed, with these sizes of open dimensions ("N=8").
struct InputOptions {
  std::vector<std::string> files;
  std::optional<uint64_t> seed;
  std::vector<std::string> sizes;
};

// A tensor for every input. Inputs without a value, and dimensions without a size, are an error that names them all.
Result<std::vector<graph::Constant>> make_inputs(const runtime::Model& model, const InputOptions& options);

// The constant's memory as a tensor.
runtime::Tensor tensor_of(const graph::Constant& value);

// The inputs must outlive the session's runs. Their types and shapes are checked by the runtime.
void set_inputs(runtime::Session& session, std::span<const graph::Constant> inputs);
// Copies of the outputs of the last run.
std::vector<graph::Constant> copy_outputs(const runtime::Model& model, const runtime::Session& session);

}  // namespace mcc::tools
