#include "codegen/float_formats.h"

#include <llvm/IR/Intrinsics.h>

#include "support/check.h"
#include "tensor/numeric.h"

namespace mcc::codegen {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;
using Specials = tensor::FloatSpecials;

namespace {

struct Format {
  int bits, mantissa, bias;
  Specials specials;
  uint32_t max_finite;  // bits
  uint32_t overflow;    // bits of what a too large magnitude becomes
  uint32_t nan;
};

Format format_of(ElementType element) {
  switch (element) {
    case ElementType::f16:
      return {16, 10, 15, Specials::infinity, 0x7bff, 0x7c00, 0x7e00};
    case ElementType::bf16:
      return {16, 7, 127, Specials::infinity, 0x7f7f, 0x7f80, 0x7fc0};
    case ElementType::f8e4m3:
      return {8, 3, 7, Specials::only_nan, 0x7e, 0x7f, 0x7f};
    case ElementType::f8e4m3fnuz:
      return {8, 3, 8, Specials::unsigned_zero, 0x7f, 0x80, 0x80};
    case ElementType::f8e5m2:
      return {8, 2, 15, Specials::infinity, 0x7b, 0x7c, 0x7e};
    case ElementType::f8e5m2fnuz:
      return {8, 2, 16, Specials::unsigned_zero, 0x7f, 0x80, 0x80};
    case ElementType::f4e2m1:
      return {4, 1, 1, Specials::none, 0x7, 0x7, 0x8};
    default:
      MCC_UNREACHABLE("not a narrow float: ", to_text(element));
  }
}

Type* with_lanes_of(Value* like, Type* scalar) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

double power_of_two(int n) {
  return n < 0 ? 1.0 / (uint64_t{1} << -n) : static_cast<double>(uint64_t{1} << n);
}

}  // namespace

bool FloatFormats::is_narrow(ElementType element) {
  return is_float(element) && bit_width(element) <= 16;
}

bool FloatFormats::is_inexact(ElementType element) {
  return is_narrow(element) || element == ElementType::tf32;
}

Value* FloatFormats::decode(ElementType element, Value* bits) {
  Value* value = decode_bits(element, bits);
  decoded[value] = {element, bits};
  return value;
}

Value* FloatFormats::encode(ElementType element, Value* value) {
  auto known = decoded.find(value);
  if (known != decoded.end() && known->second.first == element) return known->second.second;
  return encode_value(element, value);
}

Value* FloatFormats::decode_bits(ElementType element, Value* bits) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  b.clearFastMathFlags();  // rounding is exact
  if (element == ElementType::f8e8m0) return decode_power(bits);
  Format f = format_of(element);
  Type* f32 = with_lanes_of(bits, b.getFloatTy());
  Type* i32 = with_lanes_of(bits, b.getInt32Ty());
  if (element == ElementType::f16 && has_f16c) {
    return b.CreateFPExt(b.CreateBitCast(bits, with_lanes_of(bits, b.getHalfTy())), f32);
  }
  Value* wide = b.CreateZExt(bits, i32);
  if (element == ElementType::bf16) return b.CreateBitCast(b.CreateShl(wide, uint64_t{16}), f32);

  // With the fields moved to f32's places the value is 2^(127-bias) too small, subnormals included.
  uint32_t magnitude_mask = (1u << (f.bits - 1)) - 1;
  Value* magnitude = b.CreateAnd(wide, magnitude_mask);
  Value* sign = b.CreateShl(b.CreateAnd(wide, 1u << (f.bits - 1)), 32 - f.bits);
  Value* moved = b.CreateBitCast(b.CreateShl(magnitude, 23 - f.mantissa), f32);
  double scale = power_of_two(63) * power_of_two(127 - f.bias - 63);
  Value* scaled = b.CreateBitCast(b.CreateFMul(moved, ConstantFP::get(f32, scale)), i32);
  if (f.specials == Specials::infinity) {
    Value* special = b.CreateICmpUGE(magnitude, ConstantInt::get(i32, f.overflow));
    scaled = b.CreateOr(
        scaled, b.CreateSelect(special, ConstantInt::get(i32, 0x7f800000), Constant::getNullValue(i32)));
  } else if (f.specials != Specials::none) {
    Value* pattern = f.specials == Specials::only_nan ? magnitude : wide;
    Value* special = b.CreateICmpEQ(pattern, ConstantInt::get(i32, f.nan));
    scaled = b.CreateSelect(special, ConstantInt::get(i32, 0x7fc00000), scaled);
  }
  return b.CreateBitCast(b.CreateOr(scaled, sign), f32);
}

