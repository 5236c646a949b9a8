#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>

#include "codegen/kernel_emitter.h"
#include "tensor/instructions.h"
#include "tensor/kernel_abi.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;
using llvm::Constant;
using llvm::ConstantInt;
using LlvmType = llvm::Type;

namespace {

// Larger strides are gathered: more loads and shuffles than lanes would gain nothing.
constexpr int64_t kMaxShuffledStride = 4;

// An index vector as base + stride * lane.
struct Strided {
  Expr base;
  int64_t stride = 0;
};

// Sums and multiples of ramps and broadcasts count too.
std::optional<Strided> as_strided(const Expr& index) {
  int64_t value = 0;
  if (const auto* ramp = index.as<Ramp>()) {
    if (!as_int(ramp->stride, &value)) return std::nullopt;
    return Strided{ramp->base, value};
  }
  if (const auto* same = index.as<Broadcast>()) return Strided{same->value, 0};
  const auto* n = index.as<Binary>();
  if (!n || (n->op != BinaryOp::add && n->op != BinaryOp::sub && n->op != BinaryOp::mul)) return std::nullopt;
  std::optional<Strided> a = as_strided(n->a), b = as_strided(n->b);
  if (!a || !b) return std::nullopt;
  if (n->op == BinaryOp::add) return Strided{a->base + b->base, a->stride + b->stride};
  if (n->op == BinaryOp::sub) return Strided{a->base - b->base, a->stride - b->stride};
  if (b->stride == 0 && as_int(b->base, &value)) return Strided{a->base * b->base, a->stride * value};
  if (a->stride == 0 && as_int(a->base, &value)) return Strided{a->base * b->base, b->stride * value};
  return std::nullopt;
}

using Lanes = std::vector<int64_t>;

// What an integer or condition is in each lane, if that is known.
std::optional<Lanes> constant_lanes(const Expr& e) {
  int64_t first = 0, stride = 0;
  if (const auto* ramp = e.as<Ramp>(); ramp && as_int(ramp->base, &first) && as_int(ramp->stride, &stride)) {
    Lanes lanes;
    for (int i = 0; i < e.lanes(); ++i)
      lanes.push_back(first + i * stride);
    return lanes;
  }
  if (const auto* same = e.as<Broadcast>(); same && as_int(same->value, &first))
    return Lanes(static_cast<size_t>(e.lanes()), first);
  const auto* n = e.as<Binary>();
  const std::optional<Lanes> a = n ? constant_lanes(n->a) : std::nullopt,
                             b = a ? constant_lanes(n->b) : std::nullopt;
  if (!b) return std::nullopt;
  Lanes lanes;
  auto scalar = [&](int64_t value) { return IntImm::make({n->a.element(), 1}, value); };
  for (size_t i = 0; i < a->size(); ++i) {
    if (!as_int(binary(n->op, scalar((*a)[i]), scalar((*b)[i])), &lanes.emplace_back())) return std::nullopt;
  }
  return lanes;
}

// An index vector as a base and what is added to it in each lane.
struct Pattern {
  Expr base;
  Lanes lanes;
};

std::optional<Pattern> as_pattern(const Expr& index) {
  if (std::optional<Lanes> lanes = constant_lanes(index)) return Pattern{0, std::move(*lanes)};
  if (const std::optional<Strided> strided = as_strided(index)) {
    Lanes lanes;
    for (int i = 0; i < index.lanes(); ++i)
      lanes.push_back(i * strided->stride);
    return Pattern{strided->base, std::move(lanes)};
  }
  const auto* n = index.as<Binary>();
  if (!n || (n->op != BinaryOp::add && n->op != BinaryOp::sub)) return std::nullopt;
  std::optional<Pattern> a = as_pattern(n->a), b = a ? as_pattern(n->b) : std::nullopt;
  if (!b) return std::nullopt;
  const int sign = n->op == BinaryOp::add ? 1 : -1;
  for (size_t i = 0; i < a->lanes.size(); ++i)
    a->lanes[i] += sign * b->lanes[i];
  return Pattern{sign > 0 ? a->base + b->base : a->base - b->base, std::move(a->lanes)};
}

// An index as a rest and a constant that is added to it.
struct WithOffset {
  Expr rest;
  int64_t offset = 0;
};

WithOffset split_offset(const Expr& index) {
  int64_t value = 0;
  if (as_int(index, &value)) return {Expr(0), value};
  const auto* n = index.as<Binary>();
  if (!n || (n->op != BinaryOp::add && n->op != BinaryOp::sub && n->op != BinaryOp::mul)) return {index};
  const WithOffset a = split_offset(n->a), b = split_offset(n->b);
  if (n->op == BinaryOp::mul) {
    if (a.offset == 0 || !as_int(n->b, &value)) return {index};
    return {a.rest * n->b, a.offset * value};
  }
  if (a.offset == 0 && b.offset == 0) return {index};
  return n->op == BinaryOp::add ? WithOffset{a.rest + b.rest, a.offset + b.offset}
                                : WithOffset{a.rest - b.rest, a.offset - b.offset};
}

// The first and the last of lanes that are 1, where all between them are and there are some.
std::optional<std::pair<int64_t, int64_t>> range_of_ones(const Lanes& lanes) {
  const auto first = std::find(lanes.begin(), lanes.end(), 1), end = std::find(first, lanes.end(), 0);
  if (first == lanes.end() || std::find(end, lanes.end(), 1) != lanes.end()) return std::nullopt;
  return std::pair(first - lanes.begin(), end - lanes.begin() - 1);
}

// Lanes from the first to the last, which may lie outside.
Constant* mask_of(llvm::IRBuilder<>& b, int64_t lanes, int64_t first, int64_t last) {
  std::vector<Constant*> bits;
  for (int64_t lane = 0; lane < lanes; ++lane)
    bits.push_back(b.getInt1(lane >= first && lane <= last));
  return llvm::ConstantVector::get(bits);
}

// base + (0, stride, 2*stride, ...) as a scalar base and constant offsets.
Constant* ramp_offsets(llvm::IRBuilder<>& b, int64_t stride, int lanes) {
  std::vector<Constant*> offsets;
  for (int64_t i = 0; i < lanes; ++i)
    offsets.push_back(b.getInt64(static_cast<uint64_t>(i * stride)));
  return llvm::ConstantVector::get(offsets);
}

std::vector<int> reversed(int lanes) {
  std::vector<int> mask;
  for (int i = lanes; i-- > 0;)
    mask.push_back(i);
  return mask;
}

// A power of two, up to kBufferAlignment, that surely divides the index. Workspaces and what a kernel makes itself begin at such
// addresses, too.
int64_t divisor_of(const Expr& index) {
  int64_t value = 0;
  if (as_int(index, &value)) return std::gcd(value % kBufferAlignment, kBufferAlignment);
  const auto* n = index.as<Binary>();
  if (!n) return 1;
  switch (n->op) {
    case BinaryOp::mul:
      return std::min<int64_t>(divisor_of(n->a) * divisor_of(n->b), kBufferAlignment);
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::min:
    case BinaryOp::max:
    case BinaryOp::floor_mod:
      return std::min(divisor_of(n->a), divisor_of(n->b));
    default:
      return 1;
  }
}

llvm::FixedVectorType* vector_type(LlvmType* type) { return llvm::cast<llvm::FixedVectorType>(type); }

}  // namespace

