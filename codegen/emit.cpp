// Statements: loops, parallel tasks, allocations; and a kernel's entry.
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <map>
#include <set>

#include "codegen/codegen.h"
#include "codegen/emit_value.h"
#include "codegen/machine.h"
#include "codegen/memory_plan.h"

namespace mcc::codegen {

using namespace tensor;
using llvm::Value;

namespace {

// Offsets of the fields of mcc_executor (runtime/include/mcc/abi.h).
constexpr int64_t kExecutorParallelFor = 0;
constexpr int64_t kExecutorThreads = 8;

// Free variables and buffers of a statement, in the order of their first use.
class FreeNames : public Visitor {
 public:
  std::vector<Var> vars;
  std::vector<Buffer> buffers;

 protected:
  using Visitor::on;
  void on(const VarNode& n) override {
    if (!bound_.count(&n)) add(vars, Var(&n));
  }
  void on(const Load& n) override {
    use(n.buffer);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    use(n.buffer);
    Visitor::on(n);
  }
  void on(const For& n) override {
    visit(n.min);
    visit(n.extent);
    bound_.insert(n.var.get());
    visit(n.body);
  }
  void on(const Let& n) override {
    visit(n.value);
    bound_.insert(n.var.get());
    visit(n.body);
  }
  void on(const Allocate& n) override {
    own_.insert(n.buffer.get());
    visit(n.body);
  }

 private:
  template <class T>
  static void add(std::vector<T>& list, const T& item) {
    for (const T& other : list) {
      if (other.same_as(item)) return;
    }
    list.push_back(item);
  }
  void use(const Buffer& buffer) {
    if (!own_.count(buffer.get())) add(buffers, buffer);
  }
  std::set<const ExprNode*> bound_;
  std::set<const BufferNode*> own_;
};

std::vector<Buffer> all_buffers(const Func& f) {
  std::vector<Buffer> list = f.params;
  std::set<const BufferNode*> seen;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* a = s.as<Allocate>();
    if (a && seen.insert(a->buffer.get()).second) list.push_back(a->buffer);
  });
  return list;
}

class KernelEmitter {
 public:
  KernelEmitter(llvm::Module& module, const Func& f, const std::string& symbol, const Target& target,
                const EmitOptions& options, const MemoryPlan& plan)
      : module_(module), context_(module.getContext()), f_(f), symbol_(symbol), target_(target), plan_(plan),
        b_(context_), values_(b_, target, options) {
    values_.declare_buffers(all_buffers(f));
  }

