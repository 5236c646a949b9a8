#include "frontend/function_body.h"

#include <algorithm>

#include "frontend/model_prepare.h"
#include "onnx/shape_inference/attribute_binder.h"

namespace mcc::frontend {

namespace {

onnx::NodeProto with_defaults(const onnx::OpSchema& schema, const onnx::NodeProto& node) {
  onnx::NodeProto call = node;
  for (const auto& [name, attribute] : schema.attributes()) {
    const bool is_given = std::any_of(node.attribute().begin(), node.attribute().end(),
                                      [&](const onnx::AttributeProto& a) { return a.name() == name; });
    if (attribute.default_value.type() != onnx::AttributeProto::UNDEFINED && !is_given)
      *call.add_attribute() = attribute.default_value;
  }
  return call;
}

}  // namespace

onnx::FunctionProto function_body(const onnx::OpSchema& schema, const onnx::NodeProto& node, int opset,
                                  const std::vector<onnx::TypeProto>& types) {
  const onnx::NodeProto call = with_defaults(schema, node);
  onnx::FunctionProto body;
  const auto error = onnx_error([&] {
    if (schema.HasFunction()) {
      if (const onnx::FunctionProto* fixed = schema.GetFunction(opset)) body = *fixed;
    } else {
      onnx::FunctionBodyBuildContextImpl context(call, types);
      if (!schema.BuildContextDependentFunction(context, body, opset)) body.Clear();
    }
    onnx::internal::AttributeBinder::BindAttributes(call, body);
  });
  return error ? onnx::FunctionProto() : body;
}

}  // namespace mcc::frontend
