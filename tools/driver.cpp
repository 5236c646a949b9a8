#include "tools/driver.h"

namespace mcc::tools {

Result<CompileReport> compile_model(const CompileOptions& options) {
  Result<frontend::ImportedModel> model =
      frontend::import_onnx(options.model_path, options.import, graph::interpreter_evaluator());
  if (!model.ok()) return model.errors();
  return Diagnostic{ErrorKind::environment, options.model_path, "this build has no code generation", ""};
}

Result<std::vector<TaskInfo>> list_tasks(const CompileOptions& options) {
  return Diagnostic{ErrorKind::environment, options.model_path, "this build has no code generation", ""};
}

}  // namespace mcc::tools
