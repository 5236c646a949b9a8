#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <bit>

#include "codegen/kernel_emitter.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;
using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Intrinsic::ID;
using LlvmType = llvm::Type;

namespace {

ElementType element_of(const ExprNode& n) { return n.type.element; }

}  // namespace

bool has_load(const Expr& e) {
  class Finder : public Visitor {
   public:
    bool found = false;

   protected:
    using Visitor::on;
    void on(const Load&) override { found = true; }
  };
  Finder finder;
  finder.visit(e);
  return finder.found;
}

LlvmType* KernelEmitter::vector_of(LlvmType* scalar, int lanes) {
  return lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(lanes));
}

LlvmType* KernelEmitter::register_type(tensor::Type type) {
  LlvmType* scalar = nullptr;
  switch (type_class(type.element)) {
    case TypeClass::boolean:
      scalar = b_.getInt1Ty();
      break;
    case TypeClass::signed_int:
    case TypeClass::unsigned_int:
      scalar = b_.getIntNTy(static_cast<unsigned>(bit_width(type.element)));
      break;
    case TypeClass::floating:
      scalar = type.element == ElementType::f64 ? b_.getDoubleTy() : b_.getFloatTy();
      break;
    case TypeClass::string:
      MCC_UNREACHABLE("a string in a kernel");
  }
  return vector_of(scalar, type.lanes);
}

LlvmType* KernelEmitter::memory_type(ElementType element, int lanes) {
  LlvmType* scalar = nullptr;
  if (element == ElementType::f64) {
    scalar = b_.getDoubleTy();
  } else if (is_float(element) && !FloatFormats::is_narrow(element)) {
    scalar = b_.getFloatTy();
  } else {
    scalar = b_.getIntNTy(static_cast<unsigned>(8 * byte_size(element)));
  }
  return vector_of(scalar, lanes);
}

llvm::Value* KernelEmitter::emit(const Expr& e) {
  auto [it, is_new] = scope_.values.try_emplace(e.get(), nullptr);
  if (is_new) kept_.push_back(e);
  if (!is_new && it->second) return it->second;
  Value* value = dispatch(e, [this](const auto& node) { return on(node); });
  scope_.values[e.get()] = value;
  return value;
}

llvm::Value* KernelEmitter::emit_index(const Expr& e) {
  bool outer = std::exchange(in_index_, true);
  Value* value = on_device() && e.type() == kIndex ? widen(emit_bounded(e)) : emit(e);
  in_index_ = outer;
  return value;
}

llvm::Value* KernelEmitter::on(const IntImm& n) {
  return ConstantInt::get(register_type(n.type), static_cast<uint64_t>(n.value),
                          is_signed_int(element_of(n)));
}

llvm::Value* KernelEmitter::on(const FloatImm& n) { return ConstantFP::get(register_type(n.type), n.value); }

llvm::Value* KernelEmitter::on(const VarNode& n) {
  auto it = scope_.vars.find(&n);
  MCC_CHECK(it != scope_.vars.end(), "variable ", n.name, " is not bound");
  return it->second;
}

llvm::Value* KernelEmitter::on(const Ramp& n) {
  Value* base = emit(n.base);
  Value* stride = emit(n.stride);
  LlvmType* type = register_type(n.type);
  std::vector<Constant*> steps;
  for (int i = 0; i < n.type.lanes; ++i) {
    steps.push_back(ConstantInt::get(type->getScalarType(), static_cast<uint64_t>(i)));
  }
  unsigned lanes = static_cast<unsigned>(n.type.lanes);
  Value* offsets = b_.CreateMul(b_.CreateVectorSplat(lanes, stride), llvm::ConstantVector::get(steps));
  return b_.CreateAdd(b_.CreateVectorSplat(lanes, base), offsets);
}

llvm::Value* KernelEmitter::on(const Broadcast& n) {
  return b_.CreateVectorSplat(static_cast<unsigned>(n.type.lanes), emit(n.value));
}

