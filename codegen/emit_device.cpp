// The part of KernelEmitter that is of GPUs alone: entries, indices of threads, shared memory, barriers, shuffles.
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/MDBuilder.h>

#include "codegen/kernel_emitter.h"
#include "tensor/grid.h"
#include "tensor/intrinsics.h"
#include "tensor/kernel_abi.h"
#include "tensor/passes/scope.h"

namespace mcc::codegen {

using namespace tensor;
using llvm::ConstantInt;
using LlvmType = llvm::Type;

namespace {

constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;
constexpr uint32_t kWholeWarp = 0xffffffff;

constexpr llvm::Intrinsic::ID kRegisters[kThreadAxes] = {
    llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
    llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z, llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x,
    llvm::Intrinsic::nvvm_read_ptx_sreg_tid_y,   llvm::Intrinsic::nvvm_read_ptx_sreg_tid_z};

// The launch's block, if it is constant: ptxas shares out registers by it.
void annotate(llvm::Function& kernel, const LaunchPlan& launch) {
  llvm::LLVMContext& context = kernel.getContext();
  llvm::NamedMDNode* list = kernel.getParent()->getOrInsertNamedMetadata("nvvm.annotations");
  auto add = [&](const char* key, int64_t value) {
    auto* number = ConstantInt::get(LlvmType::getInt32Ty(context), static_cast<uint64_t>(value));
    list->addOperand(
        llvm::MDNode::get(context, {llvm::ValueAsMetadata::get(&kernel), llvm::MDString::get(context, key),
                                    llvm::ValueAsMetadata::get(number)}));
  };
  add("kernel", 1);
  if (!launch.maps.empty()) {
    std::vector<llvm::Metadata*> numbers;  // from 1
    for (size_t i = 0; i < launch.maps.size(); ++i) {
      const uint64_t number = launch.buffers.size() + launch.dims.size() + i + 1;
      numbers.push_back(
          llvm::ConstantAsMetadata::get(ConstantInt::get(LlvmType::getInt32Ty(context), number)));
    }
    list->addOperand(llvm::MDNode::get(
        context, {llvm::ValueAsMetadata::get(&kernel), llvm::MDString::get(context, "grid_constant"),
                  llvm::MDNode::get(context, numbers)}));
  }
  constexpr const char* kKeys[] = {"reqntidx", "reqntidy", "reqntidz"};
  int64_t extents[3] = {1, 1, 1};
  for (size_t i = 0; i < 3; ++i) {
    const For* loop = launch.axes[3 + i];
    if (loop && (!as_int(loop->extent, &extents[i]) || extents[i] < 1)) return;
  }
  for (size_t i = 0; i < 3; ++i)
    add(kKeys[i], extents[i]);
}

// Whether all that is read of a buffer goes to shared memory, for other threads than those that read it.
bool is_shared_out(const Func& func, const Buffer& buffer) {
  int64_t loads = 0, shared = 0;
  tensor::for_each_expr(func.body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    loads += load && load->buffer.same_as(buffer) ? 1 : 0;
  });
  tensor::for_each_stmt(func.body, [&](const Stmt& s) {
    const auto* store = s.as<Store>();
    if (!store || store->buffer.scope() != Scope::shared) return;
    tensor::for_each_expr(Evaluate::make(store->value), [&](const Expr& e) {
      const auto* load = e.as<Load>();
      shared += load && load->buffer.same_as(buffer) ? 1 : 0;
    });
  });
  return loads == shared;
}

// Whether the result of a launch may be put where one of its inputs lies, of which a thread reads each element before it writes it
// (graph/passes/plan_memory.h). What goes through the read-only cache must stay as it is as long as the launch runs.
bool may_be_written_over(const Func& func, const LaunchPlan& launch, int number) {
  if (number >= func.num_inputs() || func.num_outputs != 1) return false;
  const auto result = std::find(launch.buffers.begin(), launch.buffers.end(), func.num_inputs());
  const bool is_written = result != launch.buffers.end() &&
                          launch.is_written[static_cast<size_t>(result - launch.buffers.begin())];
  const Buffer& input = func.params[static_cast<size_t>(number)];
  return is_written && tensor::constant_bytes(input) == tensor::constant_bytes(func.params.back()) &&
         !is_shared_out(func, input);
}

}  // namespace

