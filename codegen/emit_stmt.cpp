#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <functional>
#include <set>

#include "codegen/kernel_emitter.h"
#include "codegen/machine.h"
#include "codegen/narrow_pairs.h"
#include "codegen/small_bytes.h"
#include "tensor/instructions.h"
#include "tensor/kernel_abi.h"
#include "tensor/passes/scope.h"
#include "tensor/settling.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;
using LlvmType = llvm::Type;

namespace {

// Fields of mcc_executor (abi.h) in bytes.
constexpr uint64_t kParallelFor = 0, kNumThreads = 8;

// Whether the loop surely runs.
bool has_positive_extent(const Expr& extent) {
  int64_t value = 0;
  return as_int(extent, &value) && value > 0;
}

// What a statement uses of its surroundings, in the order of first use.
class Captures : public Visitor {
 public:
  template <class Vars, class Buffers>
  Captures(const Stmt& s, const Vars& bound_vars, const Buffers& bound_buffers) {
    is_var_ = [&](const VarNode* v) { return bound_vars.contains(v); };
    is_buffer_ = [&](const BufferNode* b) { return bound_buffers.contains(b); };
    visit(s);
  }
  std::vector<const VarNode*> vars;
  std::vector<const BufferNode*> buffers;

 protected:
  using Visitor::on;
  void on(const Allocate& n) override {
    if (is_buffer_(n.buffer.get())) {  // the threads' parts of a workspace
      add(n.buffer);
      for (const Expr& extent : n.buffer.shape())
        visit(extent);
    }
    Visitor::on(n);
  }
  void on(const VarNode& n) override {
    if (is_var_(&n) && seen_.insert(&n).second) vars.push_back(&n);
  }
  void on(const Load& n) override {
    add(n.buffer);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    add(n.buffer);
    Visitor::on(n);
  }

 private:
  void add(const Buffer& buffer) {
    if (is_buffer_(buffer.get()) && seen_.insert(buffer.get()).second) buffers.push_back(buffer.get());
  }
  std::function<bool(const VarNode*)> is_var_;
  std::function<bool(const BufferNode*)> is_buffer_;
  std::set<const void*> seen_;  // only asked for membership
};

}  // namespace

KernelEmitter::KernelEmitter(llvm::Module& module, const tensor::Target& target, const EmitOptions& options,
                             const MemoryPlan& memory)
    : module_(module),
      context_(module.getContext()),
      target_(target),
      options_(options),
      memory_(memory),
      b_(context_),
      formats_{b_} {
  llvm::FastMathFlags flags;
  flags.setAllowContract(!options.strict);
  if (options.fast_math && !options.strict) {
    flags.setAllowReassoc();
    flags.setNoSignedZeros();
    flags.setAllowReciprocal();
    flags.setApproxFunc();
  }
  b_.setFastMathFlags(flags);
  formats_.has_f16c = on_device() || has_feature(target, "f16c");
  formats_.has_bf16 = on_device() ? has_narrow_pairs(target.gpu)
                                  : has_feature(target, "avx512bf16") && has_feature(target, "avx512vl");
}

llvm::Function* KernelEmitter::new_function(const std::string& name, llvm::FunctionType* type,
                                            bool is_internal) {
  auto linkage = is_internal ? llvm::Function::InternalLinkage : llvm::Function::ExternalLinkage;
  llvm::Function* function = llvm::Function::Create(type, linkage, name, module_);
  if (!is_internal) function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr("target-cpu", target_.cpu);
  function->addFnAttr("target-features", target_.features);
  function->addFnAttr("no-builtins");
  for (llvm::Argument& arg : function->args()) {
    if (arg.getType()->isPointerTy()) arg.addAttr(llvm::Attribute::NoUndef);
  }
  return function;
}

llvm::BasicBlock* KernelEmitter::new_block(const char* name) {
  return llvm::BasicBlock::Create(context_, name, function_);
}

void KernelEmitter::start(llvm::BasicBlock* block) { b_.SetInsertPoint(block); }

llvm::AllocaInst* KernelEmitter::entry_alloca(LlvmType* type, const std::string& name) {
  llvm::IRBuilder<> at_entry(entry_, entry_->begin());
  llvm::AllocaInst* alloca = at_entry.CreateAlloca(type, nullptr, name);
  alloca->setAlignment(llvm::Align(kBufferAlignment));
  return alloca;
}

