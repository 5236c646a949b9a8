// Conversions and operators on values in registers, exactly as tensor/expr.h defines them: integer division never traps, floats
// saturate when they become integers, narrow floats are rounded after each operation.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>

#include "codegen/kernel_emitter.h"
#include "tensor/instructions.h"
#include "tensor/text.h"

namespace mcc::codegen {

using namespace tensor;
using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Intrinsic::ID;
using LlvmType = llvm::Type;

namespace {

Constant* zero_like(llvm::Value* v) { return Constant::getNullValue(v->getType()); }

}  // namespace

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

// To others, whose largest value may be no float.
llvm::Value* KernelEmitter::saturate_wide(ElementType dst, LlvmType* type, Value* value) {
  const int width = bit_width(dst);
  const bool is_signed = is_signed_int(dst);
  const double span = std::ldexp(1.0, width), low = is_signed ? -span / 2 : 0;
  auto limit = [&](double x) { return ConstantFP::get(value->getType(), x); };
  Value* at_least_low = b_.CreateSelect(b_.CreateFCmpOGT(value, limit(low)), value, limit(low));
  Value* is_below = b_.CreateFCmpOLT(value, limit(low + span));  // not of a NaN
  Value* inside = b_.CreateSelect(is_below, at_least_low, limit(0));
  Value* result = is_signed ? b_.CreateFPToSI(inside, type) : b_.CreateFPToUI(inside, type);
  const auto most = static_cast<unsigned>(width);
  const llvm::APInt largest = is_signed ? llvm::APInt::getSignedMaxValue(most) : llvm::APInt::getMaxValue(most);
  return b_.CreateSelect(b_.CreateFCmpOGE(value, limit(low + span)), ConstantInt::get(type, largest), result);
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
    return formats_.convert(dst, value);
  }
  if (is_float(src)) {
    if (to.lanes > 1 && !on_device())
      return bit_width(dst) <= 16 ? saturate_narrow(dst, type, value) : saturate_wide(dst, type, value);
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

llvm::Value* KernelEmitter::on(const Cast& n) {
  if (Value* bytes = round_to_bytes(n)) return bytes;
  if (Value* number = look_up_number(n)) return number;
  return convert(n.value.type(), n.type, emit(n.value));
}

// (x & mask) - zero as f32, of numbers of few bits: registers hold all that it may be. Null for anything else.
llvm::Value* KernelEmitter::look_up_number(const Cast& n) {
  constexpr int kTable = 16, kMostAdded = 1 << 16;  // sums that do not wrap around
  if (!looks_up_numbers(target_) || n.type.element != ElementType::f32 || n.type.lanes != kTable ||
      n.value.element() != ElementType::i32)
    return nullptr;
  double added = 0, mask = 0;
  const auto* masked = n.value.as<Binary>();
  if (masked && (masked->op == BinaryOp::sub || masked->op == BinaryOp::add) &&
      tensor::as_number(masked->b, &added)) {
    if (masked->op == BinaryOp::sub) added = -added;
    masked = masked->a.as<Binary>();
  }
  if (!masked || masked->op != BinaryOp::bit_and || !tensor::as_number(masked->b, &mask) || mask < 0 ||
      mask >= kTable || std::abs(added) > kMostAdded)
    return nullptr;
  std::vector<Constant*> table;
  for (int i = 0; i < kTable; ++i)
    table.push_back(ConstantFP::get(b_.getFloatTy(), (i & static_cast<int>(mask)) + added));
  return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                            {llvm::ConstantVector::get(table), emit(masked->a)});
}

// ---- Operators ----

llvm::Value* KernelEmitter::on(const Binary& n) {
  if (on_device() && n.type == kIndex) return widen(bounded_binary(n));
  if (on_device())
    if (Value* compared = narrow_comparison(n)) return compared;
  Value* a = emit(n.a);
  Value* b = emit(n.b);
  return binary(n.op, n.a.element(), a, b);
}

llvm::Value* KernelEmitter::binary(BinaryOp op, ElementType element, Value* a, Value* b) {
  if (is_float(element)) return float_binary(op, element, a, b);
  if (is_bool(element)) return bool_binary(op, a, b);
  return int_binary(op, element, a, b);
}

// A NaN operand gives NaN: the comparison is false for a NaN in either operand, which picks the second.
llvm::Value* KernelEmitter::float_min_max(bool is_min, ElementType element, Value* a, Value* b) {
  auto is_number = [](Value* v) {
    auto* constant = llvm::dyn_cast<Constant>(v);
    if (!constant) return false;
    if (constant->getType()->isVectorTy()) constant = constant->getSplatValue();
    auto* number = llvm::dyn_cast_or_null<ConstantFP>(constant);
    return number && !number->isNaN();
  };
  auto pick = [&](Value* x, Value* y) {
    Value* first = is_min ? b_.CreateFCmpOLT(x, y) : b_.CreateFCmpOGT(x, y);
    return formats_.select(first, x, y);
  };
  // One instruction of GPUs from sm_80 on.
  if (target_.kind == TargetKind::cuda && target_.gpu.sm() >= 80 && a->getType()->getScalarType()->isFloatTy())
    return b_.CreateBinaryIntrinsic(is_min ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum, a, b);
  if (is_number(a)) return pick(a, b);
  if (is_number(b)) return pick(b, a);
  // Of what was narrower in memory the bits are at hand, and stay so where one of both is chosen.
  if (on_device() || FloatFormats::is_narrow(element))
    return formats_.select(b_.CreateFCmpUNO(a, a), a, pick(a, b));
  // x86's instruction gives its second operand where any is NaN: only the first one is left to look at. That is `b`: `a` mostly is the result of
  // the step before, for which nothing has to wait then.
  llvm::IRBuilderBase::FastMathFlagGuard guard(b_);
  llvm::FastMathFlags flags = b_.getFastMathFlags();
  flags.setNoSignedZeros();
  b_.setFastMathFlags(flags);
  return b_.CreateBinaryIntrinsic(is_min ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum, b, a);
}

llvm::Value* KernelEmitter::float_binary(BinaryOp op, ElementType element, Value* a, Value* b) {
  auto rounded = [&](Value* v) { return formats_.round(element, v); };
  switch (op) {
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
      return float_min_max(true, element, a, b);
    case BinaryOp::max:
      return float_min_max(false, element, a, b);
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
  MCC_UNREACHABLE(tensor::to_text(op), " of floats");
}

// add, mul of bool are "or", "and"; an order puts false first.
llvm::Value* KernelEmitter::bool_binary(BinaryOp op, Value* a, Value* b) {
  switch (op) {
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
  MCC_UNREACHABLE(tensor::to_text(op), " of bool");
}

llvm::Value* KernelEmitter::int_binary(BinaryOp op, ElementType element, Value* a, Value* b) {
  bool is_signed = is_signed_int(element);
  bool no_wrap = in_index_ && element == ElementType::i64;
  switch (op) {
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
      return int_division(op, element, a, b);
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
  MCC_UNREACHABLE(tensor::to_text(op), " of integers");
}

// Division never traps: x / 0 = x % 0 = 0, and the most negative value divided by -1 wraps (as by 1).
llvm::Value* KernelEmitter::int_division(BinaryOp op, ElementType element, Value* a, Value* b) {
  bool is_signed = is_signed_int(element);
  bool is_floor = op == BinaryOp::floor_div || op == BinaryOp::floor_mod;
  bool is_quotient = op == BinaryOp::div || op == BinaryOp::floor_div;
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
      auto bits = static_cast<unsigned>(bit_width(element));
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

}  // namespace mcc::codegen
