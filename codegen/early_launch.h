// Kernels that begin before those ahead of them have ended (programmatic dependent launch). Internal to codegen: includes LLVM.
#pragma once

#include <llvm/IR/Module.h>

#include "tensor/gpu.h"

namespace mcc::codegen {

// Whether kernels of this GPU can wait for those before them by themselves.
bool has_early_launch(const tensor::Gpu& gpu);

// Each kernel of the module waits for the launches before it ahead of anything that it reads or writes. For modules that the optimizer
// is done with: it moves reads across the wait, and finds out anew what is only read.
void wait_for_launches_before(llvm::Module& module);

}  // namespace mcc::codegen
