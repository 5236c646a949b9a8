#include "codegen/keep_sums.h"

#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include <utility>
#include <vector>

namespace mcc::codegen {

namespace {

// Constants in vectors that what is computed of the sums keeps at hand: a function such as erf has a dozen. Fewer are read where
// they are used.
constexpr size_t kManyConstants = 6;

// A store and a load are little beside as many additions to each sum.
constexpr size_t kManyAdditions = 128;

// Besides sums a loop holds its operands.
constexpr int kOperands = 8;

struct Sum {
  llvm::Instruction* value;      // in the loop
  std::vector<llvm::Use*> uses;  // behind it
};

// What the loop's vector has as uses behind it, by way of the phis with one source that stand at a loop's end. False where another phi
// takes it: its load would have to stand in the block before.
bool uses_behind(llvm::Value* value, const llvm::Loop& loop, std::vector<llvm::Use*>* uses) {
  for (llvm::Use& use : value->uses()) {
    auto* user = llvm::cast<llvm::Instruction>(use.getUser());
    if (loop.contains(user)) continue;
    auto* phi = llvm::dyn_cast<llvm::PHINode>(user);
    if (!phi) {
      uses->push_back(&use);
    } else if (phi->getNumIncomingValues() != 1 || !uses_behind(phi, loop, uses)) {
      return false;
    }
  }
  return true;
}

std::vector<Sum> sums_of(const llvm::Loop& loop) {
  std::vector<Sum> sums;
  for (llvm::BasicBlock* block : loop.blocks()) {
    for (llvm::Instruction& instruction : *block) {
      if (!instruction.getType()->isVectorTy()) continue;
      Sum sum{&instruction, {}};
      if (uses_behind(&instruction, loop, &sum.uses) && !sum.uses.empty()) sums.push_back(std::move(sum));
    }
  }
  return sums;
}

size_t vector_constants(const llvm::BasicBlock& block) {
  llvm::SmallPtrSet<const llvm::Constant*, 32> found;
  for (const llvm::Instruction& instruction : block) {
    for (const llvm::Value* operand : instruction.operand_values()) {
      const auto* constant = llvm::dyn_cast<llvm::Constant>(operand);
      if (constant && constant->getType()->isVectorTy() && !constant->isNullValue() &&
          !llvm::isa<llvm::UndefValue>(constant)) {
        found.insert(constant);
      }
    }
  }
  return found.size();
}

// How often each sum is added to, on average; 0 where the number of turns is not known.
size_t additions(llvm::Loop& loop, size_t sums, llvm::ScalarEvolution& evolution) {
  size_t count = 0;
  for (const llvm::BasicBlock* block : loop.blocks()) {
    for (const llvm::Instruction& instruction : *block) {
      const unsigned opcode = instruction.getOpcode();
      const bool adds = opcode == llvm::Instruction::FAdd || opcode == llvm::Instruction::Add ||
                        llvm::isa<llvm::IntrinsicInst>(instruction);
      count += adds && instruction.getType()->isVectorTy();
    }
  }
  return count * evolution.getSmallConstantTripCount(&loop) / sums;
}

// Volatile, as LLVM would hand stored values on to loads.
void keep_in_memory(const Sum& sum, llvm::BasicBlock* exit) {
  llvm::Function* function = exit->getParent();
  llvm::Type* type = sum.value->getType();
  llvm::IRBuilder<> entry(&function->getEntryBlock(), function->getEntryBlock().begin());
  llvm::AllocaInst* place = entry.CreateAlloca(type);
  for (llvm::Use* use : sum.uses) {
    llvm::IRBuilder<> at(llvm::cast<llvm::Instruction>(use->getUser()));
    use->set(at.CreateLoad(type, place, /*isVolatile=*/true));
  }
  llvm::IRBuilder<> end(exit, exit->getFirstInsertionPt());
  end.CreateStore(sum.value, place, /*isVolatile=*/true);
}

}  // namespace

void keep_sums_in_loops(llvm::Module& module, int registers) {
  const llvm::TargetLibraryInfoImpl calls(llvm::Triple(module.getTargetTriple()));
  llvm::TargetLibraryInfo library(calls);
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    llvm::DominatorTree dominators(function);
    llvm::LoopInfo loops(dominators);
    llvm::AssumptionCache assumptions(function);
    llvm::ScalarEvolution evolution(function, library, assumptions, dominators, loops);
    for (llvm::Loop* loop : loops.getLoopsInPreorder()) {
      llvm::BasicBlock* exit = loop->getExitBlock();
      if (!loop->isInnermost() || !exit || !exit->getSinglePredecessor()) continue;
      const std::vector<Sum> sums = sums_of(*loop);
      if (static_cast<int>(sums.size()) + kOperands < registers || vector_constants(*exit) < kManyConstants ||
          additions(*loop, sums.size(), evolution) < kManyAdditions) {
        continue;
      }
      for (const Sum& sum : sums)
        keep_in_memory(sum, exit);
    }
  }
}

}  // namespace mcc::codegen
