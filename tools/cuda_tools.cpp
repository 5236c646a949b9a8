#include "tools/cuda_tools.h"

#include <cstdlib>
#include <sstream>

#include "runtime/cublaslt.h"
#include "support/text.h"
#include "tools/assembler_process.h"

namespace mcc::tools {

std::unique_ptr<codegen::Assembler> find_assembler() {
  std::vector<std::string> cuda, programs;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* folder = std::getenv(name); folder && *folder) cuda.emplace_back(folder);
  if (const char* path = std::getenv("PATH")) {
    std::stringstream list(path);
    for (std::string folder; std::getline(list, folder, ':');)
      if (!folder.empty()) programs.push_back(folder);
  }
  return codegen::Assembler::find(cuda, programs);
}

std::unique_ptr<codegen::Assembler> find_isolated_assembler() { return isolate(find_assembler()); }

Result<std::string> find_cublaslt() {
  mcc_error problem = {};
  const mcc_cublaslt* library = runtime::load_cublaslt(&problem);
  if (library == nullptr) return Diagnostic{ErrorKind::environment, "", problem.message, ""};
  const size_t version = library->version();
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace mcc::tools
