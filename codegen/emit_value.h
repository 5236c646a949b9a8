// Expressions of the tensor IR as LLVM values. Internal to codegen.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <unordered_map>

#include "codegen/codegen.h"
#include "tensor/visit.h"

namespace mcc::codegen {

// Emits expressions at the builder's insertion point. Values of bool are i1 (i8 in memory), of i4/u4 are i4 (i8 in
// memory); bf16 is held as float that is rounded after each operation, since x86 has no arithmetic on it.
// A node that several expressions share is emitted once as long as no store or branch comes between.
class ValueEmitter {
 public:
  ValueEmitter(llvm::IRBuilder<>& builder, const tensor::Target& target, const EmitOptions& options);

  llvm::Value* emit(const tensor::Expr& e);

  void bind(const tensor::ExprNode* var, llvm::Value* value) { vars_[var] = value; }
  llvm::Value* find(const tensor::ExprNode* var) const;
  void bind(const tensor::BufferNode* buffer, llvm::Value* pointer) { buffers_[buffer] = pointer; }
  llvm::Value* pointer_of(const tensor::Buffer& buffer) const;

  void emit_store(const tensor::Store& store);
  void emit_prefetch(const tensor::Call& call);
  // Values emitted so far may not be used any more at the insertion point: it is in another block, or memory changed.
  void forget() { memo_.clear(); }
  // Bindings as they were (around another function's body).
  void restore(const ValueEmitter& before) {
    vars_ = before.vars_;
    buffers_ = before.buffers_;
    memo_.clear();
  }

  // The types of values and of their storage.
  llvm::Type* value_type(tensor::Type type) const;
  llvm::Type* memory_type(ElementType element) const;

 private:
  llvm::Value* emit_new(const tensor::Expr& e);
  llvm::Value* constant(const tensor::IntImm& n);
  llvm::Value* cast(const tensor::Cast& n);
  llvm::Value* convert(llvm::Value* value, tensor::Type from, tensor::Type to);
  llvm::Value* binary(tensor::BinaryOp op, tensor::Type type, llvm::Value* a, llvm::Value* b);
  llvm::Value* float_binary(tensor::BinaryOp op, llvm::Value* a, llvm::Value* b);
  llvm::Value* int_binary(tensor::BinaryOp op, bool is_signed, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide(tensor::BinaryOp op, bool is_signed, llvm::Value* a, llvm::Value* b);
  llvm::Value* min_max(bool is_max, llvm::Value* a, llvm::Value* b);
  llvm::Value* select(const tensor::Select& n);
  llvm::Value* load(const tensor::Load& n);
  llvm::Value* unguarded_load(const tensor::Load& n, llvm::Value* mask);
  llvm::Value* vector_reduce(const tensor::VectorReduce& n);
  llvm::Value* call(const tensor::Call& n);
  llvm::Value* round_to_bf16(llvm::Value* value);
  llvm::Value* from_memory(llvm::Value* raw, tensor::Type type);
  llvm::Value* to_memory(llvm::Value* value, tensor::Type type);
  llvm::Value* address(const tensor::Buffer& buffer, llvm::Value* index);
  llvm::Value* splat(llvm::Value* value, int lanes);
  // then_value or else_value, evaluating only one side.
  template <class Then, class Else>
  llvm::Value* branch(llvm::Value* condition, Then then_value, Else else_value);
  template <class I>
  I* tag(I* access, const tensor::Buffer& buffer);

  llvm::IRBuilder<>& b_;
  const tensor::Target& target_;
  const EmitOptions& options_;
  std::unordered_map<const tensor::ExprNode*, llvm::Value*> vars_, memo_;
  std::unordered_map<const tensor::BufferNode*, llvm::Value*> buffers_;
  llvm::MDNode* alias_domain_ = nullptr;
  std::unordered_map<const tensor::BufferNode*, llvm::MDNode*> alias_scopes_, no_alias_;
  std::vector<tensor::Buffer> scope_order_;

 public:
  // Accesses of different buffers do not alias: one scope for each, listed before any access is emitted.
  void declare_buffers(const std::vector<tensor::Buffer>& buffers);
};

// An index vector as base + stride * lane, if it is one.
struct RampForm {
  tensor::Expr base;
  int64_t stride = 0;
};
std::optional<RampForm> ramp_form(const tensor::Expr& index);

}  // namespace mcc::codegen