void KernelEmitter::emit_launch(const Func& func, const LaunchPlan& launch, const std::string& entry,
                                bool is_shared_dynamic) {
  symbol_ = entry;
  scope_ = Scope();
  if (alias_order_.empty()) collect_alias_scopes(func);
  LlvmType* global = b_.getPtrTy(kGlobalSpace);
  std::vector<LlvmType*> types(launch.buffers.size(), global);
  types.insert(types.end(), launch.dims.size() + launch.steps.size(), b_.getInt64Ty());
  const size_t first_map = types.size();
  types.insert(types.end(), launch.maps.size(), b_.getPtrTy());
  launch_ = &launch;
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), types, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, entry, module_);
  function_->setCallingConv(llvm::CallingConv::PTX_Kernel);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  annotate(*function_, launch);
  // By value, and the copy engine reads them where they are (__grid_constant__): by the address of the parameter.
  for (size_t i = first_map; i < types.size(); ++i) {
    auto* bytes = llvm::ArrayType::get(b_.getInt8Ty(), kMapBytes);
    llvm::Argument* argument = function_->getArg(static_cast<unsigned>(i));
    argument->addAttr(llvm::Attribute::getWithByValType(context_, bytes));
    argument->addAttr(llvm::Attribute::getWithAlignment(context_, llvm::Align(64)));
  }

  entry_ = new_block("entry");
  llvm::BasicBlock* body = new_block("body");
  start(body);
  const auto params = static_cast<int>(func.params.size());
  std::unordered_map<int, const BufferNode*> workspaces;
  for (const auto& [buffer, placement] : memory_.placements)
    if (placement.home == Home::workspace) workspaces[placement.index] = buffer;
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    const int number = launch.buffers[i];
    llvm::Argument* argument = function_->getArg(static_cast<unsigned>(i));
    argument->addAttr(llvm::Attribute::getWithAlignment(context_, llvm::Align(kBufferAlignment)));
    argument->addAttr(llvm::Attribute::NoAlias);
    // Reads of what a launch does not write go through the read-only cache.
    if (!launch.is_written[i] && !may_be_written_over(func, launch, number))
      argument->addAttr(llvm::Attribute::ReadOnly);
    const BufferNode* buffer =
        number < params ? func.params[static_cast<size_t>(number)].get() : workspaces.at(number - params);
    scope_.buffers[buffer] = argument;
  }
  for (size_t i = 0; i < launch.dims.size(); ++i)
    scope_.vars[func.dims[static_cast<size_t>(launch.dims[i])].get()] =
        function_->getArg(static_cast<unsigned>(launch.buffers.size() + i));
  for (size_t i = 0; i < launch.steps.size(); ++i)
    scope_.vars[launch.steps[i]->var.get()] =
        function_->getArg(static_cast<unsigned>(launch.buffers.size() + launch.dims.size() + i));

  shared_ = nullptr;
  if (launch.shared_bytes > 0) {
    auto* array = llvm::ArrayType::get(b_.getInt8Ty(),
                                       is_shared_dynamic ? 0 : static_cast<uint64_t>(launch.shared_bytes));
    auto linkage =
        is_shared_dynamic ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage;
    auto* memory = new llvm::GlobalVariable(
        module_, array, false, linkage, is_shared_dynamic ? nullptr : llvm::UndefValue::get(array),
        entry + "_shared", nullptr, llvm::GlobalValue::NotThreadLocal, kSharedSpace);
    memory->setAlignment(llvm::Align(static_cast<uint64_t>(launch.shared_align)));
    shared_ = memory;
  }
  for (const Let* let : launch.lets) {
    scope_.values.clear();
    scope_.vars[let->var.get()] = emit(let->value);
  }
  emit(launch.nest);
  b_.CreateRetVoid();
  start(entry_);
  b_.CreateBr(body);
}

// The special registers are 32 bits wide; how far they go is told to LLVM.
llvm::CallInst* KernelEmitter::thread_index(int axis, int64_t end) {
  llvm::CallInst* index = b_.CreateIntrinsic(kRegisters[axis], {}, {});
  llvm::MDNode* range =
      llvm::MDBuilder(context_).createRange(llvm::APInt(32, 0), llvm::APInt(32, static_cast<uint64_t>(end)));
  index->setMetadata(llvm::LLVMContext::MD_range, range);
  return index;
}

