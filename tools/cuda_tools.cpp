#include "tools/cuda_tools.h"

#include <cstdlib>
#include <sstream>

#include "runtime/cublaslt.h"
#include "support/text.h"
#include "tools/assembler_process.h"
#include "tools/console.h"

namespace mcc::tools {

std::unique_ptr<codegen::Assembler> find_assembler() {
  std::vector<std::string> cuda, named, programs;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(name); folder && *folder) {
      cuda.emplace_back(folder);
      named.push_back(text("$", name, " (", printable(folder), ")"));
    }
  }
  if (const char* path = std::getenv("PATH")) {
    std::stringstream list(path);
    for (std::string folder; std::getline(list, folder, ':');)
      if (!folder.empty()) programs.push_back(folder);
  }
  if (auto found = codegen::Assembler::find_in(cuda)) return found;
  auto found = codegen::Assembler::find({}, programs);
  if (!cuda.empty())
    say(text("warning: ", join(named, " and "), " has no ptxas and no nvJitLink that works; ", found ? found->name() + " is used" : "there is no other"));
  return found;
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