void KernelEmitter::emit(const Func& func, const std::string& symbol) {
  small_bytes_ = buffers_of_small_bytes(func);
  symbol_ = symbol;
  collect_alias_scopes(func);
  LlvmType* ptr = b_.getPtrTy();
  function_ = new_function(symbol, llvm::FunctionType::get(b_.getInt32Ty(), {ptr, ptr, ptr}, false), false);
  entry_ = new_block("entry");
  llvm::BasicBlock* body = new_block("body");
  start(entry_);
  Value* buffers = function_->getArg(0);
  Value* dims = function_->getArg(1);
  executor_ = function_->getArg(2);

  uint64_t next = 0;
  auto next_buffer = [&] {
    Value* slot = b_.CreateConstGEP1_64(ptr, buffers, next++);
    return b_.CreateAlignedLoad(ptr, slot, llvm::Align(8));
  };
  for (const Buffer& param : func.params)
    scope_.buffers[param.get()] = next_buffer();
  std::vector<Value*> workspaces;
  for (size_t i = 0; i < memory_.memory.workspaces.size(); ++i)
    workspaces.push_back(next_buffer());
  for (const auto& [buffer, placement] : memory_.placements) {
    if (placement.home == Home::workspace || placement.home == Home::thread_workspace) {
      scope_.buffers[buffer] = workspaces[static_cast<size_t>(placement.index)];
    }
  }
  if (memory_.memory.scratch_per_thread > 0) scope_.scratch = scope_.scratch_base = next_buffer();
  for (size_t i = 0; i < func.dims.size(); ++i) {
    Value* slot = b_.CreateConstGEP1_64(b_.getInt64Ty(), dims, i);
    scope_.vars[func.dims[i].get()] = b_.CreateAlignedLoad(b_.getInt64Ty(), slot, llvm::Align(8));
  }

  start(body);
  emit(func.body);
  b_.CreateRet(b_.getInt32(0));
  start(entry_);
  b_.CreateBr(body);
}

// ---- Statements ----

void KernelEmitter::emit(const Stmt& s) {
  if (!s) return;
  // Loads may not be carried over a store, nor anything over a new binding.
  scope_.values.clear();
  dispatch(s, [this](const auto& node) { on(node); });
}

void KernelEmitter::on(const Block& n) { MCC_UNREACHABLE("block ", n.name, " in a lowered function"); }

void KernelEmitter::on(const Seq& n) {
  for (const Stmt& s : n.stmts)
    emit(s);
}

void KernelEmitter::on(const Evaluate& n) { emit(n.value); }

// Bindings hold the expansions of mathematical functions (lower_math), whose error bounds depend on every operation being
// done as written.
void KernelEmitter::on(const Let& n) {
  if (on_device() && n.var.type() == kIndex) {
    bind_narrow(n.var, emit_bounded(n.value));
    emit(n.body);
    scope_.vars.erase(n.var.get());
    scope_.narrow.erase(n.var.get());
    return;
  }
  Value* value = nullptr;
  {
    llvm::IRBuilderBase::FastMathFlagGuard guard(b_);
    llvm::FastMathFlags exact;
    exact.setAllowContract(b_.getFastMathFlags().allowContract());
    b_.setFastMathFlags(exact);
    value = emit(n.value);
  }
  scope_.vars[n.var.get()] = value;
  emit(n.body);
  scope_.vars.erase(n.var.get());
}

void KernelEmitter::on(const If& n) {
  Value* condition = emit(n.condition);
  llvm::BasicBlock* taken = new_block("then");
  llvm::BasicBlock* other = n.else_body ? new_block("else") : nullptr;
  llvm::BasicBlock* after = new_block("after");
  b_.CreateCondBr(condition, taken, other ? other : after);
  start(taken);
  emit(n.then_body);
  b_.CreateBr(after);
  if (other) {
    start(other);
    emit(n.else_body);
    b_.CreateBr(after);
  }
  start(after);
}

void KernelEmitter::on(const Allocate& n) {
  const Placement& placement = memory_.placements.at(n.buffer.get());
  if (placement.home == Home::workspace) return emit(n.body);
  if (placement.home == Home::thread_workspace) return emit_in_part(n, placement.stride);
  Value* base = nullptr;
  llvm::AllocaInst* on_stack = nullptr;
  if (placement.home == Home::stack) {
    uint64_t bytes = std::max<uint64_t>(1, static_cast<uint64_t>(placement.bytes));
    // One for all copies of the allocation in a function: they live one after the other.
    llvm::AllocaInst*& memory = scope_.stack[n.buffer.get()];
    if (!memory) memory = entry_alloca(llvm::ArrayType::get(b_.getInt8Ty(), bytes), n.buffer.name());
    on_stack = memory;
    b_.CreateLifetimeStart(on_stack, b_.getInt64(bytes));
    base = on_stack;
  } else if (placement.home == Home::shared) {
    base = b_.CreateConstGEP1_64(b_.getInt8Ty(), shared_, static_cast<uint64_t>(placement.offset));
  } else {
    base = b_.CreateConstGEP1_64(b_.getInt8Ty(), scope_.scratch, static_cast<uint64_t>(placement.offset));
  }
  scope_.buffers[n.buffer.get()] = base;
  emit(n.body);
  scope_.buffers.erase(n.buffer.get());
  if (on_stack)
    b_.CreateLifetimeEnd(on_stack,
                         b_.getInt64(std::max<uint64_t>(1, static_cast<uint64_t>(placement.bytes))));
}

