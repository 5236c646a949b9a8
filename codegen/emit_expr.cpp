#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <bit>
#include <cmath>

#include "codegen/kernel_emitter.h"
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

Constant* zero_like(llvm::Value* v) { return Constant::getNullValue(v->getType()); }

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
  // Everything into one vector, padded where lengths differ.
  Value* all = nullptr;
  int total = 0;
  for (const Expr& part : n.vectors) {
    Value* v = emit(part);
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
  if (n.indices.size() == 1) return b_.CreateExtractElement(all, static_cast<uint64_t>(n.indices[0]));
  return b_.CreateShuffleVector(all, n.indices);
}

// ---- Conversion ----

// Floats to integers of few bits, whose limits are floats: as i32, which vectors have instructions for. LLVM takes saturating
// conversions of vectors apart.
llvm::Value* KernelEmitter::saturate_narrow(ElementType dst, LlvmType* type, Value* value) {
  const int width = bit_width(dst);
  const double span = std::ldexp(1.0, width), low = is_signed_int(dst) ? -span / 2 : 0;
  auto limit = [&](double x) { return ConstantFP::get(value->getType(), x); };
  if (low < 0) value = b_.CreateSelect(b_.CreateFCmpUNO(value, value), limit(0), value);
  value = b_.CreateSelect(b_.CreateFCmpOGT(value, limit(low)), value, limit(low));  // a NaN, too, is the limit: 0
  value = b_.CreateSelect(b_.CreateFCmpOLT(value, limit(low + span - 1)), value, limit(low + span - 1));
  const auto lanes = llvm::cast<llvm::FixedVectorType>(value->getType())->getNumElements();
  return b_.CreateTrunc(b_.CreateFPToSI(value, vector_of(b_.getInt32Ty(), static_cast<int>(lanes))), type);
}

llvm::Value* KernelEmitter::convert(tensor::Type from, tensor::Type to, Value* value) {
  LlvmType* type = register_type(to);
  ElementType src = from.element, dst = to.element;
  if (is_bool(dst)) {
    if (is_bool(src)) return value;
    return is_float(src) ? b_.CreateFCmpUNE(value, zero_like(value))
                         : b_.CreateICmpNE(value, zero_like(value));
  }
  if (is_float(src) && is_float(dst)) {
    if (dst == ElementType::f64) return src == ElementType::f64 ? value : b_.CreateFPExt(value, type);
    if (src == ElementType::f64) {
      value = FloatFormats::is_inexact(dst) ? formats_.narrow_to_odd(value) : b_.CreateFPTrunc(value, type);
    }
    return formats_.round(dst, value);
  }
  if (is_float(src)) {
    if (to.lanes > 1 && bit_width(dst) <= 16 && !on_device()) return saturate_narrow(dst, type, value);
    ID id = is_signed_int(dst) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {type, value->getType()}, {value});
  }
  if (is_float(dst)) {
    bool is_signed = is_signed_int(src);
    if (!FloatFormats::is_inexact(dst)) {
      return is_signed ? b_.CreateSIToFP(value, type) : b_.CreateUIToFP(value, type);
    }
    // Wide integers go through double, so that only one rounding happens.
    bool is_exact = bit_width(src) <= 16;
    LlvmType* middle = is_exact ? type : vector_of(b_.getDoubleTy(), to.lanes);
    Value* wide = is_signed ? b_.CreateSIToFP(value, middle) : b_.CreateUIToFP(value, middle);
    return formats_.round(dst, is_exact ? wide : formats_.narrow_to_odd(wide));
  }
  return is_signed_int(src) ? b_.CreateSExtOrTrunc(value, type) : b_.CreateZExtOrTrunc(value, type);
}

llvm::Value* KernelEmitter::on(const Cast& n) { return convert(n.value.type(), n.type, emit(n.value)); }

// ---- Arithmetic ----

