#include "tools/measure/build_device.h"

#include <chrono>
#include <set>

#include "codegen/hash.h"
#include "tensor/passes/lower.h"
#include "tensor/text.h"
#include "tensor/verify.h"

namespace mcc::tools {

namespace {

using tuner::TrialError;

int64_t extent_of(const tensor::Expr& e) {
  int64_t value = 1;
  tensor::as_int(e, &value);
  return value;
}

void fail(BuiltDevice& built, TrialError error, std::string message) {
  built.error = error;
  built.message = std::move(message);
}

const codegen::EntryFigures* figures_of_entry(const codegen::Cubin& cubin, const std::string& entry) {
  for (const codegen::EntryFigures& f : cubin.entries)
    if (f.entry == entry) return &f;
  return nullptr;
}

// Registers are given to whole warps, 8 a thread at a time.
void check_registers(BuiltDevice& built, const tensor::Gpu& gpu) {
  for (const codegen::DeviceLaunch& launch : built.code.launches) {
    const codegen::EntryFigures* figures = figures_of_entry(*built.cubin, launch.entry);
    if (figures == nullptr) continue;
    int64_t threads = 1;
    for (const tensor::Expr& e : launch.block)
      threads *= extent_of(e);
    const int64_t warps = (threads + gpu.warp - 1) / gpu.warp, each = (figures->registers + 7) / 8 * 8;
    if (warps * gpu.warp * each <= gpu.registers_per_multiprocessor) continue;
    return fail(
        built, TrialError::rejected,
        text(launch.entry, ": ", threads, " threads with ", figures->registers,
             " registers are more than the ", gpu.registers_per_multiprocessor, " of a multiprocessor"));
  }
}

void build(const tensor::Func& scheduled, const tensor::Target& target, const codegen::EmitOptions& emit,
           const codegen::Assembler* assembler, const std::function<bool(const std::string&)>& is_known,
           BuiltDevice& built) {
  tensor::Func lowered = tensor::lower(scheduled, target);
  if (std::vector<std::string> broken = tensor::verify_launches(lowered, target.gpu); !broken.empty())
    return fail(built, TrialError::rejected, broken[0]);
  built.key = codegen::sha256(to_text(lowered));
  if (is_known && is_known(built.key)) return;
  Result<codegen::DeviceCode> code = codegen::emit_ptx(lowered, "mcc_trial", target, emit);
  if (!code.ok()) return fail(built, TrialError::rejected, to_text(code.errors()));
  built.code = std::move(*code);
  if (assembler == nullptr) return;
  Result<codegen::Cubin> cubin = assembler->assemble(built.code.ptx, target.cpu);
  if (!cubin.ok()) return fail(built, TrialError::build, to_text(cubin.errors()));
  built.cubin = std::move(*cubin);
  check_registers(built, target.gpu);
}

}  // namespace

BuiltDevice build_device(const tensor::Func& scheduled, const tensor::Target& target,
                         const codegen::EmitOptions& emit, const codegen::Assembler* assembler,
                         const std::function<bool(const std::string& key)>& is_known) {
  const auto start = std::chrono::steady_clock::now();
  BuiltDevice built;
  try {
    build(scheduled, target, emit, assembler, is_known, built);
  } catch (const std::exception& error) {
    fail(built, TrialError::build, text("internal error: ", error.what()));
  }
  built.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return built;
}

std::vector<tuner::LaunchFigures> figures_of(const BuiltDevice& built) {
  std::vector<tuner::LaunchFigures> out;
  if (!built.cubin) return out;
  std::set<std::string> seen;
  for (const codegen::DeviceLaunch& launch : built.code.launches) {
    if (!seen.insert(launch.entry).second) continue;
    const codegen::EntryFigures* figures = figures_of_entry(*built.cubin, launch.entry);
    if (figures == nullptr) return {};
    out.push_back({static_cast<double>(figures->registers),
                   static_cast<double>(std::max(figures->shared_bytes, launch.shared_bytes)),
                   static_cast<double>(figures->spill_stores + figures->spill_loads)});
  }
  return out;
}

}  // namespace mcc::tools