  // i32 symbol(ptr buffers, ptr dims, ptr executor)
  void run() {
    llvm::Type* ptr = b_.getPtrTy();
    llvm::Function* function = create(symbol_, b_.getInt32Ty(), {ptr, ptr, ptr});
    function->setLinkage(llvm::GlobalValue::ExternalLinkage);
    function->setVisibility(llvm::GlobalValue::HiddenVisibility);
    function->setDSOLocal(true);
    enter(function);
    executor_ = function->getArg(2);
    unsigned next = 0;
    auto pointer_argument = [&] {
      Value* slot = b_.CreateConstInBoundsGEP1_64(ptr, function->getArg(0), next++);
      return b_.CreateLoad(ptr, slot);
    };
    for (const Buffer& param : f_.params) values_.bind(param.get(), pointer_argument());
    for (size_t i = 0; i < plan_.memory.workspaces.size(); ++i) workspaces_.push_back(pointer_argument());
    if (plan_.memory.scratch_per_thread > 0) scratch_base_ = scratch_ = pointer_argument();
    for (size_t i = 0; i < f_.dims.size(); ++i) {
      Value* slot = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), function->getArg(1), i);
      values_.bind(f_.dims[i].get(), b_.CreateLoad(b_.getInt64Ty(), slot));
    }
    emit(f_.body);
    b_.CreateRet(b_.getInt32(0));
  }

 private:
  llvm::Function* create(const std::string& name, llvm::Type* result, std::vector<llvm::Type*> args) {
    auto* type = llvm::FunctionType::get(result, args, false);
    auto* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, module_);
    function->addFnAttr("target-cpu", target_.cpu);
    function->addFnAttr("target-features", target_.features);
    function->addFnAttr("prefer-vector-width", std::to_string(target_.vector_bits));
    function->addFnAttr(llvm::Attribute::NoUnwind);
    return function;
  }

  void enter(llvm::Function* function) {
    auto* entry = llvm::BasicBlock::Create(context_, "entry", function);
    b_.SetInsertPoint(entry);
  }

  void emit(const Stmt& s) {
    switch (s.kind()) {
      case StmtKind::For: return loop(*s.as<For>());
      case StmtKind::Store: return values_.emit_store(*s.as<Store>());
      case StmtKind::Seq:
        for (const Stmt& item : s.as<Seq>()->stmts) emit(item);
        return;
      case StmtKind::If: return branch(*s.as<If>());
      case StmtKind::Let: {
        const auto& n = *s.as<Let>();
        values_.bind(n.var.get(), values_.emit(n.value));
        return emit(n.body);
      }
      case StmtKind::Allocate: {
        const auto& n = *s.as<Allocate>();
        values_.bind(n.buffer.get(), storage(n.buffer));
        return emit(n.body);
      }
      case StmtKind::Evaluate: {
        const auto* call = s.as<Evaluate>()->value.as<Call>();
        if (call && call->function == Intrinsic::prefetch) values_.emit_prefetch(*call);
        return;
      }
      case StmtKind::Block: MCC_UNREACHABLE("block ", s.as<Block>()->name, " after lowering");
    }
    MCC_UNREACHABLE("unknown statement kind");
  }

  void branch(const If& n) {
    Value* condition = values_.emit(n.condition);
    llvm::Function* function = b_.GetInsertBlock()->getParent();
    auto* then_block = llvm::BasicBlock::Create(context_, "if", function);
    auto* join = llvm::BasicBlock::Create(context_, "endif", function);
    auto* else_block = n.else_body ? llvm::BasicBlock::Create(context_, "else", function) : join;
    b_.CreateCondBr(condition, then_block, else_block);
    auto body = [&](llvm::BasicBlock* block, const Stmt& s) {
      b_.SetInsertPoint(block);
      values_.forget();
      emit(s);
      b_.CreateBr(join);
    };
    body(then_block, n.then_body);
    if (n.else_body) body(else_block, n.else_body);
    b_.SetInsertPoint(join);
    values_.forget();
  }

  void loop(const For& n) {
    if (n.loop == LoopKind::parallel && !in_task_) return parallel(n);
    Value* begin = values_.emit(n.min);
    Value* end = b_.CreateAdd(begin, values_.emit(n.extent));
    count_from(n, begin, end);
  }

  // for (var = begin; var < end; ++var), tested at the end; entered only when there is a first iteration.
  void count_from(const For& n, Value* begin, Value* end) {
    llvm::Function* function = b_.GetInsertBlock()->getParent();
    auto* body = llvm::BasicBlock::Create(context_, "loop", function);
    auto* exit = llvm::BasicBlock::Create(context_, "done", function);
    int64_t extent = 0;
    bool runs = as_int(n.extent, &extent) && extent > 0 && !in_range_task_;
    in_range_task_ = false;
    if (runs) {
      b_.CreateBr(body);
    } else {
      b_.CreateCondBr(b_.CreateICmpSLT(begin, end), body, exit);
    }
    llvm::BasicBlock* before = b_.GetInsertBlock();
    b_.SetInsertPoint(body);
    llvm::PHINode* index = b_.CreatePHI(b_.getInt64Ty(), 2);
    index->addIncoming(begin, before);
    values_.bind(n.var.get(), index);
    values_.forget();
    emit(n.body);
    Value* next = b_.CreateNSWAdd(index, b_.getInt64(1));
    index->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), body, exit);
    b_.SetInsertPoint(exit);
    values_.forget();
  }

  // The loop becomes a task function; what it uses from outside travels in an array of 8-byte slots.
  void parallel(const For& n) {
    FreeNames free;
    free.visit(n.body);
    std::erase_if(free.vars, [&](const Var& v) { return v.same_as(n.var); });
    free.vars.push_back(Var("min"));  // the loop's first value, in the last slot of variables
    values_.bind(free.vars.back().get(), values_.emit(n.min));
    Value* extent = values_.emit(n.extent);

    llvm::Type* i64 = b_.getInt64Ty();
    llvm::Type* ptr = b_.getPtrTy();
    size_t count = free.vars.size() + free.buffers.size() + 1;
    Value* slots = entry_alloca(llvm::ArrayType::get(i64, count), 8);
    size_t at = 0;
    auto slot = [&](Value* base) { return b_.CreateConstInBoundsGEP1_64(i64, base, at++); };
    for (const Var& v : free.vars) b_.CreateStore(values_.find(v.get()), slot(slots));
    for (const Buffer& buffer : free.buffers) b_.CreateStore(values_.pointer_of(buffer), slot(slots));
    Value* null = llvm::ConstantPointerNull::get(b_.getPtrTy());
    b_.CreateStore(scratch_base_ ? scratch_base_ : null, slot(slots));

    llvm::Function* task = create(symbol_ + ".task", b_.getVoidTy(), {ptr, i64, i64, b_.getInt32Ty()});
    run_task(task, slots, extent);

    // Inside of the task.
    auto outer_insert = b_.saveIP();
    ValueEmitter outer_values = values_;
    Value* outer_scratch = scratch_;
    enter(task);
    values_.forget();
    at = 0;
    Value* context = task->getArg(0);
    for (const Var& v : free.vars) {
      values_.bind(v.get(), b_.CreateLoad(values_.value_type(v.type()), slot(context)));
    }
    for (const Buffer& buffer : free.buffers) values_.bind(buffer.get(), b_.CreateLoad(ptr, slot(context)));
    if (scratch_base_) {
      Value* worker = b_.CreateZExt(task->getArg(3), i64);
      Value* offset = b_.CreateMul(worker, b_.getInt64(static_cast<uint64_t>(plan_.memory.scratch_per_thread)));
      scratch_ = b_.CreateInBoundsGEP(b_.getInt8Ty(), b_.CreateLoad(ptr, slot(context)), offset);
    }
    Value* first = values_.find(free.vars.back().get());
    in_task_ = in_range_task_ = true;
    count_from(n, b_.CreateAdd(first, task->getArg(1)), b_.CreateAdd(first, task->getArg(2)));
    in_task_ = in_range_task_ = false;
    b_.CreateRetVoid();
    values_.restore(outer_values);
    scratch_ = outer_scratch;
    b_.restoreIP(outer_insert);
    values_.forget();
  }

  // Through the executor, or directly when there is none or it has one thread.
  void run_task(llvm::Function* task, Value* slots, Value* extent) {
    llvm::Type* ptr = b_.getPtrTy();
    llvm::Function* function = b_.GetInsertBlock()->getParent();
    auto* ask = llvm::BasicBlock::Create(context_, "ask", function);
    auto* fork = llvm::BasicBlock::Create(context_, "fork", function);
    auto* direct = llvm::BasicBlock::Create(context_, "direct", function);
    auto* join = llvm::BasicBlock::Create(context_, "joined", function);
    b_.CreateCondBr(b_.CreateIsNull(executor_), direct, ask);
    b_.SetInsertPoint(ask);
    Value* threads = b_.CreateLoad(b_.getInt32Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), executor_, kExecutorThreads));
    b_.CreateCondBr(b_.CreateICmpSGT(threads, b_.getInt32(1)), fork, direct);
    b_.SetInsertPoint(fork);
    Value* entry = b_.CreateLoad(ptr, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), executor_, kExecutorParallelFor));
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr, b_.getInt64Ty()}, false);
    b_.CreateCall(type, entry, {executor_, task, slots, extent});
    b_.CreateBr(join);
    b_.SetInsertPoint(direct);
    b_.CreateCall(task, {slots, b_.getInt64(0), extent, b_.getInt32(0)});
    b_.CreateBr(join);
    b_.SetInsertPoint(join);
    values_.forget();
  }

  Value* entry_alloca(llvm::Type* type, uint64_t align) {
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at(&entry, entry.begin());
    llvm::AllocaInst* memory = at.CreateAlloca(type);
    memory->setAlignment(llvm::Align(align));
    return memory;
  }

  Value* storage(const Buffer& buffer) {
    const Placement& p = plan_.placements.at(buffer.get());
    switch (p.home) {
      case Home::workspace: return workspaces_[static_cast<size_t>(p.index)];
      case Home::scratch: return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), scratch_, static_cast<uint64_t>(p.offset));
      case Home::stack: {
        // One for all copies of the allocation in a function: they are alive one after the other.
        Value*& memory = stack_[{b_.GetInsertBlock()->getParent(), buffer.get()}];
        if (!memory) {
          llvm::Type* element = values_.memory_type(buffer.element());
          auto elements = static_cast<uint64_t>(p.bytes / byte_size(buffer.element()));
          memory = entry_alloca(llvm::ArrayType::get(element, elements), 64);
        }
        return memory;
      }
    }
    MCC_UNREACHABLE("unknown home");
  }

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const Func& f_;
  const std::string& symbol_;
  const Target& target_;
  const MemoryPlan& plan_;
  llvm::IRBuilder<> b_;
  ValueEmitter values_;
  Value* executor_ = nullptr;
  Value* scratch_base_ = nullptr;  // of all threads
  Value* scratch_ = nullptr;       // of the thread that runs here
  std::vector<Value*> workspaces_;
  std::map<std::pair<llvm::Function*, const BufferNode*>, Value*> stack_;
  bool in_task_ = false;
  bool in_range_task_ = false;  // the next loop runs over part of its range
};