Value* FloatFormats::encode_value(ElementType element, Value* value) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  b.clearFastMathFlags();  // rounding is exact
  if (element == ElementType::f8e8m0) return encode_power(value);
  Format f = format_of(element);
  Type* f32 = value->getType();
  Type* i32 = with_lanes_of(value, b.getInt32Ty());
  Type* narrow = with_lanes_of(value, b.getIntNTy(static_cast<unsigned>(8 * byte_size(element))));
  if (element == ElementType::f16 && has_f16c) {
    return b.CreateBitCast(b.CreateFPTrunc(value, with_lanes_of(value, b.getHalfTy())), narrow);
  }
  auto constant = [&](uint32_t v) { return ConstantInt::get(i32, v); };
  Value* bits = b.CreateBitCast(value, i32);
  if (element == ElementType::bf16) {  // the upper half, rounded
    Value* upper = b.CreateLShr(bits, uint64_t{16});
    Value* even = b.CreateAdd(b.CreateAdd(bits, constant(0x7fff)), b.CreateAnd(upper, constant(1)));
    Value* nan = b.CreateOr(b.CreateAnd(upper, constant(0x8000)), constant(f.nan));
    Value* is_nan = b.CreateFCmpUNO(value, value);
    return b.CreateTrunc(b.CreateSelect(is_nan, nan, b.CreateLShr(even, uint64_t{16})), narrow);
  }
  Value* magnitude = b.CreateAnd(bits, constant(0x7fffffff));
  Value* sign = b.CreateLShr(b.CreateAnd(bits, constant(0x80000000)), uint64_t(32 - f.bits));
  int shift = 23 - f.mantissa;

  // Normal results: round the mantissa to nearest even (a carry runs into the exponent), then rebase the exponent.
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, uint64_t(shift)), constant(1));
  Value* rounded = b.CreateAdd(b.CreateAdd(magnitude, constant((1u << (shift - 1)) - 1)), odd);
  Value* result = b.CreateLShr(rounded, uint64_t(shift));
  if (f.bias != 127) {
    result = b.CreateSub(result, constant(static_cast<uint32_t>(127 - f.bias) << f.mantissa));
    // Subnormal results: an addition lets the hardware round at the format's smallest step, 2^(1-bias-mantissa).
    double magic = power_of_two(1 - f.bias - f.mantissa + 23);
    Constant* magic_value = ConstantFP::get(f32, magic);
    Value* sum = b.CreateFAdd(b.CreateBitCast(magnitude, f32), magic_value);
    Value* subnormal = b.CreateSub(b.CreateBitCast(sum, i32), b.CreateBitCast(magic_value, i32));
    Value* is_small = b.CreateICmpULT(magnitude, constant(static_cast<uint32_t>(128 - f.bias) << 23));
    result = b.CreateSelect(is_small, subnormal, result);
    Value* too_large = b.CreateICmpSGT(result, constant(f.max_finite));
    result = b.CreateSelect(too_large, constant(f.overflow), result);
  }
  Value* is_nan = b.CreateICmpUGT(magnitude, constant(0x7f800000));
  result = b.CreateSelect(is_nan, constant(f.nan), result);
  if (f.specials == Specials::unsigned_zero) {
    Constant* zero = Constant::getNullValue(i32);
    sign = b.CreateSelect(b.CreateICmpEQ(result, zero), zero, sign);
  }
  return b.CreateTrunc(b.CreateOr(result, sign), narrow);
}

