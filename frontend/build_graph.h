// A checked and converted ONNX model -> a graph. Internal to this layer: includes protobuf.
#pragma once

#include "frontend/import.h"
#include "frontend/onnx_tensor.h"

namespace mcc::frontend {

// The model is at kOpset, without local functions. Everything that is wrong or unsupported goes to problems; the graph
// is whole only if nothing was added to them. What there is to say of outputs beside it goes to `imported` as well.
void build_graph(const onnx::ModelProto& model, TensorReader& reader, const ImportOptions& options,
                 const graph::Evaluator& fold, ImportedModel& imported, Diagnostics& problems);

}  // namespace mcc::frontend