void KernelEmitter::emit_bound(const For& n) {
  int64_t end = 0, min = 0;
  if (!as_int(n.extent, &end) || end < 1) end = info_of(*grid_axis(n)).most;
  Bounded index{thread_index(thread_axis(n), end), 0, end - 1};
  if (!is_int(n.min, 0)) {
    index.value = b_.CreateAdd(widen(index), emit_index(n.min), "", false, true);
    const bool is_known = as_int(n.min, &min);
    index.low = is_known ? min : INT64_MIN;
    index.high = is_known ? min + end - 1 : INT64_MAX;
  }
  bind_narrow(n.var, index);
  emit(n.body);
  scope_.vars.erase(n.var.get());
  scope_.narrow.erase(n.var.get());
}

// All threads of the block come here, and see afterwards what each has written.
llvm::Value* KernelEmitter::emit_barrier() {
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
  return b_.getTrue();
}

llvm::Value* KernelEmitter::emit_shuffle(Intrinsic function, Value* value, Value* lanes) {
  if (llvm::Type* whole = value->getType(); whole->getPrimitiveSizeInBits() == 64) {
    llvm::Type* halves = llvm::FixedVectorType::get(b_.getInt32Ty(), 2);
    Value* apart = b_.CreateBitCast(value, halves);
    Value* moved = llvm::PoisonValue::get(halves);
    for (uint64_t half : {0, 1})
      moved = b_.CreateInsertElement(
          moved, emit_shuffle(function, b_.CreateExtractElement(apart, half), lanes), half);
    return b_.CreateBitCast(moved, whole);
  }
  const bool is_float = value->getType()->isFloatTy();
  MCC_CHECK(is_float || value->getType()->isIntegerTy(32), "a shuffle of other than 32 or 64 bits");
  using namespace llvm::Intrinsic;
  ID id = function == Intrinsic::shuffle_xor ? (is_float ? nvvm_shfl_sync_bfly_f32 : nvvm_shfl_sync_bfly_i32)
          : function == Intrinsic::shuffle_down
              ? (is_float ? nvvm_shfl_sync_down_f32 : nvvm_shfl_sync_down_i32)
              : (is_float ? nvvm_shfl_sync_idx_f32 : nvvm_shfl_sync_idx_i32);
  return b_.CreateIntrinsic(
      id, {}, {b_.getInt32(kWholeWarp), value, b_.CreateTrunc(lanes, b_.getInt32Ty()), b_.getInt32(31)});
}

// Lane by lane.
llvm::Value* KernelEmitter::emit_approximation(Intrinsic function, Value* x) {
  MCC_CHECK(target_.kind == TargetKind::cuda, to_text(function), " is an instruction of GPUs");
  using namespace llvm::Intrinsic;
  const ID id = function == Intrinsic::exp2_approx         ? nvvm_ex2_approx_ftz_f
                : function == Intrinsic::reciprocal_approx ? nvvm_rcp_approx_ftz_f
                                                           : nvvm_rsqrt_approx_f;
  auto of = [&](Value* lane) { return b_.CreateIntrinsic(id, {}, {lane}); };
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (!vector) return of(x);
  Value* result = llvm::PoisonValue::get(vector);
  for (uint64_t lane = 0; lane < vector->getNumElements(); ++lane)
    result = b_.CreateInsertElement(result, of(b_.CreateExtractElement(x, lane)), lane);
  return result;
}

// Where a vector of neighbours begins.
llvm::Value* KernelEmitter::vector_address(const Load& n) {
  const auto* ramp = n.indices[0].as<Ramp>();
  MCC_CHECK(n.type.lanes == 1 || (ramp && is_int(ramp->stride, 1)), "not neighbours in ", n.buffer.name());
  const Expr& first = ramp ? ramp->base : n.indices[0];
  const int64_t bytes = byte_size(n.buffer.element()) * n.type.lanes;
  MCC_CHECK(vector_align(n.buffer, first).value() >= static_cast<uint64_t>(bytes), "a vector of ",
            n.buffer.name(), " does not begin at a multiple of ", bytes, " bytes");
  return address(n.buffer, first);
}

// Warps stay together there: LLVM may not move the call under a condition.
namespace {
llvm::CallInst* collective(llvm::CallInst* call) {
  call->addFnAttr(llvm::Attribute::Convergent);
  return call;
}
}  // namespace

