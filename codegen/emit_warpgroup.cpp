// Products of warpgroups (PTX ISA 9.7.15, wgmma), of which LLVM 19 knows only the fences: inline assembly. What the products add to
// in registers while the threads go on is handed through each of its statements, so that LLVM keeps uses of it behind the wait.
#include <llvm/IR/InlineAsm.h>

#include "codegen/kernel_emitter.h"
#include "tensor/intrinsics.h"

namespace mcc::codegen {

using namespace tensor;
using LlvmType = llvm::Type;

namespace {

const char* ptx_name(ElementType factor) {
  switch (factor) {
    case ElementType::f16:
      return "f16";
    case ElementType::bf16:
      return "bf16";
    case ElementType::tf32:
      return "tf32";
    case ElementType::u8:
      return "u8";
    default:
      return "s8";
  }
}

}  // namespace

// Runs the text, which names the sums $0, $1, ... and then the inputs, and puts the sums back.
void KernelEmitter::emit_with_sums(const Load& sums, const std::string& text, std::vector<Value*> inputs) {
  const auto* ramp = sums.indices[0].as<Ramp>();
  int64_t first = 0;
  MCC_CHECK(ramp && as_int(ramp->base, &first) && is_int(ramp->stride, 1),
            "sums at other than constant places in ", sums.buffer.name());
  const int count = sums.type.lanes;
  const bool is_int = sums.type.element == ElementType::i32;
  LlvmType* type = is_int ? static_cast<LlvmType*>(b_.getInt32Ty()) : b_.getFloatTy();
  const char* place = is_int ? "=r" : "=f";
  std::vector<Value*> places, arguments;
  std::string outputs, tied, more;
  for (int i = 0; i < count; ++i) {
    places.push_back(address(sums.buffer, b_.getInt64(static_cast<uint64_t>(first + i))));
    arguments.push_back(b_.CreateAlignedLoad(type, places.back(), llvm::Align(4)));
    outputs += i > 0 ? std::string(",") + place : place;
    tied += "," + std::to_string(i);
  }
  for (Value* input : inputs)
    more += input->getType()->isIntegerTy(1) ? ",b" : ",l";
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  std::vector<LlvmType*> types;
  for (Value* argument : arguments)
    types.push_back(argument->getType());
  // Inputs are numbered behind the outputs and those tied to them.
  auto* results = llvm::StructType::get(context_, std::vector<LlvmType*>(static_cast<size_t>(count), type));
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(results, types, false), text,
                                    outputs + tied + more + ",~{memory}",
                                    /*hasSideEffects=*/true);
  llvm::CallInst* call = b_.CreateCall(code, arguments);
  call->addFnAttr(llvm::Attribute::Convergent);
  for (int i = 0; i < count; ++i) {
    b_.CreateAlignedStore(b_.CreateExtractValue(call, static_cast<unsigned>(i)),
                          places[static_cast<size_t>(i)], llvm::Align(4));
  }
}