// ---- What accesses cannot touch ----

void KernelEmitter::collect_alias_scopes(const Func& func) {
  llvm::MDBuilder builder(context_);
  alias_domain_ = builder.createAnonymousAliasScopeDomain();
  auto add = [&](const Buffer& buffer) {
    if (alias_scope_.contains(buffer.get())) return;
    alias_scope_[buffer.get()] = builder.createAnonymousAliasScope(alias_domain_);
    alias_order_.push_back(buffer.get());
  };
  for (const Buffer& param : func.params)
    add(param);
  for_each_stmt(func.body, [&](const Stmt& s) {
    if (const auto* allocate = s.as<Allocate>()) add(allocate->buffer);
  });
}

template <class Instruction>
Instruction* KernelEmitter::tag(Instruction* access, const Buffer& buffer) {
  auto& [own, others] = alias_lists_[buffer.get()];
  if (!own) {
    std::vector<llvm::Metadata*> rest;
    for (const BufferNode* other : alias_order_) {
      if (other != buffer.get()) rest.push_back(alias_scope_.at(other));
    }
    own = llvm::MDNode::get(context_, {alias_scope_.at(buffer.get())});
    others = llvm::MDNode::get(context_, rest);
  }
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, own);
  if (others->getNumOperands() > 0) access->setMetadata(llvm::LLVMContext::MD_noalias, others);
  return access;
}