llvm::Value* KernelEmitter::on(const Shuffle& n) {
  // Everything into one vector, padded where lengths differ. What is narrow in memory is moved as it is there.
  const bool is_narrow = FloatFormats::is_narrow(n.type.element) && !on_device();
  Value* all = nullptr;
  int total = 0;
  for (const Expr& part : n.vectors) {
    Value* v = emit(part);
    if (is_narrow) v = to_memory(n.type.element, v);
    if (part.lanes() == 1)
      v = b_.CreateInsertElement(llvm::PoisonValue::get(vector_of(v->getType(), 2)), v, uint64_t{0});
    int have = static_cast<int>(llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements());
    if (!all) {
      all = v;
      total = part.lanes();
      continue;
    }
    int joined = total + part.lanes();
    std::vector<int> widen_all, widen_part, mask;
    int width = std::max(joined, have);
    int all_width = static_cast<int>(llvm::cast<llvm::FixedVectorType>(all->getType())->getNumElements());
    for (int i = 0; i < width; ++i) {
      widen_all.push_back(i < all_width ? i : -1);
      widen_part.push_back(i < have ? i : -1);
      mask.push_back(i < total ? i : i < joined ? width + i - total : -1);
    }
    all = b_.CreateShuffleVector(b_.CreateShuffleVector(all, widen_all),
                                 b_.CreateShuffleVector(v, widen_part), mask);
    total = joined;
  }
  Value* out = n.indices.size() == 1 ? b_.CreateExtractElement(all, static_cast<uint64_t>(n.indices[0]))
                                     : b_.CreateShuffleVector(all, n.indices);
  return is_narrow ? from_memory(n.type.element, out) : out;
}

// ---- Select, reductions, intrinsics ----

llvm::Value* KernelEmitter::on(const Select& n) {
  Value* condition = emit(n.condition);
  bool guards = n.condition.lanes() == 1 && (has_load(n.on_true) || has_load(n.on_false));
  if (!guards) {
    Value* on_true = emit(n.on_true);
    Value* on_false = emit(n.on_false);
    return formats_.select(condition, on_true, on_false);
  }
  llvm::BasicBlock* blocks[2] = {new_block("then"), new_block("else")};
  llvm::BasicBlock* after = new_block("after");
  b_.CreateCondBr(condition, blocks[0], blocks[1]);
  Value* values[2] = {};
  auto outer_values = scope_.values;
  for (int side = 0; side < 2; ++side) {
    start(blocks[side]);
    scope_.values = outer_values;
    values[side] = emit(side == 0 ? n.on_true : n.on_false);
    blocks[side] = b_.GetInsertBlock();
    b_.CreateBr(after);
  }
  start(after);
  scope_.values = std::move(outer_values);
  llvm::PHINode* phi = b_.CreatePHI(values[0]->getType(), 2);
  for (int side = 0; side < 2; ++side)
    phi->addIncoming(values[side], blocks[side]);
  return phi;
}

// Halves the vector until one lane is left; what does not fit a power of two is folded in first.
llvm::Value* KernelEmitter::on(const VectorReduce& n) {
  Value* value = emit(n.value);
  int lanes = n.value.lanes();
  auto part = [&](int from, int count) {
    std::vector<int> mask;
    for (int i = 0; i < count; ++i)
      mask.push_back(from + i);
    return b_.CreateShuffleVector(value, mask);
  };
  // In an index the whole does not overflow, but its parts may.
  const bool in_index = std::exchange(in_index_, false);
  int width = static_cast<int>(std::bit_floor(static_cast<unsigned>(lanes)));
  if (width != lanes) {
    int extra = lanes - width;
    Value* low = part(0, width);
    // Lanes without a partner meet themselves, and keep their own value.
    std::vector<int> mask, keep;
    for (int i = 0; i < width; ++i)
      mask.push_back(i < extra ? width + i : i);
    Value* folded = binary(n.op, element_of(n), low, b_.CreateShuffleVector(value, mask));
    for (int i = 0; i < width; ++i)
      keep.push_back(i < extra ? width + i : i);
    value = b_.CreateShuffleVector(low, folded, keep);
  }
  while (width > 1) {
    width /= 2;
    value = binary(n.op, element_of(n), part(0, width), part(width, width));
  }
  in_index_ = in_index;
  return b_.CreateExtractElement(value, uint64_t{0});
}