// The operand's matrix descriptor (PTX ISA 9.7.15.5.1.2.2): bits 0 to 13 address, 16 to 29 leading, 32 to 45 stride byte offset,
// all in units of 16 bytes, 62 and 63 the swizzling: 1 of 128 bytes, 2 of 64, 3 of 32. Without it the leading offset is that from
// one square to the next along k, and the stride offset that to the next 8 rows; the same, by their meaning for transposed
// operands, across k. With it the stride offset leads to the next 8 rows in memory, and the leading one, of operands across k,
// to the next row's worth of columns. The hardware exchanges bits of addresses, so that what begins inside of rows (a later k)
// needs no more than its address; the base offset stays 0, since patterns begin at multiples of 1,024 bytes.
llvm::Value* KernelEmitter::matrix_descriptor(const Call& n, size_t first) {
  const auto* load = n.args[first].as<Load>();
  int64_t side = 0, along = 0, is_across = 0, swizzle = 0;
  MCC_CHECK(load && as_int(n.args[first + 1], &side) && as_int(n.args[first + 2], &along) &&
                as_int(n.args[first + 3], &is_across) && as_int(n.args[first + 4], &swizzle),
            "an operand of a product");
  constexpr int64_t kUnit = 16, kMost = 1 << 14;
  const int64_t bytes = byte_size(load->buffer.element());
  int64_t leading = along * bytes / kUnit, stride = side * bytes / kUnit;
  if (swizzle != 0 && is_across != 0) std::swap(leading, stride);
  if (swizzle != 0 && is_across == 0) leading = 1;  // not looked at
  MCC_CHECK(leading < kMost && stride < kMost, "squares too far apart in ", load->buffer.name());
  Value* where = vector_address(*load);
  if (where->getType()->getPointerAddressSpace() != 3) where = b_.CreateAddrSpaceCast(where, b_.getPtrTy(3));
  Value* start = b_.CreateLShr(b_.CreateAnd(b_.CreatePtrToInt(where, b_.getInt32Ty()), b_.getInt32(0x3ffff)),
                               b_.getInt32(4));
  const uint64_t layout = swizzle == 0 ? 0 : swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  const uint64_t offsets =
      static_cast<uint64_t>(leading) << 16 | static_cast<uint64_t>(stride) << 32 | layout << 62;
  return b_.CreateOr(b_.CreateZExt(start, b_.getInt64Ty()), b_.getInt64(offsets));
}

llvm::Value* KernelEmitter::emit_wgmma(const Call& n) {
  auto plain = [&](const char* text) {
    auto* code =
        llvm::InlineAsm::get(llvm::FunctionType::get(b_.getVoidTy(), false), text, "~{memory}", true);
    b_.CreateCall(code)->addFnAttr(llvm::Attribute::Convergent);
    return b_.getTrue();
  };
  if (n.function == Intrinsic::fence_async) return plain("fence.proxy.async.shared::cta;");
  if (n.function == Intrinsic::wgmma_commit) return plain("wgmma.commit_group.sync.aligned;");
  const auto* sums = n.args[0].as<Load>();
  MCC_CHECK(sums, "sums of a product");
  if (n.function == Intrinsic::wgmma_fence) {
    emit_with_sums(*sums, "wgmma.fence.sync.aligned;", {});
    return b_.getTrue();
  }
  int64_t a_across = 0, b_across = 0, left = 0;
  if (n.function == Intrinsic::wgmma_wait) {
    as_int(n.args[1], &left);
    emit_with_sums(*sums, "wgmma.wait_group.sync.aligned " + std::to_string(left) + ";", {});
    return b_.getTrue();
  }
  as_int(n.args[4], &a_across);
  as_int(n.args[9], &b_across);
  const int count = sums->type.lanes;
  std::string list;
  for (int i = 0; i < count; ++i)
    list += (i > 0 ? ", $" : "$") + std::to_string(i);
  auto input = [&](int i) { return ", $" + std::to_string(2 * count + i); };
  const ElementType right = right_element(n.function);
  const bool is_int = sums->type.element == ElementType::i32;
  // d, a, b, scale-d (a predicate: d is added to); of floats also signs of a and b, of 16 bits transpositions of a and b.
  const std::string transposed = byte_size(right) == 2 ? text(", ", a_across, ", ", b_across) : "";
  const std::string more = is_int ? "" : ", 1, 1" + transposed;
  emit_with_sums(*sums,
                 text("wgmma.mma_async.sync.aligned.m64n", 2 * count, "k", 2 * unit_elements(right), ".",
                      is_int ? "s32" : "f32", ".", ptx_name(left_element(n.function)), ".", ptx_name(right),
                      " {", list, "}", input(0), input(1), input(2), more, ";"),
                 {matrix_descriptor(n, 1), matrix_descriptor(n, 6), b_.getTrue()});
  return b_.getTrue();
}

}  // namespace mcc::codegen
