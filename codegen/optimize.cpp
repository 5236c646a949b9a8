#include "codegen/optimize.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include "support/check.h"

namespace mcc::codegen {

namespace {

constexpr const char* kPasses =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse<"
    "memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg),globaldce";
// Threads' indices say how far addresses are aligned: what lets vectors be loaded and stored at once.
constexpr const char* kDevicePasses =
    "always-inline,function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse<"
    "memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg,infer-alignment),globaldce";

// As TargetMachine::addPassesToEmitFile, but sums stay in the order in which a schedule makes them: LLVM's MachineCombiner would add products
// of integers to each other first, to shorten chains, and registers that hold a tile's sums have no room for those.
void add_passes(llvm::TargetMachine& machine, llvm::legacy::PassManager& passes, llvm::raw_pwrite_stream& out,
                llvm::CodeGenFileType kind) {
  auto& target = static_cast<llvm::LLVMTargetMachine&>(machine);
  llvm::TargetPassConfig* config = target.createPassConfig(passes);
  config->disablePass(&llvm::MachineCombinerID);
  passes.add(config);
  auto* info = new llvm::MachineModuleInfoWrapperPass(&target);  // the pass manager's
  passes.add(info);
  bool refused = config->addISelPasses();
  if (!refused) {
    config->addMachinePasses();
    config->setInitialized();
    refused = target.addAsmPrinter(passes, out, nullptr, kind, info->getMMI().getContext());
  }
  MCC_CHECK(!refused, "the target cannot emit this kind of file");
  passes.add(llvm::createFreeMachineFunctionPass());
}

}  // namespace

void verify_module(const llvm::Module& module) {
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  MCC_CHECK(!llvm::verifyModule(module, &stream), "LLVM IR of ", module.getName().str(), ": ", problem);
}

void optimize_module(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  llvm::Error error =
      builder.parsePassPipeline(passes, machine.getTargetTriple().isNVPTX() ? kDevicePasses : kPasses);
  MCC_CHECK(!error, "pass list: ", llvm::toString(std::move(error)));
  passes.run(module, modules);
}

std::string module_text(const llvm::Module& module) {
  std::string out;
  llvm::raw_string_ostream stream(out);
  module.print(stream, nullptr);
  return out;
}

std::string generate_code(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  add_passes(machine, passes, stream, kind);
  passes.run(module);
  return {bytes.begin(), bytes.end()};
}

}  // namespace mcc::codegen
