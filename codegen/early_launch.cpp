#include "codegen/early_launch.h"

#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Instructions.h>

namespace mcc::codegen {
namespace {

constexpr unsigned kGlobalSpace = 1;
// Of a thread, for values that are read ahead of writes: more would be taken from sums.
constexpr int64_t kRegistersAhead = 32;

// Reads an argument's memory that the kernel does not write.
bool is_read_only(const llvm::Instruction& i) {
  const auto* load = llvm::dyn_cast<llvm::LoadInst>(&i);
  if (load == nullptr || load->isVolatile()) return false;
  const auto* argument = llvm::dyn_cast<llvm::Argument>(llvm::getUnderlyingObject(load->getPointerOperand(), /*MaxLookup=*/0));
  return argument != nullptr && argument->hasNoAliasAttr() && argument->onlyReadsMemory();
}

bool is_global_store(const llvm::Instruction& i) {
  const auto* store = llvm::dyn_cast<llvm::StoreInst>(&i);
  return store != nullptr && store->getPointerAddressSpace() == kGlobalSpace;
}

// What the instruction is computed of in its block, from `place` on, each behind its operands and itself the last. False where some
// of that is bound to its place.
bool collect_from(const llvm::Instruction* place, llvm::Instruction* i, llvm::SetVector<llvm::Instruction*>* found) {
  for (llvm::Value* operand : i->operands()) {
    auto* of = llvm::dyn_cast<llvm::Instruction>(operand);
    if (of == nullptr || of->getParent() != place->getParent() || of->comesBefore(place) || found->contains(of)) continue;
    if (of->mayReadOrWriteMemory() || llvm::isa<llvm::PHINode>(of) || !collect_from(place, of, found)) return false;
  }
  found->insert(i);
  return true;
}

bool move_before(llvm::Instruction* place, llvm::Instruction* i) {
  llvm::SetVector<llvm::Instruction*> moved;
  if (!collect_from(place, i, &moved)) return false;
  for (llvm::Instruction* part : moved)
    part->moveBefore(place);
  return true;
}

// Of reads and writes by turns, as the end of a product with a residual has them, several reads come ahead of the writes: so that a
// thread waits for memory once, not for each. The assembler does so itself where it knows that what is read is never written.
void read_ahead(llvm::BasicBlock& block) {
  llvm::Instruction* first = nullptr;  // of the writes that reads are moved ahead of
  int64_t left = 0;
  for (llvm::Instruction& i : llvm::make_early_inc_range(block)) {
    if (is_global_store(i)) {
      if (first != nullptr) continue;
      first = &i;
      left = kRegistersAhead;
    } else if (first != nullptr && is_read_only(i)) {
      constexpr int64_t kBytes = 4;  // of a register
      const llvm::TypeSize size = block.getDataLayout().getTypeStoreSize(i.getType());
      left -= (static_cast<int64_t>(size.getFixedValue()) + kBytes - 1) / kBytes;
      if (left < 0 || !move_before(first, &i)) first = nullptr;
    } else if (i.mayHaveSideEffects() && !llvm::isa<llvm::StoreInst>(i)) {
      first = nullptr;
    }
  }
}

}  // namespace

bool has_early_launch(const tensor::Gpu& gpu) { return gpu.sm() >= 90; }

void wait_for_launches_before(llvm::Module& module) {
  for (llvm::Function& function : module) {
    if (function.getCallingConv() != llvm::CallingConv::PTX_Kernel) continue;
    for (llvm::BasicBlock& block : function)
      read_ahead(block);
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
