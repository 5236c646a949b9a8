#include "tools/kernels.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "codegen/hash.h"
#include "tensor/passes/merge_axes.h"
#include "tensor/text.h"
#include "tuner/default_schedule.h"

namespace mcc::tools {
namespace {

// "conv_bias_relu": the names of the blocks, as far as that stays readable.
std::string name_of(const tensor::Func& f) {
  tensor::Schedule schedule(f);
  std::string name;
  for (const std::string& block : schedule.block_names()) {
    if (name.size() + block.size() > 48) return name + "_etc";
    if (!name.empty()) name += '_';
    name += block;
  }
  return name;
}

std::string emit_folder(const CompileOptions& options, const std::string& what) {
  auto it = options.emit.find(what);
  return it == options.emit.end() ? "" : it->second;
}

Status write_text(const std::string& folder, const std::string& file, const std::string& content) {
  if (folder.empty()) return done();
  std::ofstream out(folder + "/" + file);
  out << content;
  out.flush();
  if (out.good()) return done();
  return Diagnostic{ErrorKind::usage, folder + "/" + file, "cannot be written", "--emit wants folders that exist"};
}

// Errors that a person can do something about name the ONNX nodes.
Diagnostics at(const Kernel& kernel, Diagnostics errors) {
  for (Diagnostic& e : errors) e.where = kernel.where;
  return errors;
}

Status emit_for_cpu(Kernel& kernel, const tensor::Func& lowered, const tensor::Target& target,
                    const CompileOptions& options) {
  Result<codegen::KernelMemory> memory = codegen::kernel_memory(lowered);
  if (!memory.ok()) return at(kernel, memory.errors());
  kernel.memory = std::move(*memory);

  codegen::EmitOptions emit = emit_options(options);
  emit.keep_llvm_ir = options.emit.count("llvm") != 0;
  emit.keep_assembly = options.emit.count("asm") != 0;
  Result<codegen::ObjectCode> object = codegen::emit_object(lowered, kernel.symbol, target, emit);
  if (!object.ok()) return object.errors();
  kernel.object = std::move(*object);
  Status status = write_text(emit_folder(options, "llvm"), kernel.symbol + ".ll", kernel.object.llvm_ir);
  if (!status.ok()) return status;
  return write_text(emit_folder(options, "asm"), kernel.symbol + ".s", kernel.object.assembly);
}

Status emit_for_gpu(Kernel& kernel, const tensor::Func& lowered, const KernelTargets& targets,
                    const CompileOptions& options) {
  codegen::EmitOptions emit = emit_options(options);
  emit.keep_llvm_ir = options.emit.count("llvm") != 0;
  Result<codegen::DeviceCode> code = codegen::emit_ptx(lowered, kernel.symbol, targets.first(), emit);
  if (!code.ok()) return at(kernel, code.errors());
  kernel.device = std::move(*code);
  kernel.memory = kernel.device.memory;
  kernel.cubins.clear();
  for (const char* what : {"ptx", "asm"}) {
    Status status = write_text(emit_folder(options, what), kernel.symbol + ".ptx", kernel.device.ptx);
    if (!status.ok()) return status;
  }
  Status status = write_text(emit_folder(options, "llvm"), kernel.symbol + ".ll", kernel.device.llvm_ir);
  if (!status.ok() || targets.assembler == nullptr) return status;
  for (const tensor::Target& target : targets.list) {
    // What is for one architecture alone has no machine code elsewhere.
    Result<codegen::Cubin> cubin = targets.assembler->assemble(kernel.device.ptx, target.cpu);
    if (!cubin.ok()) return at(kernel, cubin.errors());
    kernel.cubins.push_back(std::move(*cubin));
  }
  return done();
}

Status compile_scheduled(Kernel& kernel, const tensor::Schedule& schedule, const KernelTargets& targets,
                         const CompileOptions& options) {
  const tensor::Target& target = targets.first();
  kernel.trace = to_text(schedule.trace());
  // Of --emit tensor: the function before lowering and after each of its passes.
  std::string stages;
  tensor::PassObserver observer = nullptr;
  if (options.emit.count("tensor") != 0) {
    stages = text("// trace\n", kernel.trace, "\n// unscheduled\n", kernel.text, "\n// scheduled\n", to_text(schedule.func()));
    observer = [&, last = std::string()](const std::string& pass, const tensor::Func& f) mutable {
      std::string now = to_text(f);
      stages += text("\n// ", pass, now == last ? ": unchanged\n" : "\n");
      if (now != last) stages += now;
      last = std::move(now);
    };
  }
  tensor::Func lowered = tensor::lower(schedule.func(), target, observer);
  Status status = write_text(emit_folder(options, "tensor"), kernel.symbol + ".txt", stages);
  if (!status.ok()) return status;
  return target.kind == tensor::TargetKind::cuda ? emit_for_gpu(kernel, lowered, targets, options)
                                                 : emit_for_cpu(kernel, lowered, target, options);
}

Status compile_kernel(Kernel& kernel, const KernelTargets& targets, const CompileOptions& options) {
  const tensor::Target& target = targets.first();
  if (!kernel.schedule)
    return compile_scheduled(kernel, tuner::default_schedule(kernel.func, target), targets, options);
  Status status = compile_scheduled(kernel, *kernel.schedule, targets, options);
  // A schedule may be legal and still ask for more memory than a kernel can have.
  if (status.ok() || options.locked || kernel.source == ScheduleSource::file) return status;
  kernel.refusal = to_text(status.errors());
  kernel.source = ScheduleSource::rules;
  kernel.origin = "default";
  kernel.schedule.reset();
  return compile_scheduled(kernel, tuner::default_schedule(kernel.func, target), targets, options);
}

}  // namespace

codegen::EmitOptions emit_options(const CompileOptions& options) {
  codegen::EmitOptions emit;
  emit.strict = options.strict;
  emit.fast_math = options.fast_math;
  emit.optimization = options.opt_level;
  return emit;
}

KernelSet collect_kernels(const graph::Graph& graph, const std::vector<graph::KernelGroup>& groups) {
  KernelSet set;
  std::map<std::string, int> known;
  for (const graph::KernelGroup& group : groups) {
    if (group.kind != graph::KernelGroup::Kind::kernel) {
      set.of_group.push_back(-1);
      continue;
    }
    tensor::Func f = tensor::merge_axes(build_kernel(graph, group));
    std::string key = to_text(f);
    auto [entry, is_new] = known.try_emplace(key, static_cast<int>(set.kernels.size()));
    if (is_new) {
      Kernel kernel;
      kernel.name = name_of(f);
      kernel.symbol = text("mcc_kernel_", set.kernels.size(), "_", kernel.name);
      kernel.where = text("node '", join(origins(graph, group), "', '"), "'");
      kernel.work = tensor::work_of(f);
      kernel.func = std::move(f);
      kernel.text = std::move(key);
      kernel.id = codegen::sha256(kernel.text).substr(0, 16);
      set.kernels.push_back(std::move(kernel));
    }
    ++set.kernels[static_cast<size_t>(entry->second)].uses;
    set.of_group.push_back(entry->second);
  }
  return set;
}

Status compile_kernels(KernelSet& set, const KernelTargets& targets, const CompileOptions& options) {
  int jobs = options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<Diagnostics> errors(set.kernels.size());
  std::mutex progress_mutex;
  size_t finished = 0;
  oneapi::tbb::task_arena arena(jobs);
  arena.execute([&] {
    oneapi::tbb::parallel_for(size_t{0}, set.kernels.size(), [&](size_t i) {
      Status status = compile_kernel(set.kernels[i], targets, options);
      if (!status.ok()) errors[i] = status.errors();
      std::lock_guard lock(progress_mutex);
      ++finished;
      if (options.progress) {
        options.progress("compiling kernels", static_cast<double>(finished) / static_cast<double>(set.kernels.size()));
      }
    });
  });
  Diagnostics all;
  for (Diagnostics& e : errors) all.insert(all.end(), e.begin(), e.end());
  if (!all.empty()) return all;
  return done();
}

}  // namespace mcc::tools
