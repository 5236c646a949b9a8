// Index arithmetic in 32 bits wherever the ranges of loops and threads show that it does not overflow: on GPUs a 64-bit
// multiplication takes several instructions, a 64-bit division dozens.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <limits>

#include "codegen/kernel_emitter.h"

namespace mcc::codegen {

using namespace tensor;

namespace {

bool fits_32_bits(int64_t low, int64_t high) {
  return low >= std::numeric_limits<int32_t>::min() && high <= std::numeric_limits<int32_t>::max();
}

struct Range {
  int64_t low = INT64_MIN, high = INT64_MAX;
};

// Of a + b, a - b, a * b; everything where the ends leave 64 bits.
Range range_of(BinaryOp op, const Range& a, const Range& b) {
  int64_t ends[4] = {};
  bool overflows = false;
  switch (op) {
    case BinaryOp::add:
      overflows =
          __builtin_add_overflow(a.low, b.low, &ends[0]) | __builtin_add_overflow(a.high, b.high, &ends[1]);
      return overflows ? Range{} : Range{ends[0], ends[1]};
    case BinaryOp::sub:
      overflows =
          __builtin_sub_overflow(a.low, b.high, &ends[0]) | __builtin_sub_overflow(a.high, b.low, &ends[1]);
      return overflows ? Range{} : Range{ends[0], ends[1]};
    case BinaryOp::mul:
      overflows =
          __builtin_mul_overflow(a.low, b.low, &ends[0]) | __builtin_mul_overflow(a.low, b.high, &ends[1]) |
          __builtin_mul_overflow(a.high, b.low, &ends[2]) | __builtin_mul_overflow(a.high, b.high, &ends[3]);
      return overflows ? Range{}
                       : Range{*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
    case BinaryOp::min:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case BinaryOp::max:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    default:
      return {};
  }
}

bool is_index(const Expr& e) { return e.type() == kIndex; }

}  // namespace

llvm::Value* KernelEmitter::widen(const Bounded& b) {
  if (b.value->getType()->isIntegerTy(64)) return b.value;
  return b.low >= 0 ? b_.CreateZExt(b.value, b_.getInt64Ty(), "", true)
                    : b_.CreateSExt(b.value, b_.getInt64Ty());
}

void KernelEmitter::bind_narrow(const Var& var, const Bounded& value) {
  scope_.vars[var.get()] = widen(value);
  scope_.narrow[var.get()] = value;
}

KernelEmitter::Bounded KernelEmitter::emit_bounded(const Expr& e) {
  int64_t constant = 0;
  if (as_int(e, &constant)) {
    llvm::Type* type = fits_32_bits(constant, constant) ? b_.getInt32Ty() : b_.getInt64Ty();
    return {llvm::ConstantInt::getSigned(type, constant), constant, constant};
  }
  if (const auto* binary = e.as<Binary>()) return bounded_binary(*binary);
  if (auto it = scope_.narrow.find(e.get()); it != scope_.narrow.end()) return it->second;
  return {emit(e)};
}

KernelEmitter::Bounded KernelEmitter::bounded_binary(const Binary& n) {
  Bounded a = emit_bounded(n.a), b = emit_bounded(n.b);
  auto in_64_bits = [&]() -> Bounded { return {int_binary(n.op, n.a.element(), widen(a), widen(b))}; };
  switch (n.op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
    case BinaryOp::min:
    case BinaryOp::max: {
      const Range range = range_of(n.op, {a.low, a.high}, {b.low, b.high});
      const bool is_narrow = a.value->getType()->isIntegerTy(32) && b.value->getType()->isIntegerTy(32) &&
                             fits_32_bits(range.low, range.high);
      if (!is_narrow) return {in_64_bits().value, range.low, range.high};
      const bool is_positive = a.low >= 0 && b.low >= 0 && range.low >= 0;
      Value* value = nullptr;
      if (n.op == BinaryOp::add) value = b_.CreateAdd(a.value, b.value, "", is_positive, true);
      if (n.op == BinaryOp::sub) value = b_.CreateSub(a.value, b.value, "", is_positive, true);
      if (n.op == BinaryOp::mul) value = b_.CreateMul(a.value, b.value, "", is_positive, true);
      if (n.op == BinaryOp::min) value = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a.value, b.value);
      if (n.op == BinaryOp::max) value = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a.value, b.value);
      return {value, range.low, range.high};
    }
    case BinaryOp::div:
    case BinaryOp::floor_div:
    case BinaryOp::mod:
    case BinaryOp::floor_mod: {
      // By a positive constant. Of what is not negative, all kinds of division are one.
      if (b.low != b.high || b.low < 1) return in_64_bits();
      const bool is_quotient = n.op == BinaryOp::div || n.op == BinaryOp::floor_div;
      const bool is_narrow = a.value->getType()->isIntegerTy(32) && b.value->getType()->isIntegerTy(32);
      if (a.low < 0) {
        if (n.op == BinaryOp::div || n.op == BinaryOp::mod) return in_64_bits();
        Value* value = is_narrow ? int_division(n.op, n.a.element(), a.value, b.value) : in_64_bits().value;
        if (!is_quotient) return {value, 0, b.low - 1};
        if (a.low < INT64_MIN / 2) return {value};
        return {value, (a.low - b.low + 1) / b.low, a.high / b.low};
      }
      Value* x = is_narrow ? a.value : widen(a);
      Value* y = is_narrow ? b.value : widen(b);
      if (is_quotient) return {b_.CreateUDiv(x, y), a.low / b.low, a.high / b.low};
      return {b_.CreateURem(x, y), 0, std::min(a.high, b.low - 1)};
    }
    default:
      return in_64_bits();
  }
}

// Null where it is not one of index arithmetic.
llvm::Value* KernelEmitter::narrow_comparison(const Binary& n) {
  if (!is_comparison(n.op) || !is_index(n.a)) return nullptr;
  Bounded a = emit_bounded(n.a), b = emit_bounded(n.b);
  const bool is_narrow = a.value->getType()->isIntegerTy(32) && b.value->getType()->isIntegerTy(32);
  return is_narrow ? int_binary(n.op, n.a.element(), a.value, b.value) : int_binary(n.op, n.a.element(), widen(a), widen(b));
}

void KernelEmitter::emit_device_loop(const For& n) {
  Bounded begin = emit_bounded(n.min), extent = emit_bounded(n.extent);
  const Range end = range_of(BinaryOp::add, {begin.low, begin.high}, {extent.low, extent.high});
  const bool is_narrow = begin.value->getType()->isIntegerTy(32) &&
                         extent.value->getType()->isIntegerTy(32) && fits_32_bits(end.low, end.high);
  Value* from = is_narrow ? begin.value : widen(begin);
  Value* to = b_.CreateAdd(from, is_narrow ? extent.value : widen(extent), "", false, true);
  if (end.high != INT64_MAX)
    scope_.narrow[n.var.get()] = {nullptr, begin.low, std::max(begin.low, end.high - 1)};
  emit_loop(n, from, to, extent.low > 0);
  scope_.narrow.erase(n.var.get());
}

}  // namespace mcc::codegen
