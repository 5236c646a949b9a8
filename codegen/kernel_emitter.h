// A lowered function -> LLVM IR. Internal to codegen: includes LLVM.
//
// Values in registers: bool is i1, integers have their own width (i4 too), f64 is double, every other float is float
// (rounded to its format after each operation). In memory bool and 4-bit integers take a byte.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "codegen/float_formats.h"
#include "codegen/launch_plan.h"
#include "codegen/memory_plan.h"
#include "tensor/stmt.h"

namespace mcc::codegen {

class KernelEmitter {
 public:
  KernelEmitter(llvm::Module& module, const tensor::Target& target, const EmitOptions& options,
                const MemoryPlan& memory);

  // Adds the kernel, and one internal function for each parallel loop.
  void emit(const tensor::Func& func, const std::string& symbol);
  // Adds a kernel of the GPU for one launch of the function (emit_device.cpp). Shared memory beyond what any kernel may have
  // is dynamic.
  void emit_launch(const tensor::Func& func, const LaunchPlan& launch, const std::string& entry, bool is_shared_dynamic);

 private:
  using Value = llvm::Value;

  // A 64-bit integer of the IR that lies in [low, high]: of 32 bits where that is enough.
  struct Bounded {
    Value* value = nullptr;
    int64_t low = INT64_MIN, high = INT64_MAX;
  };

  // What holds for the LLVM function being written.
  struct Scope {
    std::unordered_map<const tensor::ExprNode*, Value*> vars;
    std::unordered_map<const tensor::BufferNode*, Value*> buffers;  // base addresses
    std::unordered_map<const tensor::ExprNode*, Value*> values;     // of expressions seen in this basic block
    std::unordered_map<const tensor::BufferNode*, llvm::AllocaInst*> stack;  // all that were allocated so far
    std::unordered_map<const tensor::ExprNode*, Bounded> narrow;  // of vars: loops on a GPU
    Value* scratch = nullptr;       // this thread's, if the kernel has any
    Value* scratch_base = nullptr;  // the first thread's
    Value* worker = nullptr;        // the thread's number, of 32 bits, in a task
    bool in_task = false;
  };

  std::unordered_set<const tensor::BufferNode*> small_bytes_;  // codegen/small_bytes.h

  // Expressions that have been written, sums of places made here among them: another one at the same address would be taken for it.
  std::vector<tensor::Expr> kept_;

  // ---- Statements (emit_stmt.cpp) ----
  void emit(const tensor::Stmt& s);
  void on(const tensor::For& n);
  void on(const tensor::Block& n);
  void on(const tensor::Store& n);
  void on(const tensor::Seq& n);
  void on(const tensor::If& n);
  void on(const tensor::Let& n);
  void on(const tensor::Allocate& n);
  void on(const tensor::Evaluate& n);
  void emit_loop(const tensor::For& n, Value* begin, Value* end, bool runs_at_least_once);
  void emit_in_layout(const tensor::For& n, Value* begin, Value* end);
  void emit_parallel(const tensor::For& n);
  void emit_in_part(const tensor::Allocate& n, const tensor::Expr& stride);
  llvm::Function* new_function(const std::string& name, llvm::FunctionType* type, bool is_internal);
  llvm::BasicBlock* new_block(const char* name);
  void start(llvm::BasicBlock* block);  // goes on writing there
  llvm::AllocaInst* entry_alloca(llvm::Type* type, const std::string& name);

  // ---- 32-bit index arithmetic of GPUs, where 64-bit instructions are made of several (emit_narrow.cpp) ----
  Bounded emit_bounded(const tensor::Expr& e);
  Bounded bounded_binary(const tensor::Binary& n);
  Value* widen(const Bounded& b);
  Value* narrow_comparison(const tensor::Binary& n);
  void bind_narrow(const tensor::Var& var, const Bounded& value);
  void emit_device_loop(const tensor::For& n);

  // ---- The threads of a GPU (emit_device.cpp) ----
  llvm::CallInst* thread_index(int axis, int64_t end);
  void emit_bound(const tensor::For& n);
  Value* emit_barrier();
  Value* emit_shuffle(tensor::Intrinsic function, Value* value, Value* lanes);
  Value* emit_approximation(tensor::Intrinsic function, Value* x);
  Value* emit_matrix_rows(const tensor::Call& n);
  Value* emit_left(const tensor::Expr& a);
  Value* emit_mma(const tensor::Call& n);
  Value* emit_dot(const tensor::Call& n);
  Value* emit_dp4a(const tensor::Call& n);
  Value* emit_async(const tensor::Call& n);
  Value* emit_wgmma(const tensor::Call& n);  // emit_warpgroup.cpp
  Value* emit_bulk(const tensor::Call& n);   // emit_bulk.cpp
  Value* shared_address(const tensor::Expr& place);
  llvm::CallInst* emit_text(llvm::Type* result, const char* text, const char* constraints,
                            const std::vector<Value*>& inputs);
  Value* matrix_descriptor(const tensor::Call& n, size_t first);
  void emit_with_sums(const tensor::Load& sums, const std::string& text, std::vector<Value*> inputs);
  Value* vector_address(const tensor::Load& n);
  bool on_device() const { return target_.kind == tensor::TargetKind::cuda; }