llvm::Align KernelEmitter::element_align(const Buffer& buffer) const {
  return llvm::Align(static_cast<uint64_t>(byte_size(buffer.element())));
}

// GPUs load and store vectors at once only where they are aligned as a whole; there all buffers are.
llvm::Align KernelEmitter::vector_align(const Buffer& buffer, const Expr& index) const {
  if (!on_device()) return element_align(buffer);
  int64_t bytes = std::min<int64_t>(divisor_of(index) * byte_size(buffer.element()), kBufferAlignment);
  return llvm::Align(static_cast<uint64_t>(bytes));
}

llvm::Value* KernelEmitter::address(const Buffer& buffer, Value* index) {
  auto it = scope_.buffers.find(buffer.get());
  MCC_CHECK(it != scope_.buffers.end(), "buffer ", buffer.name(), " is not allocated here");
  return b_.CreateGEP(memory_type(buffer.element(), 1), it->second, index);
}

// GPUs add a constant to an address as they load or store: neighbours share the rest, which is widened to 64 bits once.
llvm::Value* KernelEmitter::address(const Buffer& buffer, const Expr& index) {
  if (!on_device()) return address(buffer, emit_index(index));
  const WithOffset place = split_offset(index);
  Value* first = address(buffer, emit_index(place.rest));
  return place.offset == 0 ? first
                           : b_.CreateGEP(memory_type(buffer.element(), 1), first,
                                          b_.getInt64(static_cast<uint64_t>(place.offset)));
}

// ---- Registers <-> memory ----

llvm::Value* KernelEmitter::from_memory(ElementType element, Value* bits) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(bits->getType());
  int lanes = vector ? static_cast<int>(vector->getNumElements()) : 1;
  if (is_bool(element)) return b_.CreateICmpNE(bits, Constant::getNullValue(bits->getType()));
  if (FloatFormats::is_narrow(element)) return formats_.decode(element, bits);
  return is_float(element) ? bits : b_.CreateTrunc(bits, register_type({element, lanes}));
}

llvm::Value* KernelEmitter::to_memory(ElementType element, Value* value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  LlvmType* type = memory_type(element, vector ? static_cast<int>(vector->getNumElements()) : 1);
  if (FloatFormats::is_narrow(element)) return formats_.encode(element, value);
  if (is_float(element)) return value;
  return is_signed_int(element) ? b_.CreateSExt(value, type) : b_.CreateZExt(value, type);
}

// ---- Loads ----

llvm::Value* KernelEmitter::on(const Load& n) {
  MCC_CHECK(n.indices.size() == 1, "buffer ", n.buffer.name(), " is not flat");
  if (n.predicate.defined() && (n.type.lanes == 1 || (on_device() && n.predicate.as<Broadcast>())))
    return load_guarded(n);
  return from_memory(n.buffer.element(), load_bits(n));
}

// A load, or a vector of them with one condition for all.
llvm::Value* KernelEmitter::load_guarded(const Load& n) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  const auto* same = n.predicate.as<Broadcast>();
  Value* condition = emit(same ? same->value : n.predicate);
  before = b_.GetInsertBlock();
  llvm::BasicBlock* taken = new_block("load");
  llvm::BasicBlock* after = new_block("after");
  b_.CreateCondBr(condition, taken, after);
  auto outer_values = scope_.values;
  start(taken);
  LlvmType* type = memory_type(n.buffer.element(), n.type.lanes);
  const Expr plain = Load::make(n.buffer, n.indices);
  Value* bits = load_bits(*plain.as<Load>());
  taken = b_.GetInsertBlock();
  b_.CreateBr(after);
  start(after);
  scope_.values = std::move(outer_values);
  llvm::PHINode* phi = b_.CreatePHI(type, 2);
  phi->addIncoming(bits, taken);
  phi->addIncoming(Constant::getNullValue(type), before);
  return from_memory(n.buffer.element(), phi);
}

