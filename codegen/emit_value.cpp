#include "codegen/emit_value.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <cmath>

#include "codegen/machine.h"

namespace mcc::codegen {

using namespace tensor;
using llvm::Value;

namespace {

bool is_wrapped_float(ElementType e) { return e == ElementType::bf16; }

bool contains_load(const Expr& e) {
  bool found = false;
  for_each_expr(Evaluate::make(e), [&](const Expr& x) { found |= x.kind() == ExprKind::Load; });
  return found;
}

bool is_number(Value* v) {
  if (auto* f = llvm::dyn_cast<llvm::ConstantFP>(v)) return !f->isNaN();
  auto* c = llvm::dyn_cast<llvm::Constant>(v);
  if (!c || !v->getType()->isVectorTy()) return false;
  auto* lane = llvm::dyn_cast_or_null<llvm::ConstantFP>(c->getSplatValue());
  return lane && !lane->isNaN();
}

}  // namespace

std::optional<RampForm> ramp_form(const Expr& index) {
  int64_t value = 0;
  if (const auto* ramp = index.as<Ramp>()) {
    if (!as_int(ramp->stride, &value)) return std::nullopt;
    return RampForm{ramp->base, value};
  }
  if (const auto* broadcast = index.as<Broadcast>()) return RampForm{broadcast->value, 0};
  const auto* sum = index.as<Binary>();
  if (!sum || (sum->op != BinaryOp::add && sum->op != BinaryOp::sub && sum->op != BinaryOp::mul)) return std::nullopt;
  std::optional<RampForm> a = ramp_form(sum->a), b = ramp_form(sum->b);
  if (!a || !b) return std::nullopt;
  if (sum->op == BinaryOp::add) return RampForm{a->base + b->base, a->stride + b->stride};
  if (sum->op == BinaryOp::sub) return RampForm{a->base - b->base, a->stride - b->stride};
  if (b->stride == 0 && as_int(b->base, &value)) return RampForm{a->base * b->base, a->stride * value};
  if (a->stride == 0 && as_int(a->base, &value)) return RampForm{a->base * b->base, b->stride * value};
  return std::nullopt;
}

ValueEmitter::ValueEmitter(llvm::IRBuilder<>& builder, const Target& target, const EmitOptions& options)
    : b_(builder), target_(target), options_(options) {
  llvm::FastMathFlags flags;
  flags.setAllowContract(!options.strict);
  if (options.fast_math) flags.setFast();
  b_.setFastMathFlags(flags);
}

void ValueEmitter::declare_buffers(const std::vector<Buffer>& buffers) {
  llvm::MDBuilder md(b_.getContext());
  alias_domain_ = md.createAnonymousAliasScopeDomain("kernel");
  for (const Buffer& buffer : buffers) {
    alias_scopes_[buffer.get()] = md.createAnonymousAliasScope(alias_domain_, buffer.name());
  }
  // Keep the list in the order given, so that what is emitted does not depend on addresses.
  scope_order_ = buffers;
}

template <class I>
I* ValueEmitter::tag(I* access, const Buffer& buffer) {
  auto own = alias_scopes_.find(buffer.get());
  if (own == alias_scopes_.end()) return access;
  llvm::MDNode*& others = no_alias_[buffer.get()];
  if (!others) {
    std::vector<llvm::Metadata*> list;
    for (const Buffer& other : scope_order_) {
      if (!other.same_as(buffer)) list.push_back(alias_scopes_.at(other.get()));
    }
    others = llvm::MDNode::get(b_.getContext(), list);
  }
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, llvm::MDNode::get(b_.getContext(), {own->second}));
  access->setMetadata(llvm::LLVMContext::MD_noalias, others);
  return access;
}

Value* ValueEmitter::find(const ExprNode* var) const {
  auto it = vars_.find(var);
  MCC_CHECK(it != vars_.end(), "unbound variable ", static_cast<const VarNode*>(var)->name);
  return it->second;
}

