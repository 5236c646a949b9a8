// Bulk tensor copies and the mbarriers that say when they are done (PTX ISA 9.7.9.27 and 9.7.13.15), of which LLVM 19 knows some:
// inline assembly.
#include <llvm/IR/InlineAsm.h>

#include "codegen/kernel_emitter.h"
#include "tensor/intrinsics.h"

namespace mcc::codegen {

using namespace tensor;
using LlvmType = llvm::Type;

llvm::Value* KernelEmitter::shared_address(const Expr& place) {
  const auto* load = place.as<Load>();
  MCC_CHECK(load && load->indices.size() == 1, "a place in shared memory");
  Value* where = address(load->buffer, load->indices[0]);
  if (where->getType()->getPointerAddressSpace() != 3) where = b_.CreateAddrSpaceCast(where, b_.getPtrTy(3));
  return b_.CreatePtrToInt(where, b_.getInt32Ty());
}

llvm::CallInst* KernelEmitter::emit_text(LlvmType* result, const char* text, const char* constraints,
                                         const std::vector<Value*>& inputs) {
  std::vector<LlvmType*> types;
  for (Value* input : inputs)
    types.push_back(input->getType());
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints,
                                    /*hasSideEffects=*/true);
  return b_.CreateCall(code, inputs);
}

llvm::Value* KernelEmitter::emit_bulk(const Call& n) {
  Value* bar = shared_address(n.args[0]);
  LlvmType* none = b_.getVoidTy();
  auto narrow = [&](const Expr& e) { return b_.CreateTrunc(emit_index(e), b_.getInt32Ty()); };
  switch (n.function) {
    case Intrinsic::bulk_init:
      // One thread arrives in each phase: that which says what to expect.
      emit_text(none, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", {bar, b_.getInt32(1)});
      return b_.getTrue();
    case Intrinsic::bulk_expect:
      emit_text(none, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}",
                {bar, narrow(n.args[1])});
      return b_.getTrue();
    case Intrinsic::bulk_wait: {
      Value* parity = narrow(n.args[1]);
      llvm::BasicBlock *wait = new_block("wait"), *done = new_block("done");
      b_.CreateBr(wait);
      start(wait);
      Value* has_ended = emit_text(b_.getInt1Ty(), "mbarrier.try_wait.parity.shared::cta.b64 $0, [$1], $2;",
                                   "=b,r,r,~{memory}", {bar, parity});
      b_.CreateCondBr(has_ended, done, wait);
      start(done);
      return b_.getTrue();
    }
    default:
      break;
  }
  const size_t before = launch_->buffers.size() + launch_->dims.size();
  llvm::Argument* argument = function_->getArg(static_cast<unsigned>(before + launch_->map_of.at(&n)));
  emit_text(none,
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, "
            "$3}], [$4];",
            "r,l,r,r,r,~{memory}",
            {shared_address(n.args[1]), argument, narrow(n.args[7]), narrow(n.args[8]), bar});
  return b_.getTrue();
}

}  // namespace mcc::codegen