llvm::Value* KernelEmitter::contiguous_load(const Buffer& buffer, Value* where, llvm::Align align, int lanes,
                                            Value* mask) {
  LlvmType* type = memory_type(buffer.element(), lanes);
  if (!mask) return tag(b_.CreateAlignedLoad(type, where, align), buffer);
  return tag(b_.CreateMaskedLoad(type, where, align, mask, Constant::getNullValue(type)), buffer);
}

llvm::Value* KernelEmitter::load_bits(const Load& n) {
  const Expr& index = n.indices[0];
  int lanes = n.type.lanes;
  LlvmType* type = memory_type(n.buffer.element(), lanes);
  llvm::Align align = element_align(n.buffer);
  if (lanes == 1) {
    return tag(b_.CreateAlignedLoad(type, address(n.buffer, index), align), n.buffer);
  }
  if (std::optional<Strided> strided = as_strided(index)) {
    if (strided->stride != 0) return load_strided(n, strided->base, strided->stride);
    if (!n.predicate.defined()) {
      Value* where = address(n.buffer, strided->base);
      Value* one = tag(b_.CreateAlignedLoad(type->getScalarType(), where, align), n.buffer);
      return b_.CreateVectorSplat(static_cast<unsigned>(lanes), one);
    }
  }
  if (Value* window = on_device() ? nullptr : load_window(n)) return window;
  if (Value* found = look_up_bytes(n)) return found;
  Value* mask = n.predicate.defined() ? emit(n.predicate) : nullptr;
  Value* indices = emit_index(index);
  if (on_device() && !mask)
    return load_each(n.buffer, type, [&](uint64_t lane) { return b_.CreateExtractElement(indices, lane); });
  Value* where = address(n.buffer, indices);
  return tag(b_.CreateMaskedGather(type, where, align, mask, Constant::getNullValue(type)), n.buffer);
}

// Elements of a table of 256 bytes whose numbers are bytes: registers hold it, and half of it is looked through at once, or each is loaded.
// Null where that is not so.
llvm::Value* KernelEmitter::look_up_bytes(const Load& n) {
  constexpr int kTable = 256, kVector = 64;
  const auto* number = n.indices[0].as<Cast>();
  if (on_device() || !number || number->value.element() != ElementType::u8 || n.predicate.defined() ||
      byte_size(n.buffer.element()) != 1 || !is_int(n.buffer.shape()[0], kTable))
    return nullptr;
  Value* wide = emit(number->value);
  if (!looks_up_bytes(target_) || n.type.lanes > kVector) {
    // Of bytes, not of the vector of addresses that a gather takes.
    return load_each(n.buffer, memory_type(n.buffer.element(), n.type.lanes), [&](uint64_t lane) {
      return b_.CreateZExt(b_.CreateExtractElement(wide, lane), b_.getInt64Ty());
    });
  }
  std::vector<int> lanes(kVector, llvm::PoisonMaskElem), first(static_cast<size_t>(n.type.lanes));
  std::iota(first.begin(), first.end(), 0);
  std::copy(first.begin(), first.end(), lanes.begin());
  if (n.type.lanes < kVector) wide = b_.CreateShuffleVector(wide, lanes);
  auto quarter = [&](int k) {
    return contiguous_load(n.buffer, address(n.buffer, b_.getInt64(static_cast<uint64_t>(k * kVector))),
                           element_align(n.buffer), kVector, nullptr);
  };
  auto half = [&](int k) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {},
                              {quarter(k), wide, quarter(k + 1)});
  };
  Value* is_upper = b_.CreateICmpSLT(wide, Constant::getNullValue(wide->getType()));
  Value* found = b_.CreateSelect(is_upper, half(2), half(0));
  return n.type.lanes < kVector ? b_.CreateShuffleVector(found, first) : found;
}

