#include "codegen/narrow_pairs.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace mcc::codegen {
namespace {

// Two to a register, which their vector is made of.
llvm::Value* narrow_vector(llvm::IRBuilder<>& b, llvm::Value* wide, llvm::FixedVectorType* to) {
  const bool is_half = to->getElementType()->isHalfTy();
  const unsigned lanes = to->getNumElements();
  llvm::Value* registers = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt32Ty(), lanes / 2));
  for (unsigned k = 0; k < lanes; k += 2) {
    llvm::Value* pair = b.CreateIntrinsic(
        is_half ? llvm::Intrinsic::nvvm_ff2f16x2_rn : llvm::Intrinsic::nvvm_ff2bf16x2_rn, {},
        {b.CreateExtractElement(wide, uint64_t{k} + 1), b.CreateExtractElement(wide, uint64_t{k})});
    if (lanes == 2) return pair;
    registers = b.CreateInsertElement(registers, b.CreateBitCast(pair, b.getInt32Ty()), uint64_t{k} / 2);
  }
  return b.CreateBitCast(registers, to);
}

llvm::Value* narrow(llvm::IRBuilder<>& b, llvm::Value* wide, llvm::Type* to) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(to);
  if (vector != nullptr && vector->getNumElements() % 2 == 0) return narrow_vector(b, wide, vector);
  if (vector == nullptr && to->isBFloatTy())
    return b.CreateIntrinsic(llvm::Intrinsic::nvvm_f2bf16_rn, {}, {wide});
  if (vector == nullptr || !vector->getElementType()->isBFloatTy()) return nullptr;
  llvm::Value* all = llvm::PoisonValue::get(to);
  for (unsigned k = 0; k < vector->getNumElements(); ++k) {
    llvm::Value* one =
        b.CreateIntrinsic(llvm::Intrinsic::nvvm_f2bf16_rn, {}, {b.CreateExtractElement(wide, uint64_t{k})});
    all = b.CreateInsertElement(all, one, uint64_t{k});
  }
  return all;
}

}  // namespace

bool has_narrow_pairs(const tensor::Gpu& gpu) { return gpu.sm() >= 80; }

void narrow_in_pairs(llvm::Module& module) {
  for (llvm::Function& function : module) {
    for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto* conversion = llvm::dyn_cast<llvm::FPTruncInst>(&i);
      if (conversion == nullptr || !conversion->getSrcTy()->getScalarType()->isFloatTy()) continue;
      llvm::IRBuilder<> b(conversion);
      llvm::Value* made = narrow(b, conversion->getOperand(0), conversion->getType());
      if (made == nullptr) continue;
      conversion->replaceAllUsesWith(made);
      conversion->eraseFromParent();
    }
  }
}

}  // namespace mcc::codegen
