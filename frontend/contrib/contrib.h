// Operators that onnxruntime adds to ONNX (the domain com.microsoft), which its quantiser and its optimiser of transformers
// write. Each has a schema, as ONNX's own have one, and an expansion into ONNX's operators: nothing behind this folder knows
// that they exist. Internal to the frontend: includes protobuf.
#pragma once

#include <vector>

#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"
#include "support/result.h"

namespace mcc::frontend {

inline constexpr const char* kContribDomain = "com.microsoft";

// ONNX's schemas and those of this folder, which infer types through their expansions.
const onnx::ISchemaRegistry& known_schemas();

// The schema of an operator of this folder; null for any other. Those that onnxruntime registers under ONNX's own domain are also
// found there (LayerNormalization before opset 17, SimplifiedLayerNormalization); nodes of them belong into kContribDomain.
const onnx::OpSchema* contrib_schema(const std::string& domain, const std::string& name);

// What stands for the node, in kOpset's semantics: inputs and outputs of the function are those of the node, in order. types has
// one for each input, all known and static; an empty one where an optional input is left out. Errors name no node.
Result<onnx::FunctionProto> expand_contrib(const onnx::NodeProto& node, const std::vector<onnx::TypeProto>& types);

}  // namespace mcc::frontend