Value* ValueEmitter::pointer_of(const Buffer& buffer) const {
  auto it = buffers_.find(buffer.get());
  MCC_CHECK(it != buffers_.end(), "buffer ", buffer.name(), " has no memory");
  return it->second;
}

llvm::Type* ValueEmitter::value_type(Type type) const {
  llvm::Type* scalar = nullptr;
  if (is_bool(type.element)) {
    scalar = b_.getInt1Ty();
  } else if (mcc::is_int(type.element)) {
    scalar = b_.getIntNTy(static_cast<unsigned>(bit_width(type.element)));
  } else if (type.element == ElementType::f64) {
    scalar = b_.getDoubleTy();
  } else if (type.element == ElementType::f16) {
    scalar = b_.getHalfTy();
  } else {
    scalar = b_.getFloatTy();
  }
  return type.lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(type.lanes));
}

llvm::Type* ValueEmitter::memory_type(ElementType element) const {
  if (is_wrapped_float(element)) return b_.getInt16Ty();
  if (is_bool(element) || bit_width(element) < 8) return b_.getInt8Ty();
  return value_type({element, 1});
}

Value* ValueEmitter::splat(Value* value, int lanes) {
  return lanes == 1 ? value : b_.CreateVectorSplat(static_cast<unsigned>(lanes), value);
}

Value* ValueEmitter::emit(const Expr& e) {
  if (auto it = memo_.find(e.get()); it != memo_.end()) return it->second;
  Value* value = emit_new(e);
  memo_[e.get()] = value;
  return value;
}

Value* ValueEmitter::emit_new(const Expr& e) {
  switch (e.kind()) {
    case ExprKind::IntImm: return constant(*e.as<IntImm>());
    case ExprKind::FloatImm: return llvm::ConstantFP::get(value_type(e.type()), e.as<FloatImm>()->value);
    case ExprKind::Var: return find(e.get());
    case ExprKind::Cast: return cast(*e.as<Cast>());
    case ExprKind::Binary: {
      const auto& n = *e.as<Binary>();
      Value* a = emit(n.a);
      Value* b = emit(n.b);
      return binary(n.op, n.a.type(), a, b);
    }
    case ExprKind::Select: return select(*e.as<Select>());
    case ExprKind::Load: return load(*e.as<Load>());
    case ExprKind::Ramp: {
      const auto& n = *e.as<Ramp>();
      Value* base = splat(emit(n.base), n.type.lanes);
      Value* stride = splat(emit(n.stride), n.type.lanes);
      std::vector<llvm::Constant*> steps;
      for (int i = 0; i < n.type.lanes; ++i) {
        steps.push_back(llvm::ConstantInt::get(value_type(n.type.scalar()), static_cast<uint64_t>(i)));
      }
      return b_.CreateAdd(base, b_.CreateMul(stride, llvm::ConstantVector::get(steps)));
    }
    case ExprKind::Broadcast: return splat(emit(e.as<Broadcast>()->value), e.lanes());
    case ExprKind::Shuffle: {
      const auto& n = *e.as<Shuffle>();
      std::vector<Value*> lanes;
      for (const Expr& v : n.vectors) {
        Value* vector = emit(v);
        for (int i = 0; i < v.lanes(); ++i) {
          lanes.push_back(v.lanes() == 1 ? vector : b_.CreateExtractElement(vector, static_cast<uint64_t>(i)));
        }
      }
      if (n.indices.size() == 1) return lanes[static_cast<size_t>(n.indices[0])];
      Value* result = llvm::PoisonValue::get(value_type(n.type));
      for (size_t i = 0; i < n.indices.size(); ++i) {
        result = b_.CreateInsertElement(result, lanes[static_cast<size_t>(n.indices[i])], i);
      }
      return result;
    }
    case ExprKind::VectorReduce: return vector_reduce(*e.as<VectorReduce>());
    case ExprKind::Call: return call(*e.as<Call>());
  }
  MCC_UNREACHABLE("unknown expression kind");
}

Value* ValueEmitter::constant(const IntImm& n) {
  return llvm::ConstantInt::get(value_type(n.type), static_cast<uint64_t>(n.value), is_signed_int(n.type.element));
}