llvm::Value* KernelEmitter::on(const Binary& n) {
  if (on_device() && n.type == kIndex) return widen(bounded_binary(n));
  if (on_device())
    if (Value* compared = narrow_comparison(n)) return compared;
  Value* a = emit(n.a);
  Value* b = emit(n.b);
  ElementType element = n.a.element();
  if (is_float(element)) return float_binary(n, a, b);
  if (is_bool(element)) return bool_binary(n, a, b);
  return int_binary(n, a, b);
}

// A NaN operand gives NaN: the comparison is false for a NaN in either operand, which picks the second.
llvm::Value* KernelEmitter::float_min_max(bool is_min, Value* a, Value* b) {
  auto is_number = [](Value* v) {
    auto* constant = llvm::dyn_cast<Constant>(v);
    if (!constant) return false;
    if (constant->getType()->isVectorTy()) constant = constant->getSplatValue();
    auto* number = llvm::dyn_cast_or_null<ConstantFP>(constant);
    return number && !number->isNaN();
  };
  auto pick = [&](Value* x, Value* y) {
    Value* first = is_min ? b_.CreateFCmpOLT(x, y) : b_.CreateFCmpOGT(x, y);
    return b_.CreateSelect(first, x, y);
  };
  if (is_number(a)) return pick(a, b);
  if (is_number(b)) return pick(b, a);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, pick(a, b));
}

llvm::Value* KernelEmitter::float_binary(const Binary& n, Value* a, Value* b) {
  ElementType element = n.a.element();
  auto rounded = [&](Value* v) { return formats_.round(element, v); };
  switch (n.op) {
    case BinaryOp::add:
      return rounded(b_.CreateFAdd(a, b));
    case BinaryOp::sub:
      return rounded(b_.CreateFSub(a, b));
    case BinaryOp::mul:
      return rounded(b_.CreateFMul(a, b));
    case BinaryOp::div:
      return rounded(b_.CreateFDiv(a, b));
    case BinaryOp::mod:
      return rounded(float_mod(element, a, b));
    case BinaryOp::min:
      return float_min_max(true, a, b);
    case BinaryOp::max:
      return float_min_max(false, a, b);
    case BinaryOp::eq:
      return b_.CreateFCmpOEQ(a, b);
    case BinaryOp::ne:
      return b_.CreateFCmpUNE(a, b);
    case BinaryOp::lt:
      return b_.CreateFCmpOLT(a, b);
    case BinaryOp::le:
      return b_.CreateFCmpOLE(a, b);
    case BinaryOp::gt:
      return b_.CreateFCmpOGT(a, b);
    case BinaryOp::ge:
      return b_.CreateFCmpOGE(a, b);
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      break;
  }
  MCC_UNREACHABLE(tensor::to_text(n.op), " of floats");
}

// add, mul of bool are "or", "and"; an order puts false first.
llvm::Value* KernelEmitter::bool_binary(const Binary& n, Value* a, Value* b) {
  switch (n.op) {
    case BinaryOp::add:
    case BinaryOp::max:
    case BinaryOp::logical_or:
    case BinaryOp::bit_or:
      return b_.CreateOr(a, b);
    case BinaryOp::mul:
    case BinaryOp::min:
    case BinaryOp::logical_and:
    case BinaryOp::bit_and:
      return b_.CreateAnd(a, b);
    case BinaryOp::sub:
    case BinaryOp::bit_xor:
    case BinaryOp::ne:
      return b_.CreateXor(a, b);
    case BinaryOp::eq:
      return b_.CreateNot(b_.CreateXor(a, b));
    case BinaryOp::lt:
      return b_.CreateAnd(b_.CreateNot(a), b);
    case BinaryOp::gt:
      return b_.CreateAnd(a, b_.CreateNot(b));
    case BinaryOp::le:
      return b_.CreateOr(b_.CreateNot(a), b);
    case BinaryOp::ge:
      return b_.CreateOr(a, b_.CreateNot(b));
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::shl:
    case BinaryOp::shr:
      break;
  }
  MCC_UNREACHABLE(tensor::to_text(n.op), " of bool");
}

