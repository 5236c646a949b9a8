#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "codegen/codegen.h"
#include "codegen/keep_sums.h"
#include "codegen/kernel_emitter.h"
#include "codegen/machine.h"
#include "codegen/optimize.h"
#include "tensor/instructions.h"

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

// Comparisons of halves are comparisons of f32 again. The optimizer makes one of the other, which without instructions for halves
// becomes scalar code.
void compare_halves_in_f32(llvm::Module& module) {
  for (llvm::Function& function : module) {
    for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto* compare = llvm::dyn_cast<llvm::FCmpInst>(&i);
      if (!compare || !compare->getOperand(0)->getType()->getScalarType()->isHalfTy()) continue;
      llvm::IRBuilder<> b(compare);
      llvm::Type* wide = compare->getOperand(0)->getType()->getWithNewType(b.getFloatTy());
      for (unsigned n = 0; n < 2; ++n)
        compare->setOperand(n, b.CreateFPExt(compare->getOperand(n), wide));
    }
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
  if (options.optimization > 0) {
    optimize_module(module, *machine);
    keep_sums_in_loops(module, target.vector_registers);
  }
  if (!has_feature(target, "avx512fp16")) compare_halves_in_f32(module);

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