// ---- Conversion ----

Value* ValueEmitter::cast(const Cast& n) { return convert(emit(n.value), n.value.type(), n.type); }

// Nearest even on the upper 16 bits; a NaN keeps its upper bits and stays one.
Value* ValueEmitter::round_to_bf16(Value* value) {
  llvm::Type* type = value->getType();
  llvm::Type* ints = type->getWithNewType(b_.getInt32Ty());
  auto imm = [&](uint64_t x) { return llvm::ConstantInt::get(ints, x); };
  Value* bits = b_.CreateBitCast(value, ints);
  Value* lowest = b_.CreateAnd(b_.CreateLShr(bits, imm(16)), imm(1));
  Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(lowest, imm(0x7fff)));
  Value* quiet = b_.CreateOr(bits, imm(0x400000));
  Value* is_nan = b_.CreateFCmpUNO(value, value);
  Value* kept = b_.CreateAnd(b_.CreateSelect(is_nan, quiet, rounded), imm(0xffff0000));
  return b_.CreateBitCast(kept, type);
}

Value* ValueEmitter::convert(Value* value, Type from, Type to) {
  if (from.element == to.element) return value;
  llvm::Type* type = value_type(to);
  llvm::Type* source = value->getType();
  if (is_bool(to.element)) {
    llvm::Constant* zero = llvm::Constant::getNullValue(source);
    return mcc::is_float(from.element) ? b_.CreateFCmpUNE(value, zero) : b_.CreateICmpNE(value, zero);
  }
  bool from_signed = is_signed_int(from.element);
  if (mcc::is_float(to.element)) {
    if (!mcc::is_float(from.element)) {
      value = from_signed ? b_.CreateSIToFP(value, type) : b_.CreateUIToFP(value, type);
    } else if (source != type) {
      bool widens = source->getScalarSizeInBits() < type->getScalarSizeInBits();
      value = widens ? b_.CreateFPExt(value, type) : b_.CreateFPTrunc(value, type);
    }
    return to.element == ElementType::bf16 ? round_to_bf16(value) : value;
  }
  if (mcc::is_float(from.element)) {
    auto id = is_signed_int(to.element) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {type, source}, {value});
  }
  return b_.CreateIntCast(value, type, from_signed);
}

// ---- Arithmetic ----

Value* ValueEmitter::binary(BinaryOp op, Type type, Value* a, Value* b) {
  if (is_bool(type.element)) {
    switch (op) {
      case BinaryOp::logical_and:
      case BinaryOp::bit_and:
      case BinaryOp::mul:
      case BinaryOp::min: return b_.CreateAnd(a, b);
      case BinaryOp::logical_or:
      case BinaryOp::bit_or:
      case BinaryOp::add:
      case BinaryOp::max: return b_.CreateOr(a, b);
      case BinaryOp::bit_xor:
      case BinaryOp::ne: return b_.CreateXor(a, b);
      case BinaryOp::eq: return b_.CreateNot(b_.CreateXor(a, b));
      case BinaryOp::lt: return b_.CreateAnd(b_.CreateNot(a), b);
      case BinaryOp::le: return b_.CreateOr(b_.CreateNot(a), b);
      case BinaryOp::gt: return b_.CreateAnd(a, b_.CreateNot(b));
      case BinaryOp::ge: return b_.CreateOr(a, b_.CreateNot(b));
      case BinaryOp::sub:
      case BinaryOp::div:
      case BinaryOp::mod:
      case BinaryOp::floor_div:
      case BinaryOp::floor_mod:
      case BinaryOp::shl:
      case BinaryOp::shr: MCC_UNREACHABLE(to_text(op), " of bool");
    }
  }
  if (!mcc::is_float(type.element)) return int_binary(op, is_signed_int(type.element), a, b);
  Value* result = float_binary(op, a, b);
  bool rounds = type.element == ElementType::bf16 && !is_comparison(op) && op != BinaryOp::min && op != BinaryOp::max;
  return rounds ? round_to_bf16(result) : result;
}