llvm::Value* KernelEmitter::int_binary(const Binary& n, Value* a, Value* b) {
  bool is_signed = is_signed_int(n.a.element());
  bool no_wrap = in_index_ && n.a.element() == ElementType::i64;
  switch (n.op) {
    case BinaryOp::add:
      return b_.CreateAdd(a, b, "", false, no_wrap);
    case BinaryOp::sub:
      return b_.CreateSub(a, b, "", false, no_wrap);
    case BinaryOp::mul:
      return b_.CreateMul(a, b, "", false, no_wrap);
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      return int_division(n, a, b);
    case BinaryOp::min:
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a, b);
    case BinaryOp::max:
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a, b);
    case BinaryOp::eq:
      return b_.CreateICmpEQ(a, b);
    case BinaryOp::ne:
      return b_.CreateICmpNE(a, b);
    case BinaryOp::lt:
      return is_signed ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
    case BinaryOp::le:
      return is_signed ? b_.CreateICmpSLE(a, b) : b_.CreateICmpULE(a, b);
    case BinaryOp::gt:
      return is_signed ? b_.CreateICmpSGT(a, b) : b_.CreateICmpUGT(a, b);
    case BinaryOp::ge:
      return is_signed ? b_.CreateICmpSGE(a, b) : b_.CreateICmpUGE(a, b);
    case BinaryOp::bit_and:
      return b_.CreateAnd(a, b);
    case BinaryOp::bit_or:
      return b_.CreateOr(a, b);
    case BinaryOp::bit_xor:
      return b_.CreateXor(a, b);
    case BinaryOp::shl:
      return b_.CreateShl(a, b);
    case BinaryOp::shr:
      return is_signed ? b_.CreateAShr(a, b) : b_.CreateLShr(a, b);
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      break;
  }
  MCC_UNREACHABLE(tensor::to_text(n.op), " of integers");
}

// Division never traps: x / 0 = x % 0 = 0, and the most negative value divided by -1 wraps (as by 1).
llvm::Value* KernelEmitter::int_division(const Binary& n, Value* a, Value* b) {
  bool is_signed = is_signed_int(n.a.element());
  bool is_floor = n.op == BinaryOp::floor_div || n.op == BinaryOp::floor_mod;
  bool is_quotient = n.op == BinaryOp::div || n.op == BinaryOp::floor_div;
  auto* constant = llvm::dyn_cast<Constant>(b);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto* known = llvm::dyn_cast_or_null<ConstantInt>(constant);
  bool is_safe = known && !known->isZero() && !(is_signed && known->isMinusOne());

  if (is_safe && is_signed && is_floor && known->getValue().isPowerOf2() && !known->getValue().isNegative()) {
    unsigned shift = known->getValue().logBase2();
    LlvmType* type = a->getType();
    if (is_quotient) return b_.CreateAShr(a, ConstantInt::get(type, shift));
    return b_.CreateAnd(a, ConstantInt::get(type, known->getValue() - 1));
  }

  Value* divisor = b;
  Value* is_zero = nullptr;
  if (!is_safe) {
    is_zero = b_.CreateICmpEQ(b, zero_like(b));
    Value* avoid = is_zero;
    if (is_signed) {
      auto bits = static_cast<unsigned>(bit_width(n.a.element()));
      Value* is_smallest =
          b_.CreateICmpEQ(a, ConstantInt::get(a->getType(), llvm::APInt::getSignedMinValue(bits)));
      Value* by_minus_one = b_.CreateICmpEQ(b, Constant::getAllOnesValue(b->getType()));
      avoid = b_.CreateOr(avoid, b_.CreateAnd(is_smallest, by_minus_one));
    }
    divisor = b_.CreateSelect(avoid, ConstantInt::get(b->getType(), 1), b);
  }
  Value* quotient = is_signed ? b_.CreateSDiv(a, divisor) : b_.CreateUDiv(a, divisor);
  Value* result = quotient;
  if (!is_quotient || (is_floor && is_signed)) {
    Value* remainder = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
    result = is_quotient ? quotient : remainder;
    if (is_floor && is_signed) {
      // Off by one where the remainder is not zero and has the other sign than the divisor.
      Value* opposite = b_.CreateICmpSLT(b_.CreateXor(remainder, divisor), zero_like(remainder));
      Value* adjust = b_.CreateAnd(opposite, b_.CreateICmpNE(remainder, zero_like(remainder)));
      Value* adjusted = is_quotient ? b_.CreateSub(quotient, ConstantInt::get(quotient->getType(), 1))
                                    : b_.CreateAdd(remainder, divisor);
      result = b_.CreateSelect(adjust, adjusted, result);
    }
  }
  return is_zero ? b_.CreateSelect(is_zero, zero_like(result), result) : result;
}