// vdpbf16ps; vpmaddwd of numbers of 16 bits and bytes that are widened (vpmovsxbw); or vpdpbusd: bytes of the second operand unsigned,
// of the third one signed; no sum saturates. Without it products of pairs of bytes where the unsigned ones are small (vpmaddubsw, whose sums of
// two saturate otherwise), else two products of pairs of 16-bit numbers: the even bytes of both operands, and the odd ones.
llvm::Value* KernelEmitter::emit_dot(const Call& n) {
  const int lanes = n.type.lanes;
  Value* sums = emit(n.args[0]);
  // As they stand in memory: narrow floats are widened otherwise.
  auto words = [&](const Expr& e) { return to_memory(e.element(), emit(e)); };
  Value* a = b_.CreateVectorSplat(static_cast<unsigned>(lanes), b_.CreateBitCast(words(n.args[1]), b_.getInt32Ty()));
  Value* b = words(n.args[2]);
  if (n.function == Intrinsic::dot2_bf16) {
    const ID product = lanes == 16  ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512
                       : lanes == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                    : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
    LlvmType* pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), 2U * static_cast<unsigned>(lanes));
    // The last operand may come from memory, also a word for all lanes: read by an instruction of its own, tiles of single vectors
    // take a third longer on Zen 4. Products are the same either way.
    return b_.CreateIntrinsic(product, {}, {sums, b_.CreateBitCast(b, pairs), b_.CreateBitCast(a, pairs)});
  }
  LlvmType* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), 2U * static_cast<unsigned>(lanes));
  auto products = [&](Value* left, Value* right) {
    const ID product = lanes == 16  ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                       : lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                    : llvm::Intrinsic::x86_sse2_pmadd_wd;
    return b_.CreateIntrinsic(product, {}, {left, right});
  };
  if (n.function == Intrinsic::dot2_i16i8)
    return b_.CreateAdd(sums, products(b_.CreateBitCast(a, halves), b_.CreateSExt(b, halves)));
  b = b_.CreateBitCast(b, sums->getType());
  if (n.function == Intrinsic::dot4_i8u8) std::swap(a, b);
  if (takes_bytes_apart(target_)) {
    MCC_CHECK(lanes == 8, "a dot product of ", lanes, " lanes of bytes taken apart");
    const auto* unsigned_side = n.args[n.function == Intrinsic::dot4_i8u8 ? 2 : 1].as<Load>();
    if (unsigned_side && small_bytes_.contains(unsigned_side->buffer.get())) {
      LlvmType* bytes = llvm::FixedVectorType::get(b_.getInt8Ty(), 4U * static_cast<unsigned>(lanes));
      Value* pairs = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_pmadd_ub_sw, {},
                                        {b_.CreateBitCast(a, bytes), b_.CreateBitCast(b, bytes)});
      return b_.CreateAdd(sums, products(pairs, llvm::ConstantInt::get(halves, 1)));
    }
    a = b_.CreateBitCast(a, halves);
    b = b_.CreateBitCast(b, halves);
    Value* even = products(b_.CreateAnd(a, 255), b_.CreateAShr(b_.CreateShl(b, 8), 8));
    Value* odd = products(b_.CreateLShr(a, 8), b_.CreateAShr(b, 8));
    return b_.CreateAdd(sums, b_.CreateAdd(even, odd));
  }
  return b_.CreateIntrinsic(lanes == 16 ? llvm::Intrinsic::x86_avx512_vpdpbusd_512 : llvm::Intrinsic::x86_avx512_vpdpbusd_256,
                            {}, {sums, a, b});
}

llvm::Value* KernelEmitter::emit_prefetch(const Call& n) {
  if (on_device()) return b_.getTrue();  // warps hide latencies instead
  const auto* target = n.args[0].as<Load>();
  int64_t locality = 0;
  MCC_CHECK(target && as_int(n.args[1], &locality), "prefetch takes a load and a constant");
  Value* where = address(target->buffer, target->indices[0]);
  return b_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {where->getType()},
      {where, b_.getInt32(0), b_.getInt32(static_cast<uint32_t>(locality)), b_.getInt32(1)});
}