Value* ValueEmitter::float_binary(BinaryOp op, Value* a, Value* b) {
  switch (op) {
    case BinaryOp::add: return b_.CreateFAdd(a, b);
    case BinaryOp::sub: return b_.CreateFSub(a, b);
    case BinaryOp::mul: return b_.CreateFMul(a, b);
    case BinaryOp::div: return b_.CreateFDiv(a, b);
    case BinaryOp::mod: {
      // x - trunc(x / y) * y in double, in one rounding: exact while the quotient is below 2^53.
      llvm::Type* wide = a->getType()->getWithNewType(b_.getDoubleTy());
      bool narrow = a->getType() != wide;
      Value* x = narrow ? b_.CreateFPExt(a, wide) : a;
      Value* y = narrow ? b_.CreateFPExt(b, wide) : b;
      Value* quotient = b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, b_.CreateFDiv(x, y));
      Value* product = b_.CreateFMul(quotient, y);
      Value* rest = b_.CreateFSub(x, product);
      // An infinite divisor leaves the dividend; a zero result has the dividend's sign.
      Value* is_inf = b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, y),
                                       llvm::ConstantFP::getInfinity(wide));
      Value* is_finite = b_.CreateFCmpONE(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                                          llvm::ConstantFP::getInfinity(wide));
      rest = b_.CreateSelect(b_.CreateAnd(is_inf, is_finite), x, rest);
      rest = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, rest, x);
      return narrow ? b_.CreateFPTrunc(rest, a->getType()) : rest;
    }
    case BinaryOp::min: return min_max(false, a, b);
    case BinaryOp::max: return min_max(true, a, b);
    case BinaryOp::eq: return b_.CreateFCmpOEQ(a, b);
    case BinaryOp::ne: return b_.CreateFCmpUNE(a, b);
    case BinaryOp::lt: return b_.CreateFCmpOLT(a, b);
    case BinaryOp::le: return b_.CreateFCmpOLE(a, b);
    case BinaryOp::gt: return b_.CreateFCmpOGT(a, b);
    case BinaryOp::ge: return b_.CreateFCmpOGE(a, b);
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr: break;
  }
  MCC_UNREACHABLE(to_text(op), " of floats");
}

// The machine's maximum gives its second operand when either is NaN. With a constant in front that is all it takes;
// else a NaN in the first operand is put back.
Value* ValueEmitter::min_max(bool is_max, Value* a, Value* b) {
  if (is_number(b)) std::swap(a, b);
  Value* first = is_max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b);
  Value* result = b_.CreateSelect(first, a, b);
  if (is_number(a)) return result;
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, result);
}

Value* ValueEmitter::int_binary(BinaryOp op, bool is_signed, Value* a, Value* b) {
  switch (op) {
    case BinaryOp::add: return b_.CreateAdd(a, b);
    case BinaryOp::sub: return b_.CreateSub(a, b);
    case BinaryOp::mul: return b_.CreateMul(a, b);
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod: return divide(op, is_signed, a, b);
    case BinaryOp::min: return b_.CreateSelect(is_signed ? b_.CreateICmpSLT(b, a) : b_.CreateICmpULT(b, a), b, a);
    case BinaryOp::max: return b_.CreateSelect(is_signed ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b), b, a);
    case BinaryOp::eq: return b_.CreateICmpEQ(a, b);
    case BinaryOp::ne: return b_.CreateICmpNE(a, b);
    case BinaryOp::lt: return is_signed ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
    case BinaryOp::le: return is_signed ? b_.CreateICmpSLE(a, b) : b_.CreateICmpULE(a, b);
    case BinaryOp::gt: return is_signed ? b_.CreateICmpSGT(a, b) : b_.CreateICmpUGT(a, b);
    case BinaryOp::ge: return is_signed ? b_.CreateICmpSGE(a, b) : b_.CreateICmpUGE(a, b);
    case BinaryOp::bit_and: return b_.CreateAnd(a, b);
    case BinaryOp::bit_or: return b_.CreateOr(a, b);
    case BinaryOp::bit_xor: return b_.CreateXor(a, b);
    case BinaryOp::shl: return b_.CreateShl(a, b);
    case BinaryOp::shr: return is_signed ? b_.CreateAShr(a, b) : b_.CreateLShr(a, b);
    case BinaryOp::logical_and:
    case BinaryOp::logical_or: break;
  }
  MCC_UNREACHABLE(to_text(op), " of integers");
}

