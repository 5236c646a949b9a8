#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "codegen/codegen.h"
#include "codegen/kernel_emitter.h"
#include "codegen/machine.h"

namespace mcc::codegen {

namespace {

// Loops and vectors are already as the schedule wants them: what is left is to promote register tiles, share and
// hoist address arithmetic, and clean up.
constexpr const char* kPasses =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse<"
    "memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg),globaldce";

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
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
  llvm::Error error = builder.parsePassPipeline(passes, kPasses);
  MCC_CHECK(!error, "pass list: ", llvm::toString(std::move(error)));
  passes.run(module, modules);
}

llvm::SmallVector<char, 0> generate(llvm::Module& module, llvm::TargetMachine& machine,
                                    llvm::CodeGenFileType kind) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  bool refused = machine.addPassesToEmitFile(passes, stream, nullptr, kind);
  MCC_CHECK(!refused, "the target cannot emit this kind of file");
  passes.run(module);
  return bytes;
}

// Kernels link against nothing: a call into libm or libc would be a mistake of ours.
void check_self_contained(const std::vector<char>& object, const std::string& symbol) {
  llvm::MemoryBufferRef buffer(llvm::StringRef(object.data(), object.size()), symbol);
  auto file = llvm::object::ObjectFile::createObjectFile(buffer);
  MCC_CHECK(static_cast<bool>(file), "object of ", symbol, ": ", llvm::toString(file.takeError()));
  for (const llvm::object::SymbolRef& s : (*file)->symbols()) {
    llvm::Expected<uint32_t> flags = s.getFlags();
    llvm::Expected<llvm::StringRef> name = s.getName();
    MCC_CHECK(flags && name, "symbols of ", symbol);
    bool is_undefined = (*flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name->empty();
    MCC_CHECK(!is_undefined, "kernel ", symbol, " needs ", name->str());
  }
}

}  // namespace

Result<ObjectCode> emit_object(const tensor::Func& lowered, const std::string& symbol,
                               const tensor::Target& target, const EmitOptions& options) {
  Result<MemoryPlan> memory = plan_memory(lowered);
  if (!memory) return memory.errors();
  std::unique_ptr<llvm::TargetMachine> machine = create_machine(target, options.optimization);
  llvm::LLVMContext context;
  llvm::Module module(symbol, context);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine->createDataLayout());
  KernelEmitter(module, target, options, *memory).emit(lowered, symbol);

  std::string problem;
  llvm::raw_string_ostream problem_stream(problem);
  MCC_CHECK(!llvm::verifyModule(module, &problem_stream), "LLVM IR of ", symbol, ": ", problem);
  if (options.optimization > 0) optimize(module, *machine);

  ObjectCode code;
  if (options.keep_llvm_ir) {
    llvm::raw_string_ostream stream(code.llvm_ir);
    module.print(stream, nullptr);
  }
  if (options.keep_assembly) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    auto assembly = generate(*copy, *machine, llvm::CodeGenFileType::AssemblyFile);
    code.assembly.assign(assembly.begin(), assembly.end());
  }
  auto object = generate(module, *machine, llvm::CodeGenFileType::ObjectFile);
  code.bytes.assign(object.begin(), object.end());
  check_self_contained(code.bytes, symbol);
  return code;
}

}  // namespace mcc::codegen