// What is worth doing on code that is already tiled, vectorised and unrolled.
void optimize(llvm::Module& module, llvm::TargetMachine& machine, int level) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  const char* list = level == 0
                         ? "function(sroa)"
                         : "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,loop-mssa(licm),early-cse,"
                           "instcombine<no-verify-fixpoint>,simplifycfg)";
  llvm::Error error = builder.parsePassPipeline(passes, list);
  MCC_CHECK(!error, "pass list: ", llvm::toString(std::move(error)));
  passes.run(module, modules);
}

std::vector<char> generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  bool failed = machine.addPassesToEmitFile(passes, out, nullptr, type);
  MCC_CHECK(!failed, "the target machine cannot emit this kind of file");
  passes.run(module);
  return {bytes.begin(), bytes.end()};
}

// A kernel calls nothing but its executor: a call to a library would have to be linked into every model.
void check_undefined(const std::vector<char>& object, const std::string& symbol) {
  llvm::MemoryBufferRef buffer(llvm::StringRef(object.data(), object.size()), symbol);
  auto file = llvm::object::ObjectFile::createObjectFile(buffer);
  MCC_CHECK(static_cast<bool>(file), "object of ", symbol, ": ", llvm::toString(file.takeError()));
  for (const llvm::object::SymbolRef& s : (*file)->symbols()) {
    auto flags = s.getFlags();
    auto name = s.getName();
    if (!flags || !name || name->empty()) continue;
    MCC_CHECK((*flags & llvm::object::SymbolRef::SF_Undefined) == 0, "kernel ", symbol, " calls ", name->str());
  }
}

}  // namespace

Result<ObjectCode> emit_object(const Func& lowered, const std::string& symbol, const Target& target,
                               const EmitOptions& options) {
  Result<MemoryPlan> plan = plan_memory(lowered);
  if (!plan.ok()) return plan.errors();
  std::unique_ptr<llvm::TargetMachine> machine = create_machine(target, options.optimization);
  llvm::LLVMContext context;
  llvm::Module module(symbol, context);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);
  KernelEmitter(module, lowered, symbol, target, options, *plan).run();
  std::string broken;
  llvm::raw_string_ostream report(broken);
  MCC_CHECK(!llvm::verifyModule(module, &report), symbol, ": ", report.str());
  optimize(module, *machine, options.optimization);

  ObjectCode code;
  if (options.keep_llvm_ir) {
    llvm::raw_string_ostream out(code.llvm_ir);
    module.print(out, nullptr);
  }
  if (options.keep_assembly) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    std::vector<char> text = generate(*copy, *machine, llvm::CodeGenFileType::AssemblyFile);
    code.assembly.assign(text.begin(), text.end());
  }
  code.bytes = generate(module, *machine, llvm::CodeGenFileType::ObjectFile);
  check_undefined(code.bytes, symbol);
  return code;
}

}  // namespace mcc::codegen