// There is no instruction for it: one call for each lane.
llvm::Value* KernelEmitter::float_mod(ElementType element, Value* a, Value* b) {
  llvm::Function* function = get_fmod(module_, element == ElementType::f64);
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  if (!type) return b_.CreateCall(function, {a, b});
  Value* result = llvm::PoisonValue::get(type);
  for (uint64_t i = 0; i < type->getNumElements(); ++i) {
    Value* lane = b_.CreateCall(function, {b_.CreateExtractElement(a, i), b_.CreateExtractElement(b, i)});
    result = b_.CreateInsertElement(result, lane, i);
  }
  return result;
}

// sum = x + y rounded to nearest -> the sum rounded to odd: where it is not exact and its last bit is even, the neighbour
// towards the exact value is meant.
llvm::Value* KernelEmitter::round_sum_to_odd(Value* x, Value* y, Value* sum) {
  Value* part = b_.CreateFSub(sum, x);
  Value* error = b_.CreateFAdd(b_.CreateFSub(x, b_.CreateFSub(sum, part)), b_.CreateFSub(y, part));
  Constant* zero = zero_like(sum);
  LlvmType* ints = sum->getType()->getWithNewType(b_.getInt64Ty());
  Value* bits = b_.CreateBitCast(sum, ints);
  Value* is_even =
      b_.CreateICmpEQ(b_.CreateAnd(bits, ConstantInt::get(ints, 1)), Constant::getNullValue(ints));
  Value* adjusts =
      b_.CreateAnd(is_even, b_.CreateFCmpONE(error, zero));  // false for infinities: their error is NaN
  Value* grows = b_.CreateNot(b_.CreateXor(b_.CreateFCmpOGT(error, zero), b_.CreateFCmpOGT(sum, zero)));
  Value* step = b_.CreateSelect(grows, ConstantInt::get(ints, 1), Constant::getAllOnesValue(ints));
  Value* odd = b_.CreateBitCast(b_.CreateAdd(bits, step), sum->getType());
  return b_.CreateSelect(adjusts, odd, sum);
}