// Elements of which lanes take one or another by constants (each twice, as those of pairs side by side are) are loaded at once, and shuffled.
// Null where that is not so.
llvm::Value* KernelEmitter::load_window(const Load& n) {
  const std::optional<Pattern> pattern = as_pattern(n.indices[0]);
  const std::optional<Lanes> is_there =
      n.predicate.defined() ? constant_lanes(n.predicate) : Lanes(static_cast<size_t>(n.type.lanes), 1);
  if (!pattern || !is_there) return nullptr;
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  for (size_t i = 0; i < pattern->lanes.size(); ++i) {
    if ((*is_there)[i] == 0) continue;
    first = std::min(first, pattern->lanes[i]);
    last = std::max(last, pattern->lanes[i]);
  }
  // First and last are read: so may be all between them.
  const int64_t width = last < first ? 0 : last - first + 1;
  if (width < 2 || width > n.type.lanes || !std::has_single_bit(static_cast<uint64_t>(width))) return nullptr;
  const auto count = static_cast<int>(width);
  Value* window = contiguous_load(n.buffer, address(n.buffer, pattern->base + Expr(first)),
                                  element_align(n.buffer), count, nullptr);
  std::vector<int> pick;
  for (size_t i = 0; i < pattern->lanes.size(); ++i)
    pick.push_back((*is_there)[i] == 0 ? count : static_cast<int>(pattern->lanes[i] - first));
  return b_.CreateShuffleVector(window, Constant::getNullValue(window->getType()), pick);
}

// GPUs neither gather nor scatter, and what could be in registers is in memory where LLVM does not see each address by itself.
llvm::Value* KernelEmitter::load_each(const Buffer& buffer, LlvmType* type, const IndexOf& index) {
  Value* all = llvm::PoisonValue::get(type);
  for (uint64_t lane = 0; lane < vector_type(type)->getNumElements(); ++lane) {
    Value* from = address(buffer, index(lane));
    Value* one = tag(b_.CreateAlignedLoad(type->getScalarType(), from, element_align(buffer)), buffer);
    all = b_.CreateInsertElement(all, one, lane);
  }
  return all;
}

void KernelEmitter::store_each(const Buffer& buffer, Value* bits, const IndexOf& index) {
  for (uint64_t lane = 0; lane < vector_type(bits->getType())->getNumElements(); ++lane) {
    Value* one = b_.CreateExtractElement(bits, lane);
    tag(b_.CreateAlignedStore(one, address(buffer, index(lane)), element_align(buffer)), buffer);
  }
}

llvm::Value* KernelEmitter::load_strided(const Load& n, const Expr& first, int64_t stride) {
  int lanes = n.type.lanes;
  llvm::Align align = element_align(n.buffer);
  if (stride == 1) {
    Value* where = address(n.buffer, first);
    Value* mask = n.predicate.defined() ? emit(n.predicate) : nullptr;
    return contiguous_load(n.buffer, where, vector_align(n.buffer, first), lanes, mask);
  }
  Value* base = emit_index(first);
  Value* mask = n.predicate.defined() ? emit(n.predicate) : nullptr;
  auto at = [&](int64_t offset) {
    return b_.CreateAdd(base, ConstantInt::get(base->getType(), static_cast<uint64_t>(offset), true));
  };
  LlvmType* type = memory_type(n.buffer.element(), lanes);
  if (on_device() && !mask)
    return load_each(n.buffer, type, [&](uint64_t lane) { return at(stride * static_cast<int64_t>(lane)); });
  if (stride == -1) {
    if (mask) mask = b_.CreateShuffleVector(mask, reversed(lanes));
    return b_.CreateShuffleVector(
        contiguous_load(n.buffer, address(n.buffer, at(1 - lanes)), align, lanes, mask), reversed(lanes));
  }
  // Lanes that are there, from one on up to another, by constants: elements between theirs may be read, too.
  const std::optional<Lanes> is_there = n.predicate.defined() ? constant_lanes(n.predicate) : std::nullopt;
  const std::optional<std::pair<int64_t, int64_t>> range = is_there ? range_of_ones(*is_there) : std::nullopt;
  if (stride > kMaxShuffledStride || stride < 0 || (mask && !range) || lanes < 4) {
    Value* where =
        b_.CreateGEP(type->getScalarType(), address(n.buffer, base), ramp_offsets(b_, stride, lanes));
    return tag(
        b_.CreateMaskedGather(type, where, element_align(n.buffer), mask, Constant::getNullValue(type)),
        n.buffer);
  }
  // `stride` loads side by side, the last one ending at the last element that is wanted, so that nothing behind it
  // is read, or without the elements before and behind those of the range; then lane i is element stride*i of them.
  int64_t span = stride * (lanes - 1) + 1;
  Value* result = nullptr;
  for (int64_t chunk = 0; chunk < stride; ++chunk) {
    const int64_t start = range ? chunk * lanes : std::min(chunk * lanes, span - lanes);
    Constant* wanted =
        range ? mask_of(b_, lanes, stride * range->first - start, stride * range->second - start) : nullptr;
    Value* part = contiguous_load(n.buffer, address(n.buffer, at(start)), align, lanes, wanted);
    std::vector<int> pick;
    for (int64_t i = 0; i < lanes; ++i) {
      int64_t element = stride * i;
      bool is_here = element / lanes == chunk;
      pick.push_back(static_cast<int>(is_here ? lanes + element - start : i));
    }
    result = b_.CreateShuffleVector(result ? result : llvm::PoisonValue::get(type), part, pick);
  }
  return result;
}