// Division that never traps: by zero gives 0, the smallest value by -1 wraps.
Value* ValueEmitter::divide(BinaryOp op, bool is_signed, Value* a, Value* b) {
  llvm::Type* type = a->getType();
  llvm::Constant* zero = llvm::Constant::getNullValue(type);
  auto* splat_constant = llvm::dyn_cast<llvm::Constant>(b);
  llvm::Constant* scalar = splat_constant && type->isVectorTy() ? splat_constant->getSplatValue() : splat_constant;
  auto* divisor = llvm::dyn_cast_or_null<llvm::ConstantInt>(scalar);
  bool is_safe = divisor && !divisor->isZero() && !divisor->isMinusOne();
  Value* safe = b;
  Value* by_zero = nullptr;
  if (!is_safe) {
    by_zero = b_.CreateICmpEQ(b, zero);
    Value* bad = by_zero;
    if (is_signed) {
      auto smallest = llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(type->getScalarSizeInBits()));
      Value* overflow = b_.CreateAnd(b_.CreateICmpEQ(a, smallest),
                                     b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(type)));
      bad = b_.CreateOr(bad, overflow);
    }
    safe = b_.CreateSelect(bad, llvm::ConstantInt::get(type, 1), b);
  }
  bool wants_quotient = op == BinaryOp::div || op == BinaryOp::floor_div;
  bool is_floor = is_signed && (op == BinaryOp::floor_div || op == BinaryOp::floor_mod);
  if (is_floor && is_safe && divisor->getValue().isPowerOf2()) {
    unsigned shift = divisor->getValue().logBase2();
    return wants_quotient ? b_.CreateAShr(a, llvm::ConstantInt::get(type, shift))
                          : b_.CreateAnd(a, b_.CreateSub(b, llvm::ConstantInt::get(type, 1)));
  }
  Value* result = nullptr;
  if (is_floor) {
    Value* quotient = b_.CreateSDiv(a, safe);
    Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, safe));
    Value* crosses = b_.CreateAnd(b_.CreateICmpNE(rest, zero), b_.CreateICmpSLT(b_.CreateXor(rest, safe), zero));
    result = wants_quotient ? b_.CreateSub(quotient, b_.CreateZExt(crosses, type))
                            : b_.CreateAdd(rest, b_.CreateSelect(crosses, safe, zero));
  } else if (wants_quotient) {
    result = is_signed ? b_.CreateSDiv(a, safe) : b_.CreateUDiv(a, safe);
  } else {
    result = is_signed ? b_.CreateSRem(a, safe) : b_.CreateURem(a, safe);
  }
  return by_zero ? b_.CreateSelect(by_zero, zero, result) : result;
}

// Halves are combined until one lane is left: any order is licensed.
Value* ValueEmitter::vector_reduce(const VectorReduce& n) {
  Value* value = emit(n.value);
  Type type = n.value.type();
  int lanes = type.lanes;
  Value* rest = nullptr;  // lanes that do not make a power of two
  auto extract = [&](int first, int count) {
    std::vector<int> mask;
    for (int i = 0; i < count; ++i) mask.push_back(first + i);
    return count == 1 ? b_.CreateExtractElement(value, static_cast<uint64_t>(first))
                      : b_.CreateShuffleVector(value, mask);
  };
  int power = 1;
  while (power * 2 <= lanes) power *= 2;
  for (int i = power; i < lanes; ++i) {
    Value* lane = extract(i, 1);
    rest = rest ? binary(n.op, type.scalar(), rest, lane) : lane;
  }
  if (power != lanes) value = extract(0, power);
  for (lanes = power; lanes > 1; lanes /= 2) {
    Value* low = extract(0, lanes / 2);
    Value* high = extract(lanes / 2, lanes / 2);
    value = binary(n.op, type.with_lanes(lanes / 2), low, high);
  }
  return rest ? binary(n.op, type.scalar(), value, rest) : value;
}

