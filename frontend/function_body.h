// Operators that ONNX defines by others. Internal to the frontend: includes protobuf.
#pragma once

#include <vector>

#include "onnx/defs/schema.h"

namespace mcc::frontend {

// The definition for this node at this opset, its attributes put in, those it leaves out by their defaults; empty where there is
// none. types: of the inputs, empty for those that are left out.
onnx::FunctionProto function_body(const onnx::OpSchema& schema, const onnx::NodeProto& node, int opset,
                                  const std::vector<onnx::TypeProto>& types);

}  // namespace mcc::frontend