  // ---- Expressions (emit_expr.cpp) ----
  Value* emit(const tensor::Expr& e);
  Value* emit_index(const tensor::Expr& e);  // index arithmetic does not overflow
  Value* on(const tensor::IntImm& n);
  Value* on(const tensor::FloatImm& n);
  Value* on(const tensor::VarNode& n);
  Value* on(const tensor::Select& n);
  Value* on(const tensor::Load& n);
  Value* on(const tensor::Ramp& n);
  Value* on(const tensor::Broadcast& n);
  Value* on(const tensor::Shuffle& n);
  Value* on(const tensor::VectorReduce& n);
  Value* on(const tensor::Call& n);
  Value* emit_lanewise(const tensor::Call& n);
  Value* emit_prefetch(const tensor::Call& n);
  Value* emit_tile(const tensor::Call& n);  // emit_tile.cpp

  // ---- Arithmetic (emit_arithmetic.cpp) ----
  Value* on(const tensor::Cast& n);
  Value* on(const tensor::Binary& n);
  Value* convert(tensor::Type from, tensor::Type to, Value* value);
  Value* look_up_number(const tensor::Cast& n);
  Value* round_to_bytes(
      const tensor::Cast& n);  // or what widens them; emit_rounding.cpp; null where it is nothing of the kind
  Value* saturate_narrow(ElementType dst, llvm::Type* type, Value* value);
  Value* saturate_wide(ElementType dst, llvm::Type* type, Value* value);
  Value* binary(tensor::BinaryOp op, ElementType element, Value* a, Value* b);  // of operands of this type
  Value* float_binary(tensor::BinaryOp op, ElementType element, Value* a, Value* b);
  Value* int_binary(tensor::BinaryOp op, ElementType element, Value* a, Value* b);
  Value* bool_binary(tensor::BinaryOp op, Value* a, Value* b);
  Value* int_division(tensor::BinaryOp op, ElementType element, Value* a, Value* b);
  Value* float_mod(ElementType element, Value* a, Value* b);
  Value* float_min_max(bool is_min, ElementType element, Value* a, Value* b);
  Value* round_sum_to_odd(Value* x, Value* y, Value* sum);
  Value* emit_fma(ElementType element, Value* a, Value* b, Value* c);

  // ---- Memory (emit_memory.cpp) ----
  Value* load_bits(const tensor::Load& n);
  Value* load_strided(const tensor::Load& n, const tensor::Expr& first, int64_t stride);
  Value* load_window(const tensor::Load& n);
  Value* load_guarded(const tensor::Load& n);
  Value* look_up_bytes(const tensor::Load& n);
  void store_bits(const tensor::Store& n, Value* bits);
  Value* address(const tensor::Buffer& buffer, Value* index);
  Value* address(const tensor::Buffer& buffer, const tensor::Expr& index);  // of a scalar
  using IndexOf = std::function<Value*(uint64_t lane)>;
  Value* load_each(const tensor::Buffer& buffer, llvm::Type* type, const IndexOf& index);
  void store_each(const tensor::Buffer& buffer, Value* bits, const IndexOf& index);
  Value* contiguous_load(const tensor::Buffer& buffer, Value* where, llvm::Align align, int lanes,
                         Value* mask);
  Value* from_memory(ElementType element, Value* bits);
  Value* to_memory(ElementType element, Value* value);
  template <class Instruction>
  Instruction* tag(Instruction* access, const tensor::Buffer& buffer);  // which buffers it cannot touch
  llvm::Align element_align(const tensor::Buffer& buffer) const;
  llvm::Align vector_align(const tensor::Buffer& buffer, const tensor::Expr& index) const;

  // ---- Types ----
  llvm::Type* register_type(tensor::Type type);
  llvm::Type* memory_type(ElementType element, int lanes);
  static llvm::Type* vector_of(llvm::Type* scalar, int lanes);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const tensor::Target& target_;
  const EmitOptions& options_;
  const MemoryPlan& memory_;
  llvm::IRBuilder<> b_;
  FloatFormats formats_;

  Scope scope_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;  // holds only allocas and the loading of arguments
  std::string symbol_;
  bool in_index_ = false;
  int tasks_ = 0;
  Value* executor_ = nullptr;  // in the kernel itself
  Value* shared_ = nullptr;    // a launch's shared memory
  const LaunchPlan* launch_ = nullptr;

  // One alias scope a buffer: params do not overlap, and neither do allocations.
  llvm::MDNode* alias_domain_ = nullptr;
  std::vector<const tensor::BufferNode*> alias_order_;
  std::unordered_map<const tensor::BufferNode*, llvm::MDNode*> alias_scope_;
  std::unordered_map<const tensor::BufferNode*, std::pair<llvm::MDNode*, llvm::MDNode*>> alias_lists_;
  void collect_alias_scopes(const tensor::Func& func);
};

// Internal functions that kernels may call ("mcc.fmod.f32", "mcc.fmod.f64"); made in the module when first asked for.
llvm::Function* get_fmod(llvm::Module& module, bool is_double);

// Whether any load stands below the expression.
bool has_load(const tensor::Expr& e);

}  // namespace mcc::codegen
