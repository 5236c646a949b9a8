// NVIDIA's assembler and libraries on this machine.
#pragma once

#include <memory>
#include <string>

#include "codegen/device.h"
#include "support/result.h"
#include "tensor/target.h"

namespace mcc::tools {

// Looks in $CUDA_HOME and $CUDA_PATH, in the folders of $PATH, and in the usual places; null where there is none.
std::unique_ptr<codegen::Assembler> find_assembler();
// The same, never inside of this process (assembler_process.h).
std::unique_ptr<codegen::Assembler> find_isolated_assembler();

// An assembler in processes of its own that knows this GPU's architecture and reads PTX for it; else none, and what that means, for
// people: then the driver compiles PTX.
struct SuitableAssembler {
  std::unique_ptr<codegen::Assembler> assembler;
  std::string problem;
};
SuitableAssembler find_assembler_for(const tensor::Target& gpu);

// The version of cuBLASLt ("13.1.0"), where the loader finds it; else why it cannot be used (kind environment).
Result<std::string> find_cublaslt();

}  // namespace mcc::tools