Value* FloatFormats::decode_power(Value* bits) {
  Type* i32 = with_lanes_of(bits, b.getInt32Ty());
  auto constant = [&](uint32_t v) { return ConstantInt::get(i32, v); };
  Value* wide = b.CreateZExt(bits, i32);
  Value* is_least = b.CreateICmpEQ(wide, constant(0));  // a subnormal number of f32
  Value* is_nan = b.CreateICmpEQ(wide, constant(0xff));
  Value* value = b.CreateSelect(is_least, constant(0x400000), b.CreateShl(wide, uint64_t{23}));
  value = b.CreateSelect(is_nan, constant(0x7fc00000), value);
  return b.CreateBitCast(value, with_lanes_of(bits, b.getFloatTy()));
}

Value* FloatFormats::encode_power(Value* value) {
  Type* i32 = with_lanes_of(value, b.getInt32Ty());
  auto constant = [&](uint32_t v) { return ConstantInt::get(i32, v); };
  Value* bits = b.CreateBitCast(value, i32);
  Value* is_least = b.CreateICmpULT(bits, constant(0x600000));     // below 1.5 * 2^-127
  Value* is_nan = b.CreateICmpUGE(bits, constant(0x7f400000));  // too large, none, or negative
  Value* result = b.CreateLShr(b.CreateAdd(bits, constant(0x400000)), uint64_t{23});
  result = b.CreateSelect(is_least, constant(0), result);
  return b.CreateTrunc(b.CreateSelect(is_nan, constant(0xff), result), with_lanes_of(value, b.getInt8Ty()));
}

Value* FloatFormats::round(ElementType element, Value* value) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  b.clearFastMathFlags();  // rounding is exact
  if (!is_inexact(element)) return value;
  if (element == ElementType::tf32) {
    // As encode() does, at 10 stored bits; a NaN keeps a bit that is not rounded away.
    Type* i32 = with_lanes_of(value, b.getInt32Ty());
    Value* bits = b.CreateBitCast(value, i32);
    Value* odd = b.CreateAnd(b.CreateLShr(bits, uint64_t{13}), ConstantInt::get(i32, 1));
    Value* rounded = b.CreateAdd(b.CreateAdd(bits, ConstantInt::get(i32, 0xfff)), odd);
    Value* quiet = b.CreateOr(bits, ConstantInt::get(i32, 0x400000));
    Value* kept = b.CreateSelect(b.CreateFCmpUNO(value, value), quiet, rounded);
    return b.CreateBitCast(b.CreateAnd(kept, ConstantInt::get(i32, 0xffffe000)), value->getType());
  }
  return decode(element, encode(element, value));
}

Value* FloatFormats::select(Value* condition, Value* x, Value* y) {
  Value* chosen = b.CreateSelect(condition, x, y);
  const auto of_x = decoded.find(x), of_y = decoded.find(y);
  if (of_x != decoded.end() && of_y != decoded.end() && of_x->second.first == of_y->second.first) {
    const auto [element, bits] = of_x->second;
    decoded[chosen] = {element, b.CreateSelect(condition, bits, of_y->second.second)};
  }
  return chosen;
}

Value* FloatFormats::convert(ElementType element, Value* value) {
  if (element != ElementType::bf16 || !has_bf16) return round(element, value);
  Value* bf16 = b.CreateFPTrunc(value, with_lanes_of(value, b.getBFloatTy()));
  return decode(element, b.CreateBitCast(bf16, with_lanes_of(value, b.getInt16Ty())));
}

Value* FloatFormats::narrow_to_odd(Value* value) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  b.clearFastMathFlags();  // rounding is exact
  Type* f64 = value->getType();
  Type* i64 = with_lanes_of(value, b.getInt64Ty());
  Value* bits = b.CreateBitCast(value, i64);
  uint64_t dropped_mask = (uint64_t{1} << 29) - 1;
  Value* dropped = b.CreateAnd(bits, ConstantInt::get(i64, dropped_mask));
  Value* inexact = b.CreateICmpNE(dropped, Constant::getNullValue(i64));
  Value* kept = b.CreateAnd(bits, ConstantInt::get(i64, ~dropped_mask));
  Value* odd = b.CreateOr(kept, ConstantInt::get(i64, dropped_mask + 1));
  Value* exact = b.CreateBitCast(b.CreateSelect(inexact, odd, kept), f64);
  return b.CreateFPTrunc(exact, with_lanes_of(value, b.getFloatTy()));
}

}  // namespace mcc::codegen
