// LLVM's view of a target. Internal to codegen: includes LLVM.
#pragma once

#include <llvm/Target/TargetMachine.h>

#include <memory>

#include "tensor/target.h"

namespace mcc::codegen {

// Registers the two back ends once in a process; safe from any thread.
void initialize_llvm();

// LLVM's global options as we want them. LLD sets all of them back to LLVM's defaults: to be called behind it, and while nobody else
// generates code.
void set_llvm_options();

// A machine of its own for each call: LLVM's are not to be shared between threads.
std::unique_ptr<llvm::TargetMachine> create_machine(const tensor::Target& target, int optimization);

}  // namespace mcc::codegen