// ---- Stores ----

void KernelEmitter::on(const Store& n) {
  MCC_CHECK(n.indices.size() == 1, "buffer ", n.buffer.name(), " is not flat");
  MCC_CHECK(n.indices[0].lanes() == n.value.lanes(), "store to ", n.buffer.name(), ": ", n.value.lanes(),
            " values, ", n.indices[0].lanes(), " indices");
  if (n.value.lanes() > 1 || !n.predicate.defined()) {
    return store_bits(n, to_memory(n.buffer.element(), emit(n.value)));
  }
  Value* condition = emit(n.predicate);
  llvm::BasicBlock* taken = new_block("store");
  llvm::BasicBlock* after = new_block("after");
  b_.CreateCondBr(condition, taken, after);
  start(taken);
  store_bits(n, to_memory(n.buffer.element(), emit(n.value)));
  b_.CreateBr(after);
  start(after);
  scope_.values.clear();
}

void KernelEmitter::store_bits(const Store& n, Value* bits) {
  const Expr& index = n.indices[0];
  llvm::Align align = element_align(n.buffer);
  int lanes = n.value.lanes();
  if (lanes == 1) {
    tag(b_.CreateAlignedStore(bits, address(n.buffer, index), align), n.buffer);
    return;
  }
  Value* mask = n.predicate.defined() ? emit(n.predicate) : nullptr;
  std::optional<Strided> strided = as_strided(index);
  if (strided && (strided->stride == 1 || strided->stride == -1)) {
    if (strided->stride == 1) align = vector_align(n.buffer, strided->base);
    if (strided->stride == -1) {
      bits = b_.CreateShuffleVector(bits, reversed(lanes));
      if (mask) mask = b_.CreateShuffleVector(mask, reversed(lanes));
    }
    Value* where = address(n.buffer, strided->stride == 1 ? strided->base : strided->base - Expr(lanes - 1));
    if (mask) {
      tag(b_.CreateMaskedStore(bits, where, align, mask), n.buffer);
    } else {
      tag(b_.CreateAlignedStore(bits, where, align), n.buffer);
    }
    return;
  }
  if (on_device() && !mask) {
    Value* first = emit_index(strided ? strided->base : index);
    return store_each(n.buffer, bits, [&](uint64_t lane) {
      if (!strided) return b_.CreateExtractElement(first, lane);
      return b_.CreateAdd(first, b_.getInt64(static_cast<uint64_t>(strided->stride * static_cast<int64_t>(lane))));
    });
  }
  Value* where = nullptr;
  if (strided) {
    Value* first = address(n.buffer, strided->base);
    Constant* offsets = ramp_offsets(b_, strided->stride, lanes);
    where = b_.CreateGEP(vector_type(bits->getType())->getElementType(), first, offsets);
  } else {
    where = address(n.buffer, emit_index(index));
  }
  tag(b_.CreateMaskedScatter(bits, where, align, mask), n.buffer);
}

}  // namespace mcc::codegen