llvm::Value* KernelEmitter::emit_matrix_rows(const Call& n) {
  const auto* row = n.args[0].as<Load>();
  MCC_CHECK(row && row->buffer.scope() == tensor::Scope::shared && !row->predicate.defined(),
            "a row of a matrix is a load from shared memory");
  Value* where = vector_address(*row);
  if (where->getType()->getPointerAddressSpace() != kSharedSpace)
    where = b_.CreateAddrSpaceCast(where, b_.getPtrTy(kSharedSpace));
  const bool is_transposed = n.function == Intrinsic::load_matrices_transposed;
  using namespace llvm::Intrinsic;
  ID id = n.type.lanes == 1   ? (is_transposed ? nvvm_ldmatrix_sync_aligned_m8n8_x1_trans_b16
                                               : nvvm_ldmatrix_sync_aligned_m8n8_x1_b16)
          : n.type.lanes == 2 ? (is_transposed ? nvvm_ldmatrix_sync_aligned_m8n8_x2_trans_b16
                                               : nvvm_ldmatrix_sync_aligned_m8n8_x2_b16)
                              : (is_transposed ? nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                                               : nvvm_ldmatrix_sync_aligned_m8n8_x4_b16);
  llvm::CallInst* parts = collective(b_.CreateIntrinsic(id, {where->getType()}, {where}));
  if (n.type.lanes == 1) return parts;
  Value* all = llvm::PoisonValue::get(register_type(n.type));
  for (int i = 0; i < n.type.lanes; ++i) {
    const auto at = static_cast<unsigned>(i);
    all = b_.CreateInsertElement(all, b_.CreateExtractValue(parts, at), uint64_t{at});
  }
  return all;
}

// The registers of a left operand; of its elements, as memory has them.
llvm::Value* KernelEmitter::emit_left(const Expr& a) {
  if (a.element() == ElementType::i32) return emit(a);
  return b_.CreateBitCast(to_memory(a.element(), emit(a)), llvm::FixedVectorType::get(b_.getInt32Ty(), 4));
}

// Registers by PTX ISA 9.7.14.5: a[r] of A has rows r % 2 and columns r / 2 of its quarters, b[r] of B half r of its rows, sums[r] row
// r / 2 of their halves.
llvm::Value* KernelEmitter::emit_mma(const Call& n) {
  using namespace llvm::Intrinsic;
  auto registers = [&](Value* fragment, bool is_half) {
    std::vector<Value*> out;
    const auto lanes = llvm::cast<llvm::FixedVectorType>(fragment->getType())->getNumElements();
    for (uint64_t i = 0; i < lanes; ++i) {
      Value* part = b_.CreateExtractElement(fragment, i);
      out.push_back(is_half ? b_.CreateBitCast(part, llvm::FixedVectorType::get(b_.getHalfTy(), 2)) : part);
    }
    return out;
  };
  const bool is_half = n.function == Intrinsic::mma_f16;
  const std::vector<Value*> a = registers(emit_left(n.args[0]), is_half),
                            b = registers(emit(n.args[1]), is_half);
  std::vector<Value*> sums = registers(emit(n.args[2]), false);
  // sums[to ..] become what the instruction makes of the factors and of them.
  auto multiply = [&](ID id, std::vector<Value*> args, size_t to, size_t count) {
    for (size_t i = 0; i < count; ++i)
      args.push_back(sums[to + i]);
    llvm::CallInst* made = collective(b_.CreateIntrinsic(id, {}, args));
    for (size_t i = 0; i < count; ++i)
      sums[to + i] = b_.CreateExtractValue(made, static_cast<unsigned>(i));
  };
  if (target_.gpu.sm() >= 80) {
    const ID id = is_half                             ? nvvm_mma_m16n8k16_row_col_f32_f32
                  : n.function == Intrinsic::mma_bf16 ? nvvm_mma_m16n8k16_row_col_bf16
                  : n.function == Intrinsic::mma_tf32 ? nvvm_mma_m16n8k8_row_col_tf32
                  : n.function == Intrinsic::mma_u8i8 ? nvvm_mma_m16n8k32_row_col_u8_s8
                                                      : nvvm_mma_m16n8k32_row_col_s8;
    multiply(id, {a[0], a[1], a[2], a[3], b[0], b[1]}, 0, 4);
  } else if (is_half) {
    // The halves of the sum one after the other.
    for (size_t k : {0, 1})
      multiply(nvvm_mma_m16n8k8_row_col_f32_f32, {a[2 * k], a[2 * k + 1], b[k]}, 0, 4);
  } else {
    MCC_CHECK(tensor::is_integer_mma(n.function), to_text(n.function), " on ", target_.gpu.arch);
    const ID id =
        n.function == Intrinsic::mma_u8i8 ? nvvm_mma_m8n8k16_row_col_u8_s8 : nvvm_mma_m8n8k16_row_col_s8;
    for (size_t k : {0, 1}) {
      for (size_t row : {0, 1})
        multiply(id, {a[2 * k + row], b[k]}, 2 * row, 2);
    }
  }
  Value* all = llvm::PoisonValue::get(register_type(n.type));
  for (size_t i = 0; i < sums.size(); ++i)
    all = b_.CreateInsertElement(all, sums[i], uint64_t{i});
  return all;
}

