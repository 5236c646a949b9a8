#include "codegen/early_launch.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Instructions.h>

namespace mcc::codegen {

bool has_early_launch(const tensor::Gpu& gpu) { return gpu.sm() >= 90; }

void wait_for_launches_before(llvm::Module& module) {
  for (llvm::Function& function : module) {
    if (function.getCallingConv() != llvm::CallingConv::PTX_Kernel) continue;
    // By way of the read-only cache (ld.global.nc) the assembler, which takes such memory to be the same all the time, would read
    // ahead of the wait.
    for (llvm::Argument& argument : function.args())
      argument.removeAttr(llvm::Attribute::ReadOnly);
    llvm::IRBuilder<> b(&*function.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    auto* type = llvm::FunctionType::get(b.getVoidTy(), false);
    b.CreateCall(type, llvm::InlineAsm::get(type, "griddepcontrol.wait;", "~{memory}", /*hasSideEffects=*/true));
  }
}

}  // namespace mcc::codegen