template <class Then, class Else>
Value* ValueEmitter::branch(Value* condition, Then then_value, Else else_value) {
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  llvm::LLVMContext& context = b_.getContext();
  auto* then_block = llvm::BasicBlock::Create(context, "then", function);
  auto* else_block = llvm::BasicBlock::Create(context, "else", function);
  auto* join = llvm::BasicBlock::Create(context, "join", function);
  b_.CreateCondBr(condition, then_block, else_block);
  // What one side computes is not there on the other, nor after the join.
  auto outer = memo_;
  b_.SetInsertPoint(then_block);
  Value* x = then_value();
  llvm::BasicBlock* then_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  memo_ = outer;
  b_.SetInsertPoint(else_block);
  Value* y = else_value();
  llvm::BasicBlock* else_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  memo_ = std::move(outer);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(x->getType(), 2);
  phi->addIncoming(x, then_end);
  phi->addIncoming(y, else_end);
  return phi;
}

Value* ValueEmitter::select(const Select& n) {
  Value* condition = emit(n.condition);
  bool guards = n.condition.lanes() == 1 && (contains_load(n.on_true) || contains_load(n.on_false));
  if (guards) {
    return branch(condition, [&] { return emit(n.on_true); }, [&] { return emit(n.on_false); });
  }
  Value* x = emit(n.on_true);
  Value* y = emit(n.on_false);
  return b_.CreateSelect(condition, x, y);
}

// ---- Memory ----

Value* ValueEmitter::from_memory(Value* raw, Type type) {
  llvm::Type* value = value_type(type);
  if (is_bool(type.element)) return b_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
  if (type.element == ElementType::bf16) {
    llvm::Type* ints = value->getWithNewType(b_.getInt32Ty());
    Value* bits = b_.CreateShl(b_.CreateZExt(raw, ints), llvm::ConstantInt::get(ints, 16));
    return b_.CreateBitCast(bits, value);
  }
  return bit_width(type.element) < 8 ? b_.CreateTrunc(raw, value) : raw;
}

Value* ValueEmitter::to_memory(Value* value, Type type) {
  llvm::Type* raw = value->getType()->getWithNewType(memory_type(type.element));
  if (is_bool(type.element)) return b_.CreateZExt(value, raw);
  if (type.element == ElementType::bf16) {
    llvm::Type* ints = value->getType()->getWithNewType(b_.getInt32Ty());
    Value* bits = b_.CreateLShr(b_.CreateBitCast(value, ints), llvm::ConstantInt::get(ints, 16));
    return b_.CreateTrunc(bits, raw);
  }
  if (bit_width(type.element) < 8) return b_.CreateIntCast(value, raw, is_signed_int(type.element));
  return value;
}

Value* ValueEmitter::address(const Buffer& buffer, Value* index) {
  return b_.CreateInBoundsGEP(memory_type(buffer.element()), pointer_of(buffer), index);
}

namespace {

Expr index_of(const std::vector<Expr>& indices) {
  MCC_CHECK(indices.size() <= 1, "buffers are flat after lowering");
  return indices.empty() ? Expr(0) : indices[0];
}

std::vector<int> reversed(int lanes) {
  std::vector<int> mask;
  for (int i = lanes; i-- > 0;) mask.push_back(i);
  return mask;
}

}  // namespace

Value* ValueEmitter::load(const Load& n) {
  if (!n.predicate.defined()) return unguarded_load(n, nullptr);
  Value* mask = emit(n.predicate);
  if (n.type.lanes > 1) return unguarded_load(n, mask);
  return branch(mask, [&] { return unguarded_load(n, nullptr); },
                [&] { return llvm::Constant::getNullValue(value_type(n.type)); });
}