llvm::Value* KernelEmitter::on(const Call& n) {
  if (n.function == Intrinsic::prefetch) return emit_prefetch(n);
  if (n.function == Intrinsic::barrier) return emit_barrier();
  if (class_of(n.function) == IntrinsicClass::exchange) {
    Value* value = emit(n.args[0]);
    return emit_shuffle(n.function, value, emit(n.args[1]));
  }
  if (class_of(n.function) == IntrinsicClass::rows) return emit_matrix_rows(n);
  if (class_of(n.function) == IntrinsicClass::mma) return emit_mma(n);
  if (class_of(n.function) == IntrinsicClass::async) return emit_async(n);
  if (class_of(n.function) == IntrinsicClass::dot) return on_device() ? emit_dp4a(n) : emit_dot(n);
  if (class_of(n.function) == IntrinsicClass::wgmma) return emit_wgmma(n);
  if (class_of(n.function) == IntrinsicClass::bulk) return emit_bulk(n);
  if (class_of(n.function) == IntrinsicClass::tile) return emit_tile(n);
  return emit_lanewise(n);
}

// Functions of numbers, lane by lane.
llvm::Value* KernelEmitter::emit_lanewise(const Call& n) {
  std::vector<Value*> args;
  for (const Expr& a : n.args)
    args.push_back(emit(a));
  Value* x = args[0];
  ElementType element = n.args[0].element();
  auto unary = [&](ID id) { return b_.CreateUnaryIntrinsic(id, x); };
  // Rounding functions do nothing to integers; narrow floats hold every result exactly.
  auto rounding = [&](ID id) { return is_float(element) ? unary(id) : x; };
  switch (n.function) {
    case Intrinsic::sqrt:
      return formats_.round(element, unary(llvm::Intrinsic::sqrt));
    case Intrinsic::floor:
      return rounding(llvm::Intrinsic::floor);
    case Intrinsic::ceil:
      return rounding(llvm::Intrinsic::ceil);
    case Intrinsic::round:
      return rounding(llvm::Intrinsic::roundeven);
    case Intrinsic::trunc:
      return rounding(llvm::Intrinsic::trunc);
    case Intrinsic::exp2_approx:
    case Intrinsic::reciprocal_approx:
    case Intrinsic::rsqrt_approx:
      return emit_approximation(n.function, x);
    case Intrinsic::fma:
      return emit_fma(element, x, args[1], args[2]);
    case Intrinsic::mul_sum:
      return emit_fma(element, x, args[1], formats_.round(element, b_.CreateFMul(x, args[2])));
    case Intrinsic::abs:
      if (is_float(element)) return unary(llvm::Intrinsic::fabs);
      return is_signed_int(element) ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b_.getFalse()) : x;
    case Intrinsic::is_nan:
      return b_.CreateFCmpUNO(x, x);
    case Intrinsic::is_inf:
      return b_.CreateFCmpOEQ(unary(llvm::Intrinsic::fabs), ConstantFP::getInfinity(x->getType()));
    case Intrinsic::logical_not:
    case Intrinsic::bit_not:
      return b_.CreateNot(x);
    case Intrinsic::popcount:
      return unary(llvm::Intrinsic::ctpop);
    case Intrinsic::bit_cast: {
      Value* bits = b_.CreateBitCast(to_memory(element, x), memory_type(n.type.element, n.type.lanes));
      return from_memory(n.type.element, bits);
    }
    case Intrinsic::likely:
      return n.type.lanes > 1
                 ? x
                 : b_.CreateIntrinsic(llvm::Intrinsic::expect, {x->getType()}, {x, b_.getTrue()});
    case Intrinsic::prefetch:  // no such functions
    case Intrinsic::dot4_u8i8:
    case Intrinsic::dot4_i8u8:
    case Intrinsic::dot4_i8i8:
    case Intrinsic::dot2_i16i8:
    case Intrinsic::dot2_bf16:
#define X(name) case Intrinsic::name:
    MCC_THREAD_INTRINSICS(X)
    MCC_TILE_INTRINSICS(X)
    MCC_EXPANDED_INTRINSICS(X)
    MCC_RANDOM_INTRINSICS(X)
#undef X
      break;
  }
  MCC_UNREACHABLE(tensor::to_text(n.function), " reached code generation; lower_math expands it");
}

}  // namespace mcc::codegen
