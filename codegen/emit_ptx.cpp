#include <llvm/IR/InstIterator.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include "codegen/device.h"
#include "codegen/early_launch.h"
#include "codegen/kernel_emitter.h"
#include "codegen/machine.h"
#include "codegen/narrow_pairs.h"
#include "codegen/optimize.h"
#include "tensor/intrinsics.h"
#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::codegen {
namespace {

// "or disjoint" becomes "add" again. The optimizer makes one of the other where a condition around says that no bit is in both,
// and LLVM 19's NaryReassociate and SpeculativeExecution, which generate_code runs for GPUs, then use the result where the
// condition does not hold, taking it for the sum.
void spell_out_sums(llvm::Module& module) {
  for (llvm::Function& function : module) {
    for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto* either = llvm::dyn_cast<llvm::PossiblyDisjointInst>(&i);
      if (!either || !either->isDisjoint()) continue;
      auto* sum = llvm::BinaryOperator::CreateAdd(i.getOperand(0), i.getOperand(1), "", i.getIterator());
      sum->takeName(&i);
      i.replaceAllUsesWith(sum);
      i.eraseFromParent();
    }
  }
}

// Code is of the version of PTX that came with its architecture, which the oldest drivers take, unless an instruction came later:
// products of unsigned bytes with signed ones by warpgroups with PTX 8.4, those of matrices on sm_75 and ldmatrix with 6.5.
tensor::Target with_version(const tensor::Func& lowered, tensor::Target target) {
  bool is_mixed = false, has_matrices = false;
  tensor::for_each_expr(lowered.body, [&](const tensor::Expr& e) {
    const auto* call = e.as<tensor::Call>();
    is_mixed |= call && call->function == tensor::Intrinsic::wgmma_u8i8;
    has_matrices |= call && class_of(call->function) == tensor::IntrinsicClass::mma;
  });
  if (is_mixed) target.features = "+ptx84";
  if (has_matrices && target.gpu.sm() < 80) target.features = "+ptx65";
  return target;
}

// The expression without the variables of lets around a launch.
tensor::Expr over_dims(tensor::Expr e, const std::vector<const tensor::Let*>& lets) {
  for (size_t i = lets.size(); i-- > 0;)
    e = tensor::substitute(e, {{lets[i]->var.get(), lets[i]->value}});
  return lets.empty() ? e : tensor::simplify(e);
}

}  // namespace

Result<DeviceCode> emit_ptx(const tensor::Func& lowered, const std::string& symbol,
                            const tensor::Target& target, const EmitOptions& options) {
  MCC_CHECK(target.kind == tensor::TargetKind::cuda, "PTX for ", target.name);
  Result<DevicePlan> plan = plan_device(lowered, target.gpu);
  if (!plan.ok()) return plan.errors();
  std::unique_ptr<llvm::TargetMachine> machine =
      create_machine(with_version(lowered, target), options.optimization);
  llvm::LLVMContext context;
  llvm::Module module(symbol, context);
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine->createDataLayout());

  DeviceCode code;
  code.memory = plan->memory.memory;
  KernelEmitter emitter(module, target, options, plan->memory);
  std::vector<DeviceLaunch> kernels;
  for (size_t i = 0; i < plan->launches.size(); ++i) {
    const LaunchPlan& from = plan->launches[i];
    DeviceLaunch launch;
    launch.entry = plan->launches.size() == 1 ? symbol : text(symbol, "_", i);
    for (size_t axis = 0; axis < 3; ++axis) {
      launch.grid[axis] = from.axes[axis] ? over_dims(from.axes[axis]->extent, from.lets) : tensor::Expr(1);
      launch.block[axis] = from.axes[3 + axis] ? from.axes[3 + axis]->extent : tensor::Expr(1);
    }
    launch.shared_bytes = from.shared_bytes;
    launch.is_shared_dynamic = from.shared_bytes > target.gpu.shared_per_block;
    launch.buffers = from.buffers;
    launch.dims = from.dims;
    launch.maps = from.maps;
    launch.waits_itself = has_early_launch(target.gpu) && !from.product;
    launch.product = from.product;
    launch.library_bytes = from.library_bytes;
    if (!from.product) emitter.emit_launch(lowered, from, launch.entry, launch.is_shared_dynamic);
    kernels.push_back(std::move(launch));
  }
  for (const Turn& turn : plan->turns) {
    DeviceLaunch& launch = code.launches.emplace_back(kernels[turn.launch]);
    if (!launch.product) {
      launch.takes_turn = !plan->launches[turn.launch].steps.empty();
      launch.numbers = turn.values;
    }
    if (turn.loop == nullptr) continue;
    launch.loop_launches = turn.loop_turns;
    tensor::as_int(turn.loop->min, &launch.loop_first);
    launch.loop_turns = turn.loop->extent;
  }
  verify_module(module);
  if (options.optimization > 0) optimize_module(module, *machine);
  spell_out_sums(module);
  if (has_narrow_pairs(target.gpu)) narrow_in_pairs(module);
  if (has_early_launch(target.gpu)) wait_for_launches_before(module);
  if (options.keep_llvm_ir) code.llvm_ir = module_text(module);
  code.ptx = generate_code(module, *machine, llvm::CodeGenFileType::AssemblyFile);
  return code;
}

}  // namespace mcc::codegen