Value* ValueEmitter::unguarded_load(const Load& n, Value* mask) {
  Expr index = index_of(n.indices);
  llvm::Type* element = memory_type(n.buffer.element());
  llvm::Align align(static_cast<uint64_t>(byte_size(n.buffer.element())));
  int lanes = n.type.lanes;
  if (lanes == 1) {
    Value* raw = tag(b_.CreateAlignedLoad(element, address(n.buffer, emit(index)), align), n.buffer);
    return from_memory(raw, n.type);
  }
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
  std::optional<RampForm> ramp = ramp_form(index);
  if (ramp && ramp->stride == 0 && !mask) {
    Value* raw = tag(b_.CreateAlignedLoad(element, address(n.buffer, emit(ramp->base)), align), n.buffer);
    return splat(from_memory(raw, n.type.scalar()), lanes);
  }
  llvm::Constant* zero = llvm::Constant::getNullValue(type);
  if (ramp && ramp->stride == 1) {
    Value* pointer = address(n.buffer, emit(ramp->base));
    if (mask) return from_memory(tag(b_.CreateMaskedLoad(type, pointer, align, mask, zero), n.buffer), n.type);
    return from_memory(tag(b_.CreateAlignedLoad(type, pointer, align), n.buffer), n.type);
  }
  if (ramp && ramp->stride == -1 && !mask) {
    Value* first = emit(ramp->base - (lanes - 1));
    Value* raw = tag(b_.CreateAlignedLoad(type, address(n.buffer, first), align), n.buffer);
    return from_memory(b_.CreateShuffleVector(raw, reversed(lanes)), n.type);
  }
  Value* pointers = address(n.buffer, emit(index));
  Value* all = mask ? mask : llvm::Constant::getAllOnesValue(
                                 llvm::FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(lanes)));
  Value* raw = tag(b_.CreateMaskedGather(type, pointers, align, all, zero), n.buffer);
  return from_memory(raw, n.type);
}

void ValueEmitter::emit_store(const Store& n) {
  Expr index = index_of(n.indices);
  int lanes = std::max(n.value.lanes(), index.lanes());
  Type type = n.value.type().with_lanes(lanes);
  Value* value = emit(n.value);
  if (n.value.lanes() < lanes) value = splat(value, lanes);
  Value* raw = to_memory(value, type);
  Value* mask = n.predicate.defined() ? emit(n.predicate) : nullptr;
  llvm::Align align(static_cast<uint64_t>(byte_size(n.buffer.element())));
  if (lanes == 1) {
    if (!mask) {
      tag(b_.CreateAlignedStore(raw, address(n.buffer, emit(index)), align), n.buffer);
    } else {
      llvm::Function* function = b_.GetInsertBlock()->getParent();
      auto* then_block = llvm::BasicBlock::Create(b_.getContext(), "store", function);
      auto* join = llvm::BasicBlock::Create(b_.getContext(), "stored", function);
      b_.CreateCondBr(mask, then_block, join);
      b_.SetInsertPoint(then_block);
      tag(b_.CreateAlignedStore(raw, address(n.buffer, emit(index)), align), n.buffer);
      b_.CreateBr(join);
      b_.SetInsertPoint(join);
    }
    return forget();
  }
  if (mask && !mask->getType()->isVectorTy()) mask = splat(mask, lanes);
  std::optional<RampForm> ramp = ramp_form(index);
  if (ramp && (ramp->stride == 1 || (ramp->stride == -1 && !mask))) {
    if (ramp->stride == -1) raw = b_.CreateShuffleVector(raw, reversed(lanes));
    Value* first = emit(ramp->stride == 1 ? ramp->base : ramp->base - (lanes - 1));
    Value* pointer = address(n.buffer, first);
    if (mask) {
      tag(b_.CreateMaskedStore(raw, pointer, align, mask), n.buffer);
    } else {
      tag(b_.CreateAlignedStore(raw, pointer, align), n.buffer);
    }
  } else {
    tag(b_.CreateMaskedScatter(raw, address(n.buffer, emit(index)), align, mask), n.buffer);
  }
  forget();
}