// f32 without the instruction, and narrower floats: in double, where the product is exact. f64 without it: by an exact
// product and sum.
llvm::Value* KernelEmitter::emit_fma(ElementType element, Value* a, Value* b, Value* c) {
  LlvmType* type = a->getType();
  bool is_inexact = FloatFormats::is_inexact(element);
  if (target_.has_fma && !is_inexact) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {a, b, c});
  llvm::IRBuilderBase::FastMathFlagGuard guard(b_);
  b_.clearFastMathFlags();
  if (element != ElementType::f64) {
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    LlvmType* wide = vector_of(b_.getDoubleTy(), vector ? static_cast<int>(vector->getNumElements()) : 1);
    Value* product = b_.CreateFMul(b_.CreateFPExt(a, wide), b_.CreateFPExt(b, wide));
    Value* addend = b_.CreateFPExt(c, wide);
    Value* sum = b_.CreateFAdd(product, addend);
    if (!is_inexact) return b_.CreateFPTrunc(sum, type);
    return formats_.round(element, formats_.narrow_to_odd(round_sum_to_odd(product, addend, sum)));
  }
  Constant* splitter = ConstantFP::get(type, 134217729.0);  // 2^27 + 1 (Dekker)
  auto split = [&](Value* x) {
    Value* t = b_.CreateFMul(x, splitter);
    Value* high = b_.CreateFSub(t, b_.CreateFSub(t, x));
    return std::pair{high, b_.CreateFSub(x, high)};
  };
  auto [a_high, a_low] = split(a);
  auto [b_high, b_low] = split(b);
  Value* product = b_.CreateFMul(a, b);
  Value* error = b_.CreateFSub(b_.CreateFMul(a_high, b_high), product);
  error = b_.CreateFAdd(error, b_.CreateFMul(a_high, b_low));
  error = b_.CreateFAdd(error, b_.CreateFMul(a_low, b_high));
  error = b_.CreateFAdd(error, b_.CreateFMul(a_low, b_low));
  Value* sum = b_.CreateFAdd(product, c);
  Value* part = b_.CreateFSub(sum, product);
  Value* lost = b_.CreateFAdd(b_.CreateFSub(product, b_.CreateFSub(sum, part)), b_.CreateFSub(c, part));
  Value* correction = b_.CreateFAdd(error, lost);
  // Infinities and values near the end of the range make the correction NaN: the plain result stands.
  Value* is_nan = b_.CreateFCmpUNO(correction, correction);
  return b_.CreateSelect(is_nan, sum, b_.CreateFAdd(sum, correction));
}

// ---- Select, reductions, intrinsics ----

llvm::Value* KernelEmitter::on(const Select& n) {
  Value* condition = emit(n.condition);
  bool guards = n.condition.lanes() == 1 && (has_load(n.on_true) || has_load(n.on_false));
  if (!guards) {
    Value* on_true = emit(n.on_true);
    Value* on_false = emit(n.on_false);
    return b_.CreateSelect(condition, on_true, on_false);
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

llvm::Value* KernelEmitter::combine(BinaryOp op, ElementType element, Value* a, Value* b) {
  bool is_floating = is_float(element), is_signed = is_signed_int(element);
  switch (op) {
    case BinaryOp::add:
      if (is_bool(element)) return b_.CreateOr(a, b);
      return is_floating ? formats_.round(element, b_.CreateFAdd(a, b)) : b_.CreateAdd(a, b);
    case BinaryOp::mul:
      if (is_bool(element)) return b_.CreateAnd(a, b);
      return is_floating ? formats_.round(element, b_.CreateFMul(a, b)) : b_.CreateMul(a, b);
    case BinaryOp::min:
      if (is_floating) return float_min_max(true, a, b);
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a, b);
    case BinaryOp::max:
      if (is_floating) return float_min_max(false, a, b);
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a, b);
    case BinaryOp::logical_and:
      return b_.CreateAnd(a, b);
    case BinaryOp::logical_or:
      return b_.CreateOr(a, b);
    default:
      MCC_UNREACHABLE("vector reduction by ", tensor::to_text(op));
  }
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
  int width = static_cast<int>(std::bit_floor(static_cast<unsigned>(lanes)));
  if (width != lanes) {
    int extra = lanes - width;
    Value* low = part(0, width);
    // Lanes without a partner meet themselves, and keep their own value.
    std::vector<int> mask, keep;
    for (int i = 0; i < width; ++i)
      mask.push_back(i < extra ? width + i : i);
    Value* folded = combine(n.op, element_of(n), low, b_.CreateShuffleVector(value, mask));
    for (int i = 0; i < width; ++i)
      keep.push_back(i < extra ? width + i : i);
    value = b_.CreateShuffleVector(low, folded, keep);
  }
  while (width > 1) {
    width /= 2;
    value = combine(n.op, element_of(n), part(0, width), part(width, width));
  }
  return b_.CreateExtractElement(value, uint64_t{0});
}