// The buffer in this thread's part of its workspace.
void KernelEmitter::emit_in_part(const Allocate& n, const Expr& stride) {
  if (!scope_.worker) return emit(n.body);  // a loop that runs once is no task
  Value* const whole = scope_.buffers.at(n.buffer.get());
  Value* worker = b_.CreateZExt(scope_.worker, b_.getInt64Ty());
  scope_.buffers[n.buffer.get()] = b_.CreateGEP(b_.getInt8Ty(), whole, b_.CreateMul(worker, emit_index(stride)));
  emit(n.body);
  scope_.buffers[n.buffer.get()] = whole;
}

void KernelEmitter::on(const For& n) {
  switch (n.loop) {
    case LoopKind::parallel:
      if (!on_device() && !scope_.in_task && !is_int(n.extent, 1)) return emit_parallel(n);
      break;
    case LoopKind::vectorized:
      MCC_UNREACHABLE("vectorized loop ", n.var.name(), " in a lowered function");
    case LoopKind::bound:
      MCC_CHECK(on_device(), "loop ", n.var.name(), " is bound to a GPU axis");
      return emit_bound(n);
    case LoopKind::serial:
    case LoopKind::unrolled:
      break;
  }
  if (on_device()) return emit_device_loop(n);
  Value* begin = emit_index(n.min);
  Value* end = b_.CreateAdd(begin, emit_index(n.extent), "", false, true);
  emit_loop(n, begin, end, has_positive_extent(n.extent));
}

void KernelEmitter::emit_loop(const For& n, Value* begin, Value* end, bool runs_at_least_once) {
  llvm::BasicBlock* body = new_block(n.var.name().c_str());
  llvm::BasicBlock* after = new_block("after");
  llvm::BasicBlock* before = new_block("before");
  if (runs_at_least_once) {
    b_.CreateBr(before);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), before, after);
  }
  start(before);
  b_.CreateBr(body);
  start(body);
  llvm::PHINode* index = b_.CreatePHI(begin->getType(), 2, n.var.name());
  index->addIncoming(begin, before);
  if (auto it = scope_.narrow.find(n.var.get()); it != scope_.narrow.end()) {
    bind_narrow(n.var, {index, it->second.low, it->second.high});
  } else {
    scope_.vars[n.var.get()] = index;
  }
  const Store* settling = settling_store(n);
  const auto elements = [&] { return emit(Load::make(settling->buffer, settling->indices)); };
  Value* const before_step = settling ? elements() : nullptr;
  emit(n.body);
  Value* next = b_.CreateAdd(index, llvm::ConstantInt::get(begin->getType(), 1), "", false, true);
  Value* goes_on = b_.CreateICmpSLT(next, end);
  if (settling) {
    scope_.values.clear();
    Value* changes = b_.CreateICmpNE(before_step, elements());
    goes_on = b_.CreateAnd(goes_on, changes->getType()->isVectorTy() ? b_.CreateOrReduce(changes) : changes);
  }
  scope_.vars.erase(n.var.get());
  index->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(goes_on, body, after);
  start(after);
}

// The tiles' layout that each iteration begins with, and takes back at its end, is set once for all of a task.
void KernelEmitter::emit_in_layout(const For& n, Value* begin, Value* end) {
  const auto* seq = n.body.as<Seq>();
  auto sets_layout = [](const Stmt& s) { return is_call(s, Intrinsic::tile_configure); };
  int layouts = 0;
  for_each_stmt(n.body, [&](const Stmt& s) { layouts += sets_layout(s) ? 1 : 0; });
  if (!seq || !sets_layout(seq->stmts.front()) || !sets_layout(seq->stmts.back()) || layouts != 2)
    return emit_loop(n, begin, end, false);
  emit(seq->stmts.front());
  const Stmt inner = with_body(n, Seq::make({seq->stmts.begin() + 1, seq->stmts.end() - 1}));
  emit_loop(*inner.as<For>(), begin, end, false);
  emit(seq->stmts.back());
}

