#include "frontend/ml/ml.h"

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

// One line for each file of operators.
constexpr std::span<const MlOp> (*kFamilies[])() = {tree_ops,  linear_ops, svm_ops,     feature_ops,
                                                    label_ops, text_ops,   training_ops};

const MlOp* find_ml(const std::string& domain, const std::string& name) {
  for (auto family : kFamilies)
    for (const MlOp& op : family())
      if (domain == op.domain && name == op.name) return &op;
  return nullptr;
}

}  // namespace

bool has_ml_expansion(const std::string& domain, const std::string& name) {
  return find_ml(domain, name) != nullptr;
}

Result<onnx::FunctionProto> expand_ml(const onnx::OpSchema& schema, const onnx::NodeProto& node,
                                      const std::vector<onnx::TypeProto>& types, const TensorSource& source) {
  const MlOp* op = find_ml(schema.domain(), node.op_type());
  MCC_CHECK(op, node.op_type(), " is not among the operators of frontend/ml");
  if (std::optional<Diagnostic> problem = missing_input(schema, node)) return *problem;
  Expansion expansion(schema, node, types, source);
  op->expand(expansion);
  return expansion.finish();
}

}  // namespace mcc::frontend
