// The steps from an emitted module to machine code or text. Internal to codegen: includes LLVM.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <string>

namespace mcc::codegen {

// A module that LLVM finds wrong is a bug of ours.
void verify_module(const llvm::Module& module);

// Loops and vectors are already as the schedule wants them: what is left is to promote register tiles, share and hoist
// address arithmetic, and clean up.
void optimize_module(llvm::Module& module, llvm::TargetMachine& machine);

std::string module_text(const llvm::Module& module);

// Consumes the module.
std::string generate_code(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind);

}  // namespace mcc::codegen