// vpdpbusd: bytes of the second operand unsigned, of the third one signed; no sum saturates.
llvm::Value* KernelEmitter::emit_dot4(const Call& n) {
  const int lanes = n.type.lanes;
  Value* sums = emit(n.args[0]);
  Value* a = b_.CreateVectorSplat(static_cast<unsigned>(lanes), b_.CreateBitCast(emit(n.args[1]), b_.getInt32Ty()));
  Value* b = b_.CreateBitCast(emit(n.args[2]), sums->getType());
  return b_.CreateIntrinsic(lanes == 16 ? llvm::Intrinsic::x86_avx512_vpdpbusd_512 : llvm::Intrinsic::x86_avx512_vpdpbusd_256,
                            {}, {sums, a, b});
}

llvm::Value* KernelEmitter::on(const Call& n) {
  if (n.function == Intrinsic::prefetch) {
    if (on_device()) return b_.getTrue();  // warps hide latencies instead
    const auto* target = n.args[0].as<Load>();
    int64_t locality = 0;
    MCC_CHECK(target && as_int(n.args[1], &locality), "prefetch takes a load and a constant");
    Value* where = address(target->buffer, emit_index(target->indices[0]));
    return b_.CreateIntrinsic(
        llvm::Intrinsic::prefetch, {where->getType()},
        {where, b_.getInt32(0), b_.getInt32(static_cast<uint32_t>(locality)), b_.getInt32(1)});
  }
  if (n.function == Intrinsic::barrier) return emit_barrier();
  if (class_of(n.function) == IntrinsicClass::rows) return emit_matrix_rows(n);
  if (class_of(n.function) == IntrinsicClass::mma) return emit_mma(n);
  if (class_of(n.function) == IntrinsicClass::async) return emit_async(n);
  if (class_of(n.function) == IntrinsicClass::dot) return on_device() ? emit_dp4a(n) : emit_dot4(n);
  if (class_of(n.function) == IntrinsicClass::wgmma) return emit_wgmma(n);
  if (class_of(n.function) == IntrinsicClass::bulk) return emit_bulk(n);
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
    case Intrinsic::fma:
      return emit_fma(element, x, args[1], args[2]);
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
    case Intrinsic::shuffle_xor:
    case Intrinsic::shuffle_down:
      return emit_shuffle(n.function == Intrinsic::shuffle_xor, x, args[1]);
    case Intrinsic::barrier:  // above
    case Intrinsic::prefetch:
    case Intrinsic::load_matrices:
    case Intrinsic::load_matrices_transposed:
    case Intrinsic::mma_f16:
    case Intrinsic::mma_bf16:
    case Intrinsic::mma_tf32:
    case Intrinsic::mma_i8:
    case Intrinsic::mma_u8i8:
    case Intrinsic::async_copy:
    case Intrinsic::async_commit:
    case Intrinsic::async_wait:
    case Intrinsic::dot4_u8i8:
    case Intrinsic::dot4_i8i8:
    case Intrinsic::wgmma_fence:
    case Intrinsic::wgmma_f16:
    case Intrinsic::wgmma_bf16:
    case Intrinsic::wgmma_commit:
    case Intrinsic::wgmma_wait:
    case Intrinsic::bulk_init:
    case Intrinsic::bulk_expect:
    case Intrinsic::bulk_copy:
    case Intrinsic::bulk_wait:
    case Intrinsic::fence_async:
#define X(name) case Intrinsic::name:
    MCC_EXPANDED_INTRINSICS(X)
#undef X
      break;
  }
  MCC_UNREACHABLE(tensor::to_text(n.function), " reached code generation; lower_math expands it");
}

}  // namespace mcc::codegen