// The loop becomes task(context, begin, end, worker); what it uses of its surroundings goes into the context.
void KernelEmitter::emit_parallel(const For& n) {
  Value* min = emit_index(n.min);
  Value* extent = emit_index(n.extent);
  Captures captures(n.body, scope_.vars, scope_.buffers);

  std::vector<Value*> values;
  for (const VarNode* v : captures.vars)
    values.push_back(scope_.vars.at(v));
  for (const BufferNode* b : captures.buffers)
    values.push_back(scope_.buffers.at(b));
  values.push_back(min);
  if (scope_.scratch_base) values.push_back(scope_.scratch_base);
  std::vector<LlvmType*> types;
  for (Value* v : values)
    types.push_back(v->getType());
  auto* context_type = llvm::StructType::get(context_, types);
  llvm::AllocaInst* context = entry_alloca(context_type, "context");
  for (unsigned i = 0; i < values.size(); ++i) {
    b_.CreateStore(values[i], b_.CreateStructGEP(context_type, context, i));
  }

  LlvmType* ptr = b_.getPtrTy();
  LlvmType* i64 = b_.getInt64Ty();
  auto* task_type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64, i64, b_.getInt32Ty()}, false);
  llvm::Function* task = new_function(text(symbol_, ".", tasks_++), task_type, true);

  // The task, with the state of this function put aside.
  llvm::Function* outer_function = std::exchange(function_, task);
  llvm::BasicBlock* outer_entry = std::exchange(entry_, new_block("entry"));
  llvm::BasicBlock* outer_block = b_.GetInsertBlock();
  Scope outer_scope = std::exchange(scope_, Scope());
  scope_.in_task = true;
  start(entry_);
  unsigned field = 0;
  auto next_field = [&] {
    Value* where = b_.CreateStructGEP(context_type, task->getArg(0), field);
    return b_.CreateLoad(types[field++], where);
  };
  for (const VarNode* v : captures.vars)
    scope_.vars[v] = next_field();
  for (const BufferNode* b : captures.buffers)
    scope_.buffers[b] = next_field();
  Value* task_min = next_field();
  scope_.worker = task->getArg(3);
  if (outer_scope.scratch_base) {
    scope_.scratch_base = next_field();
    Value* worker = b_.CreateZExt(task->getArg(3), i64);
    Value* offset =
        b_.CreateMul(worker, b_.getInt64(static_cast<uint64_t>(memory_.memory.scratch_per_thread)));
    scope_.scratch = b_.CreateGEP(b_.getInt8Ty(), scope_.scratch_base, offset);
  }
  llvm::BasicBlock* body = new_block("body");
  start(body);
  Value* begin = b_.CreateAdd(task->getArg(1), task_min, "", false, true);
  Value* end = b_.CreateAdd(task->getArg(2), task_min, "", false, true);
  emit_in_layout(n, begin, end);
  b_.CreateRetVoid();
  start(entry_);
  b_.CreateBr(body);
  function_ = outer_function;
  entry_ = outer_entry;
  scope_ = std::move(outer_scope);
  start(outer_block);

  // executor && executor->num_threads > 1 ? executor->parallel_for(executor, task, context, extent) : task(...)
  llvm::BasicBlock* ask = new_block("executor");
  llvm::BasicBlock* fork = new_block("fork");
  llvm::BasicBlock* serial = new_block("serial");
  llvm::BasicBlock* after = new_block("after");
  b_.CreateCondBr(b_.CreateIsNull(executor_), serial, ask);
  start(ask);
  Value* threads_at = b_.CreateConstGEP1_64(b_.getInt8Ty(), executor_, kNumThreads);
  Value* threads = b_.CreateAlignedLoad(b_.getInt32Ty(), threads_at, llvm::Align(4));
  Value* has_threads = b_.CreateICmpSGT(threads, b_.getInt32(1));
  Value* is_worth = b_.CreateAnd(has_threads, b_.CreateICmpSGT(extent, b_.getInt64(1)));
  b_.CreateCondBr(is_worth, fork, serial);
  start(fork);
  Value* function_at = b_.CreateConstGEP1_64(b_.getInt8Ty(), executor_, kParallelFor);
  Value* parallel_for = b_.CreateAlignedLoad(ptr, function_at, llvm::Align(8));
  auto* parallel_type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr, i64}, false);
  b_.CreateCall(parallel_type, parallel_for, {executor_, task, context, extent});
  b_.CreateBr(after);
  start(serial);
  b_.CreateCall(task, {context, b_.getInt64(0), extent, b_.getInt32(0)});
  b_.CreateBr(after);
  start(after);
}

}  // namespace mcc::codegen
