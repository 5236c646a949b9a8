// Vectors of f32 that are rounded to bytes, as quantised operators do it:
//
//   u8(max(min(round(x) + c, high), low))     as     bits of i32(max(min(x, high - c), low - c)) + c
//
// x86's conversion rounds to even by itself, and what is within limits before it needs none behind: seven instructions for ten, of which the
// rounding alone takes as long as two. Where such bytes are widened, as by the operator that dequantises them, they are never bytes.
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <cmath>

#include "codegen/kernel_emitter.h"

namespace mcc::codegen {

using namespace tensor;

namespace {

struct Rounded {
  Expr value;  // before it is rounded
  double added = 0;
  double low = 0, high = 0;
};

// Whether it is this operation with a number, which stands behind.
bool has_number(const Binary& n, BinaryOp op, double* value) { return n.op == op && as_number(n.b, value); }

// `e` without its limits, which are narrowed.
Expr without_limits(const Expr& e, Rounded& r) {
  const auto* n = e.as<Binary>();
  double limit = 0;
  if (n && has_number(*n, BinaryOp::max, &limit)) {
    r.low = std::max(r.low, limit);
    return without_limits(n->a, r);
  }
  if (n && has_number(*n, BinaryOp::min, &limit)) {
    r.high = std::min(r.high, limit);
    return without_limits(n->a, r);
  }
  return e;
}

std::optional<Rounded> as_rounded(const Cast& n) {
  const ElementType to = n.type.element;
  if (bit_width(to) != 8 || is_float(to) || is_bool(to) || n.value.element() != ElementType::f32)
    return std::nullopt;
  Rounded r;
  r.low = is_signed_int(to) ? -128 : 0;
  r.high = r.low + 255;
  Expr e = without_limits(n.value, r);
  if (const auto* sum = e.as<Binary>(); sum && has_number(*sum, BinaryOp::add, &r.added)) e = sum->a;
  const auto* call = e.as<Call>();
  if (!call || call->function != Intrinsic::round) return std::nullopt;
  r.value = call->args[0];
  // What is no number becomes 0, which is within the limits of signed bytes, and the lower one of others.
  const bool has_zero = (is_signed_int(to) ? r.low <= 0 : r.low == 0) && r.high >= 0;
  const bool are_whole =
      r.added == std::floor(r.added) && r.low == std::floor(r.low) && r.high == std::floor(r.high);
  return has_zero && are_whole && std::abs(r.added) <= 255 ? std::optional(r) : std::nullopt;
}

}  // namespace

llvm::Value* KernelEmitter::round_to_bytes(const Cast& n) {
  const auto* narrow = n.value.as<Cast>();
  const bool is_widened = narrow && is_int(n.type.element) && bit_width(n.type.element) > 8;
  const Cast& bytes = is_widened ? *narrow : n;
  const std::optional<Rounded> r =
      on_device() || n.type.lanes * 32 > target_.vector_bits ? std::nullopt : as_rounded(bytes);
  if (!r) return nullptr;
  llvm::Intrinsic::ID id = llvm::Intrinsic::not_intrinsic;
  switch (n.type.lanes) {
    case 4:
      id = llvm::Intrinsic::x86_sse2_cvtps2dq;
      break;
    case 8:
      id = llvm::Intrinsic::x86_avx_cvt_ps2dq_256;
      break;
    case 16:
      id = llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512;
      break;
    default:
      return nullptr;
  }
  Value* x = emit(r->value);
  auto limit = [&](double number) { return llvm::ConstantFP::get(x->getType(), number - r->added); };
  if (is_signed_int(bytes.type.element)) x = b_.CreateSelect(b_.CreateFCmpUNO(x, x), limit(0), x);
  x = b_.CreateSelect(b_.CreateFCmpOGT(x, limit(r->low)), x, limit(r->low));
  x = b_.CreateSelect(b_.CreateFCmpOLT(x, limit(r->high)), x, limit(r->high));
  std::vector<Value*> arguments{x};
  if (n.type.lanes == 16) {
    constexpr uint32_t kCurrentMode = 4;
    arguments.insert(arguments.end(), {llvm::PoisonValue::get(vector_of(b_.getInt32Ty(), 16)),
                                       b_.getInt16(0xffff), b_.getInt32(kCurrentMode)});
  }
  Value* whole = b_.CreateIntrinsic(id, {}, arguments);
  if (r->added != 0)
    whole =
        b_.CreateAdd(whole, llvm::ConstantInt::getSigned(whole->getType(), static_cast<int64_t>(r->added)));
  return b_.CreateSExtOrTrunc(whole, register_type(n.type));
}

}  // namespace mcc::codegen
