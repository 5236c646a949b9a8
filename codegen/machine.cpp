#include "codegen/machine.h"

#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>

#include <mutex>

#include "support/check.h"

extern "C" {
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
void LLVMInitializeX86AsmParser();
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace mcc::codegen {

namespace {

void set_option(const char* name, unsigned value) {
  llvm::StringMap<llvm::cl::Option*>& options = llvm::cl::getRegisteredOptions();
  auto it = options.find(name);
  MCC_CHECK(it != options.end(), "LLVM has no option ", name);
  static_cast<llvm::cl::opt<unsigned>*>(it->second)->setValue(value);
}

}  // namespace

// The machine scheduler's graph has an edge for each pair of accesses that may touch the same memory: at LLVM's default of
// 1000 accesses in a block, one large unrolled tile takes half a second. Beyond 200 the older half of them becomes one
// barrier; 0.35 s become 0.08 s, and blocks of usual size stay as they are.
void set_llvm_options() {
  set_option("dag-maps-huge-region", 200);
  set_option("dag-maps-reduction-size", 100);
}

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    set_llvm_options();
  });
}

std::unique_ptr<llvm::TargetMachine> create_machine(const tensor::Target& target, int optimization) {
  initialize_llvm();
  std::string error;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(target.triple, error);
  MCC_CHECK(llvm_target, error);
  llvm::CodeGenOptLevel level = optimization <= 0   ? llvm::CodeGenOptLevel::None
                                : optimization == 1 ? llvm::CodeGenOptLevel::Less
                                : optimization == 2 ? llvm::CodeGenOptLevel::Default
                                                    : llvm::CodeGenOptLevel::Aggressive;
  llvm::TargetOptions options;
  options.UseInitArray = true;
  std::unique_ptr<llvm::TargetMachine> machine(llvm_target->createTargetMachine(
      target.triple, target.cpu, target.features, options, llvm::Reloc::PIC_, std::nullopt, level));
  MCC_CHECK(machine, "no target machine for ", target.name);
  return machine;
}

}  // namespace mcc::codegen
