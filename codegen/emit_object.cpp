#include <llvm/IR/Module.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "codegen/codegen.h"
#include "codegen/kernel_emitter.h"
#include "codegen/machine.h"
#include "codegen/optimize.h"

namespace mcc::codegen {

namespace {

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

  verify_module(module);
  if (options.optimization > 0) optimize_module(module, *machine);

  ObjectCode code;
  if (options.keep_llvm_ir) code.llvm_ir = module_text(module);
  if (options.keep_assembly) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    code.assembly = generate_code(*copy, *machine, llvm::CodeGenFileType::AssemblyFile);
  }
  const std::string object = generate_code(module, *machine, llvm::CodeGenFileType::ObjectFile);
  code.bytes.assign(object.begin(), object.end());
  check_self_contained(code.bytes, symbol);
  return code;
}

}  // namespace mcc::codegen