void ValueEmitter::emit_prefetch(const Call& n) {
  const auto* load = n.args[0].as<Load>();
  int64_t locality = 3;
  as_int(n.args[1], &locality);
  MCC_CHECK(load, "prefetch of something that is no load");
  Expr index = index_of(load->indices);
  std::optional<RampForm> ramp = index.lanes() > 1 ? ramp_form(index) : std::nullopt;
  Value* pointer = address(load->buffer, emit(ramp ? ramp->base : index));
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                     {pointer, b_.getInt32(0), b_.getInt32(static_cast<uint32_t>(locality)), b_.getInt32(1)});
}

// ---- Calls ----

Value* ValueEmitter::call(const Call& n) {
  std::vector<Value*> args;
  for (const Expr& a : n.args) args.push_back(emit(a));
  Type type = n.args[0].type();
  auto unary = [&](llvm::Intrinsic::ID id) {
    Value* result = b_.CreateUnaryIntrinsic(id, args[0]);
    return type.element == ElementType::bf16 ? round_to_bf16(result) : result;
  };
  switch (n.function) {
    case Intrinsic::sqrt: return unary(llvm::Intrinsic::sqrt);
    case Intrinsic::abs:
      if (mcc::is_float(type.element)) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, args[0]);
      if (is_unsigned_int(type.element)) return args[0];
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, args[0], b_.getFalse());
    case Intrinsic::floor: return unary(llvm::Intrinsic::floor);
    case Intrinsic::ceil: return unary(llvm::Intrinsic::ceil);
    case Intrinsic::round: return unary(llvm::Intrinsic::rint);
    case Intrinsic::trunc: return unary(llvm::Intrinsic::trunc);
    case Intrinsic::fma: {
      if (target_.has_fma && type.element != ElementType::bf16) {
        return b_.CreateIntrinsic(llvm::Intrinsic::fma, {args[0]->getType()}, args);
      }
      // Without the instruction: the product of two floats is exact in double.
      llvm::Type* wide = args[0]->getType()->getWithNewType(b_.getDoubleTy());
      Value* product = b_.CreateFMul(b_.CreateFPCast(args[0], wide), b_.CreateFPCast(args[1], wide));
      Value* sum = b_.CreateFAdd(product, b_.CreateFPCast(args[2], wide));
      Value* result = b_.CreateFPCast(sum, args[0]->getType());
      return type.element == ElementType::bf16 ? round_to_bf16(result) : result;
    }
    case Intrinsic::is_nan: return b_.CreateFCmpUNO(args[0], args[0]);
    case Intrinsic::is_inf:
      return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, args[0]),
                              llvm::ConstantFP::getInfinity(args[0]->getType()));
    case Intrinsic::logical_not:
    case Intrinsic::bit_not: return b_.CreateNot(args[0]);
    case Intrinsic::popcount: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, args[0]);
    case Intrinsic::bit_cast: return b_.CreateBitCast(args[0], value_type(n.type));
    case Intrinsic::likely: return args[0];
    case Intrinsic::prefetch: MCC_UNREACHABLE("prefetch is a statement");
    case Intrinsic::exp:
    case Intrinsic::exp2:
    case Intrinsic::log:
    case Intrinsic::log2:
    case Intrinsic::log1p:
    case Intrinsic::expm1:
    case Intrinsic::pow:
    case Intrinsic::rsqrt:
    case Intrinsic::tanh:
    case Intrinsic::erf:
    case Intrinsic::sigmoid:
    case Intrinsic::sin:
    case Intrinsic::cos:
    case Intrinsic::tan:
    case Intrinsic::asin:
    case Intrinsic::acos:
    case Intrinsic::atan:
    case Intrinsic::sinh:
    case Intrinsic::cosh:
    case Intrinsic::asinh:
    case Intrinsic::acosh:
    case Intrinsic::atanh: break;
  }
  MCC_UNREACHABLE(to_text(n.function), " is expanded by lowering");
}

}  // namespace mcc::codegen
