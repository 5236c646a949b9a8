// NVIDIA's assembler on this machine.
#pragma once

#include <memory>

#include "codegen/device.h"

namespace mcc::tools {

// Looks in $CUDA_HOME and $CUDA_PATH, in the folders of $PATH, and in the usual places; null where there is none.
std::unique_ptr<codegen::Assembler> find_assembler();

}  // namespace mcc::tools
