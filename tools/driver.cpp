#include "tools/driver.h"

namespace mcc::tools {

Result<CompileReport> compile_model(const CompileOptions& options) {
  return Diagnostic{ErrorKind::environment, options.model_path, "this build has no code generation", ""};
}

}  // namespace mcc::tools
