// Operators of classic machine learning (the domain ai.onnx.ml, TfIdfVectorizer, and what optimisers do in ai.onnx.preview.training):
// each has an expansion into ONNX's operators, mcc.Trees and mcc.CouplePairs, in the way of frontend/contrib; the schemas are ONNX's
// own. Internal to the frontend: includes protobuf.
#pragma once

#include <string>
#include <vector>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

bool has_ml_expansion(const std::string& domain, const std::string& name);

// As expand_contrib. The schema is that of the version which the model uses: expansions serve all of them.
Result<onnx::FunctionProto> expand_ml(const onnx::OpSchema& schema, const onnx::NodeProto& node,
                                      const std::vector<onnx::TypeProto>& types, const TensorSource& source);

}  // namespace mcc::frontend
