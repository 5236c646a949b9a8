#include "tools/cuda_tools.h"

#include <cstdlib>
#include <sstream>

#include "runtime/cublaslt.h"
#include "support/check.h"
#include "support/text.h"
#include "tensor/passes/lower.h"
#include "tensor/text.h"
#include "tools/assembler_process.h"
#include "tools/console.h"
#include "tuner/default_schedule.h"

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

namespace {

// As little PTX as there can be, of the version that this target's kernels have.
Result<std::string> least_ptx(const tensor::Target& gpu) {
  Result<tensor::Func> func = tensor::parse_func(R"(func probe(a: f32[32]) -> (b: f32[32]) {
  for i in 32 {
    block b(x = i: spatial 32)
      reads a[x]
      writes b[x] {
      b[x] = a[x]
    }
  }
})");
  if (!func.ok()) return func.errors();
  Result<codegen::DeviceCode> code =
      codegen::emit_ptx(tensor::lower(tuner::default_schedule(*func, gpu).func(), gpu), "probe", gpu);
  if (!code.ok()) return code.errors();
  return code->ptx;
}

}  // namespace

SuitableAssembler find_assembler_for(const tensor::Target& gpu) {
  SuitableAssembler found{find_isolated_assembler(), ""};
  if (found.assembler == nullptr) {
    found.problem =
        "no assembler is here (ptxas or nvJitLink): the driver compiles each kernel's PTX when it is loaded, "
        "and there are no "
        "figures of registers; install CUDA's ptxas, or name a CUDA by $CUDA_HOME";
    return found;
  }
  const Result<std::string> ptx = least_ptx(gpu);
  MCC_CHECK(ptx.ok(), "no PTX of the least kernel: ", ptx.ok() ? "" : to_text(ptx.errors()));
  const Result<codegen::Cubin> cubin = found.assembler->assemble(*ptx, gpu.cpu);
  if (cubin.ok()) return found;
  found.problem =
      text(cubin.errors()[0].message, "; a newer CUDA's assembler is needed for ", gpu.cpu,
           " ($CUDA_HOME names one): without it the driver compiles each kernel's PTX when it is loaded");
  found.assembler.reset();
  return found;
}

Result<std::string> find_cublaslt() {
  mcc_error problem = {};
  const mcc_cublaslt* library = runtime::load_cublaslt(&problem);
  if (library == nullptr) return Diagnostic{ErrorKind::environment, "", problem.message, ""};
  const size_t version = library->version();
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace mcc::tools
