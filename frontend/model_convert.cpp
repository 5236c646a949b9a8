#include <map>

#include "frontend/contrib/contrib.h"
#include "frontend/model_prepare.h"
#include "onnx/checker.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "onnx/version_converter/convert.h"

namespace mcc::frontend {

namespace {

// ONNX follows values that may be shapes: of what has one dimension it keeps a message for each element, whatever its type,
// which takes seconds and gigabytes for vectors of millions. No shape has so many dimensions.
constexpr int64_t kMostFollowed = 1024;

bool is_long(const onnx::TypeProto* type) {
  if (!type || !type->has_tensor_type() || !type->tensor_type().has_shape()) return false;
  const onnx::TensorShapeProto& shape = type->tensor_type().shape();
  return shape.dim_size() == 1 && shape.dim(0).has_dim_value() && shape.dim(0).dim_value() > kMostFollowed;
}

// The same operators; values of long vectors are not followed.
class BoundedSchemas : public onnx::ISchemaRegistry {
 public:
  const onnx::OpSchema* GetSchema(const std::string& name, int version,
                                  const std::string& domain) const override {
    const onnx::OpSchema* schema = known_schemas().GetSchema(name, version, domain);
    if (!schema || !schema->has_data_propagation_function()) return schema;
    const auto [found, is_new] = bounded_.try_emplace(schema, *schema);
    if (is_new) {
      found->second.PartialDataPropagationFunction(
          [follow = schema->GetDataPropagationFunction()](onnx::DataPropagationContext& context) {
            for (size_t i = 0; i < context.getNumInputs(); ++i)
              if (is_long(context.getInputType(i))) return;
            follow(context);
          });
    }
    return &found->second;
  }

 private:
  mutable std::map<const onnx::OpSchema*, onnx::OpSchema> bounded_;
};

// Types help the conversion and the reports on unsupported nodes; where inference fails the graph's own rules say why.
void infer_types(onnx::ModelProto& model) {
  onnx::ModelProto inferred = model;
  const onnx::ShapeInferenceOptions options(false, 0, true);
  const BoundedSchemas schemas;
  const auto error = onnx_error([&] { onnx::shape_inference::InferShapes(inferred, &schemas, options); });
  if (!error) model = std::move(inferred);
}

void set_opset(onnx::ModelProto& model, int64_t version) {
  for (auto& import : *model.mutable_opset_import()) {
    if (!import.domain().empty() && import.domain() != "ai.onnx") continue;
    import.set_domain("");
    import.set_version(version);
    return;
  }
  model.add_opset_import()->set_version(version);
}

}  // namespace

bool inline_functions(onnx::ModelProto& model, Diagnostics& problems) {
  if (model.functions_size() == 0) return true;
  const auto error = onnx_error([&] {
    onnx::checker::check_function_call_cycles(model);
    onnx::inliner::InlineLocalFunctions(model, true);
  });
  if (!error) return true;
  problems.push_back(
      {ErrorKind::bad_input, "", text("the model's functions cannot be inlined: ", *error), ""});
  return false;
}

bool convert_model(onnx::ModelProto& model, Diagnostics& problems) {
  // Initializers need not be inputs from IR version 4 on; they have been dropped from there.
  if (model.ir_version() < 10) model.set_ir_version(10);
  const int64_t version = default_opset(model).value_or(kOpset);
  set_opset(model, version);
  infer_types(model);
  if (version == kOpset) return true;
  onnx::ModelProto converted;
  const auto error = onnx_error([&] { converted = onnx::version_conversion::ConvertVersion(model, kOpset); });
  if (error) {
    // A fault that has been reported can make the conversion fail as well.
    if (problems.empty()) {
      problems.push_back(
          {ErrorKind::unsupported, "",
           text("the model cannot be converted from opset ", version, " to ", kOpset, ": ", *error),
           "export it again with a newer opset"});
    }
    return false;
  }
  model = std::move(converted);
  infer_types(model);
  return true;
}

}  // namespace mcc::frontend