// One dp4a for each lane, which every GPU since sm_61 has and LLVM 19 does not know.
llvm::Value* KernelEmitter::emit_dp4a(const Call& n) {
  LlvmType* word = b_.getInt32Ty();
  const bool is_unsigned = left_element(n.function) == ElementType::u8;
  auto* dp4a = llvm::InlineAsm::get(llvm::FunctionType::get(word, {word, word, word}, false),
                                    is_unsigned ? "dp4a.u32.s32 $0, $1, $2, $3;" : "dp4a.s32.s32 $0, $1, $2, $3;",
                                    "=r,r,r,r", /*hasSideEffects=*/false);
  Value* sums = emit(n.args[0]);
  Value* a = b_.CreateBitCast(emit(n.args[1]), b_.getInt32Ty());
  Value* b = b_.CreateBitCast(emit(n.args[2]), sums->getType());
  for (unsigned i = 0; i < static_cast<unsigned>(n.type.lanes); ++i) {
    Value *of_b = b_.CreateExtractElement(b, uint64_t{i}), *sum = b_.CreateExtractElement(sums, uint64_t{i});
    llvm::CallInst* next = b_.CreateCall(dp4a, {a, of_b, sum});
    next->setDoesNotAccessMemory();
    next->setDoesNotThrow();
    sums = b_.CreateInsertElement(sums, next, uint64_t{i});
  }
  return sums;
}

llvm::Value* KernelEmitter::emit_async(const Call& n) {
  using namespace llvm::Intrinsic;
  if (n.function == Intrinsic::async_commit) return b_.CreateIntrinsic(nvvm_cp_async_commit_group, {}, {});
  if (n.function == Intrinsic::async_wait) {
    int64_t left = 0;
    as_int(n.args[0], &left);
    return b_.CreateIntrinsic(nvvm_cp_async_wait_group, {}, {b_.getInt32(static_cast<uint32_t>(left))});
  }
  const auto *to = n.args[0].as<Load>(), *from = n.args[1].as<Load>();
  MCC_CHECK(to && from, "an asynchronous copy is of loads");
  const int64_t bytes = byte_size(to->type.element) * to->type.lanes;
  Value *target = vector_address(*to), *source = vector_address(*from);
  if (target->getType()->getPointerAddressSpace() != kSharedSpace)
    target = b_.CreateAddrSpaceCast(target, b_.getPtrTy(kSharedSpace));
  // Nothing is read where the condition does not hold, and zeros are written.
  if (from->predicate.defined()) {
    MCC_CHECK(from->predicate.lanes() == 1 || from->predicate.as<Broadcast>(),
              "lanes with conditions of their own");
    const auto* same = from->predicate.as<Broadcast>();
    Value* size = b_.CreateSelect(emit(same ? same->value : from->predicate),
                                  b_.getInt32(static_cast<uint32_t>(bytes)), b_.getInt32(0));
    ID id = bytes == 4   ? nvvm_cp_async_ca_shared_global_4_s
            : bytes == 8 ? nvvm_cp_async_ca_shared_global_8_s
                         : nvvm_cp_async_cg_shared_global_16_s;
    return b_.CreateIntrinsic(id, {}, {target, source, size});
  }
  ID id = bytes == 4   ? nvvm_cp_async_ca_shared_global_4
          : bytes == 8 ? nvvm_cp_async_ca_shared_global_8
                       : nvvm_cp_async_cg_shared_global_16;
  return b_.CreateIntrinsic(id, {}, {target, source});
}

}  // namespace mcc::codegen
