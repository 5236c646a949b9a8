#include "tools/kernels.h"

#include <map>
#include <mutex>

#include "codegen/hash.h"
#include "tensor/passes/join_cases.h"
#include "tensor/passes/merge_axes.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tools/jobs.h"
#include "tools/write_file.h"
#include "tuner/default_schedule.h"
#include "tuner/other_rows.h"

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
  return name.empty() ? "nothing" : name;
}

// Constants of a size at which their order counts.
constexpr int64_t kLeastWeightBytes = 4096;

std::vector<std::string> weights_of(const graph::Graph& graph, const graph::KernelGroup& group, const tensor::Func& f) {
  std::vector<std::string> names;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const std::optional<graph::Constant>& constant = graph.value(group.inputs[i]).constant;
    if (constant && constant->bytes().size() >= kLeastWeightBytes) names.push_back(f.params[i].name());
  }
  return names;
}

std::vector<tensor::SizeRange> size_ranges(const graph::Graph& graph, const tensor::Func& f) {
  std::vector<tensor::SizeRange> ranges;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    const bool is_used = std::any_of(f.dims.begin(), f.dims.end(), [&](const tensor::Var& d) { return d.same_as(graph.dims[i]); });
    if (is_used) ranges.push_back(graph.dim_ranges[i]);
  }
  return ranges;
}

std::optional<InPlace> in_place_of(const graph::Graph& graph, const graph::KernelGroup& group,
                                   const std::vector<std::vector<graph::NodeId>>& users) {
  auto place_in = [](const std::vector<graph::ValueId>& list, graph::ValueId v) {
    return static_cast<size_t>(std::find(list.begin(), list.end(), v) - list.begin());
  };
  for (graph::NodeId id : group.nodes) {
    const graph::Node& node = graph.node(id);
    if (!node.op->updates_first_input) continue;
    const graph::ValueId x = node.inputs[0], y = node.outputs[0];
    const size_t input = place_in(group.inputs, x), output = place_in(group.outputs, y);
    const bool is_of_model = place_in(graph.inputs, x) < graph.inputs.size() &&
                             place_in(graph.outputs, y) < graph.outputs.size() &&
                             std::count(graph.outputs.begin(), graph.outputs.end(), x) == 0;
    const bool is_alone = users[static_cast<size_t>(x)].size() == 1 &&
                          std::count(node.inputs.begin(), node.inputs.end(), x) == 1;
    if (is_of_model && is_alone && input < group.inputs.size() && output < group.outputs.size() &&
        !group.rows.contains(x) && !group.rows.contains(y) &&
        !graph.depends_on_data(graph.value(y).type.shape))
      return InPlace{input, group.inputs.size() + output, id, tensor::Var("in_place")};
  }
  return std::nullopt;
}

std::string emit_folder(const CompileOptions& options, const std::string& what) {
  auto it = options.emit.find(what);
  return it == options.emit.end() ? "" : it->second;
}

Status write_text(const std::string& folder, const std::string& file, const std::string& content) {
  if (folder.empty()) return done();
  return write_file(folder + "/" + file, {content});
}

// Errors that a person can do something about name the ONNX nodes.
Diagnostics at(const Kernel& kernel, Diagnostics errors) {
  for (Diagnostic& e : errors) e.where = kernel.where;
  return errors;
}

// Workspaces for all runs: a plan of memory knows nothing of the flag.
void forget_flag(codegen::KernelMemory& memory, const std::optional<InPlace>& in_place) {
  if (!in_place) return;
  for (tensor::Expr& bytes : memory.workspaces) {
    auto with_flag = [&](int64_t value) {
      return tensor::simplify(tensor::substitute(bytes, {{in_place->flag.get(), tensor::Expr(value)}}));
    };
    bytes = tensor::simplify(tensor::max(with_flag(0), with_flag(1)));
  }
}

Status emit_for_cpu(Kernel& kernel, const tensor::Func& lowered, const tensor::Target& target,
                    const CompileOptions& options) {
  Result<codegen::KernelMemory> memory = codegen::kernel_memory(lowered);
  if (!memory.ok()) return at(kernel, memory.errors());
  kernel.memory = std::move(*memory);
  forget_flag(kernel.memory, kernel.in_place);

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

// Workspaces large enough for both.
codegen::KernelMemory larger(const codegen::KernelMemory& a, const codegen::KernelMemory& b) {
  codegen::KernelMemory out = a.workspaces.size() >= b.workspaces.size() ? a : b;
  const codegen::KernelMemory& other = a.workspaces.size() >= b.workspaces.size() ? b : a;
  for (size_t i = 0; i < other.workspaces.size(); ++i) {
    int64_t x = 0, y = 0;
    const bool is_known = tensor::as_int(out.workspaces[i], &x) && tensor::as_int(other.workspaces[i], &y);
    if (!is_known) out.workspaces[i] = tensor::simplify(tensor::max(out.workspaces[i], other.workspaces[i]));
    if (is_known && y > x) out.workspaces[i] = other.workspaces[i];
  }
  return out;
}

// Adds the variant that is for this target.
Status emit_for_gpu(Kernel& kernel, const tensor::Func& lowered, const tensor::Target& target,
                    const std::string& symbol, std::string trace, const CompileOptions& options) {
  codegen::EmitOptions emit = emit_options(options);
  emit.keep_llvm_ir = options.emit.count("llvm") != 0;
  Result<codegen::DeviceCode> code = codegen::emit_ptx(lowered, symbol, target, emit);
  if (!code.ok()) return at(kernel, code.errors());
  forget_flag(code->memory, kernel.in_place);
  kernel.memory = kernel.device.empty() ? code->memory : larger(kernel.memory, code->memory);
  kernel.device.push_back({std::move(trace), {}, std::move(*code), target.cpu, {}});
  const codegen::DeviceCode& emitted = kernel.device.back().code;
  for (const char* what : {"ptx", "asm"}) {
    Status status = write_text(emit_folder(options, what), symbol + ".ptx", emitted.ptx);
    if (!status.ok()) return status;
  }
  return write_text(emit_folder(options, "llvm"), symbol + ".ll", emitted.llvm_ir);
}

// Of the runs in which the condition holds: other numbers of rows, or another computation.
struct OtherRuns {
  tensor::Expr condition;
  tensor::Schedule schedule;
  KernelSchedule about;
  std::string unscheduled;  // the function
};

// A schedule, and what there is to say of it.
struct Chosen {
  tensor::Schedule schedule;
  KernelSchedule about;
  std::vector<OtherRuns> others;
  // Two that are the same make the same code.
  std::string trace() const {
    std::string all = about.trace;
    for (const OtherRuns& other : others)
      all += text("# where ", other.about.where, "\n", other.about.trace);
    return all;
  }
};

Status compile_scheduled(Kernel& kernel, const Chosen& chosen, const tensor::Target& target,
                         const std::string& symbol, const CompileOptions& options) {
  // Of --emit tensor: the function before lowering and after each of its passes.
  std::string stages;
  auto lowered_by = [&](const tensor::Schedule& schedule, const KernelSchedule& about,
                        const std::string& unscheduled) {
    tensor::PassObserver observer = nullptr;
    if (options.emit.count("tensor") != 0) {
      if (!about.where.empty()) stages += text("\n// where ", about.where, "\n");
      stages += text("// trace\n", about.trace, "\n// unscheduled\n", unscheduled, "\n// scheduled\n",
                     to_text(schedule.func()));
      observer = [&, last = std::string()](const std::string& pass, const tensor::Func& f) mutable {
        std::string now = to_text(f);
        stages += text("\n// ", pass, now == last ? ": unchanged\n" : "\n");
        if (now != last) stages += now;
        last = std::move(now);
      };
    }
    tensor::Func f = schedule.func();
    if (kernel.in_place) f.dims.push_back(kernel.in_place->flag);
    return tensor::lower(f, target, observer);
  };
  tensor::Func lowered = lowered_by(chosen.schedule, chosen.about, kernel.text);
  std::vector<tensor::Case> cases;
  std::vector<size_t> other_launches;
  for (const OtherRuns& other : chosen.others) {
    cases.push_back({other.condition, lowered_by(other.schedule, other.about, other.unscheduled)});
    other_launches.push_back(tensor::count_launches(cases.back().func));
  }
  lowered = tensor::join_cases(lowered, cases);
  Status status = write_text(emit_folder(options, "tensor"), symbol + ".txt", stages);
  if (!status.ok()) return status;
  if (target.kind != tensor::TargetKind::cuda) return emit_for_cpu(kernel, lowered, target, options);
  status = emit_for_gpu(kernel, lowered, target, symbol, chosen.trace(), options);
  if (status.ok()) kernel.device.back().other_launches = std::move(other_launches);
  return status;
}

Chosen chosen(const tensor::Schedule& schedule, const std::string& origin) {
  Chosen out{schedule, {}, {}};
  out.about.origin = origin;
  out.about.trace = to_text(schedule.trace());
  return out;
}

KernelSchedule about_rules(const tuner::DefaultSchedule& made) {
  KernelSchedule about;
  about.origin = made.is_plain ? kPlainOrigin : kDefaultOrigin;
  about.trace = to_text(made.schedule.trace());
  std::vector<std::string> answers;
  for (const auto& [name, answer] : made.chosen)
    answers.push_back(text(name, " ", join(answer, " x ")));
  about.chosen = join(answers, ", ");
  about.refused = made.refused;
  return about;
}

// A person's schedule is for any number of rows.
Chosen with_other_runs(Chosen chosen, const Kernel& kernel, const tensor::Target& target,
                       ScheduleSource source, const std::vector<int64_t>& sizes) {
  auto add = [&](const tensor::Expr& condition, tuner::DefaultSchedule made, const std::string& unscheduled) {
    KernelSchedule about = about_rules(made);
    about.where = tensor::to_text(condition);
    chosen.others.push_back({condition, std::move(made.schedule), std::move(about), unscheduled});
  };
  if (source != ScheduleSource::file) {
    for (tuner::OtherRows& rows : tuner::schedule_other_rows(kernel.func, target, chosen.schedule, sizes))
      add(rows.condition, std::move(rows.made), kernel.text);
  }
  for (const graph::OtherKernel& other : kernel.other_runs) {
    tuner::DefaultSchedule made = tuner::explained_default_schedule(other.func, target);
    if (!made.is_plain || other.does_less) add(other.condition, std::move(made), to_text(other.func));
  }
  return chosen;
}

Chosen chosen_by_rules(tuner::DefaultSchedule made, const Kernel& kernel, const tensor::Target& target) {
  KernelSchedule about = about_rules(made);
  return with_other_runs({std::move(made.schedule), std::move(about), {}}, kernel, target,
                         ScheduleSource::rules, {});
}

Chosen by_default(Kernel& kernel, const tensor::Target& target) {
  tuner::DefaultSchedule made = tuner::explained_default_schedule(kernel.func, target);
  kernel.answers = {made.chosen.begin(), made.chosen.end()};
  return chosen_by_rules(std::move(made), kernel, target);
}

// What is said of equal schedules is said once.
void note(Kernel& kernel, KernelSchedule about, const std::string& arch) {
  auto same = std::find_if(kernel.schedules.begin(), kernel.schedules.end(), [&](const KernelSchedule& s) {
    return s.origin == about.origin && s.chosen == about.chosen && s.trace == about.trace &&
           s.refused == about.refused && s.where == about.where && s.first_launch == about.first_launch;
  });
  if (same == kernel.schedules.end()) same = kernel.schedules.insert(same, std::move(about));
  if (!arch.empty()) same->archs.push_back(arch);
}

// For GPUs: of the variant with this number.
void note(Kernel& kernel, Chosen chosen, size_t variant, const std::string& arch) {
  if (!kernel.device.empty()) {
    size_t first = 0;
    for (size_t i = 0; i < variant; ++i)
      first += kernel.device[i].code.launches.size();
    const DeviceVariant& own = kernel.device[variant];
    size_t behind = first + own.code.launches.size();
    for (size_t i = chosen.others.size(); i-- > 0;) {
      chosen.others[i].about.launches = own.other_launches[i];
      chosen.others[i].about.first_launch = behind -= own.other_launches[i];
    }
    chosen.about.first_launch = first;
    chosen.about.launches = behind - first;
  }
  note(kernel, std::move(chosen.about), arch);
  for (OtherRuns& other : chosen.others)
    note(kernel, std::move(other.about), arch);
}

// Gives up the schedule that was chosen, for this reason.
void leave_to_rules(Kernel& kernel, std::string refusal) {
  kernel.refusal = std::move(refusal);
  kernel.source = ScheduleSource::rules;
  kernel.origin = kDefaultOrigin;
  kernel.schedule.reset();
}

// For the first of the targets.
Status compile_first(Kernel& kernel, const KernelTargets& targets, const CompileOptions& options) {
  const tensor::Target& target = targets.first();
  auto compile = [&](Chosen chosen) {
    kernel.orders = tensor::weight_orders(kernel.func, chosen.schedule.trace());
    Status status = compile_scheduled(kernel, chosen, target, kernel.symbol, options);
    if (!status.ok()) return status;
    const bool has_archs = targets.list.size() > 1 || !chosen.others.empty();
    note(kernel, std::move(chosen), 0, has_archs ? target.cpu : "");
    return status;
  };
  if (!kernel.schedule) return compile(by_default(kernel, target));
  Status status = compile(
      with_other_runs(chosen(*kernel.schedule, kernel.origin), kernel, target, kernel.source, kernel.sizes));
  // A schedule may be legal and still ask for more memory than a kernel can have.
  if (status.ok() || options.locked || kernel.source == ScheduleSource::file) return status;
  leave_to_rules(kernel, to_text(status.errors()));
  return compile(by_default(kernel, target));
}

bool fits(const codegen::DeviceCode& code, const tensor::Gpu& gpu) {
  return std::all_of(code.launches.begin(), code.launches.end(), [&](const codegen::DeviceLaunch& launch) {
    return launch.shared_bytes <= gpu.shared_per_block_max;
  });
}

bool same_orders(const std::vector<tensor::WeightOrder>& a, const std::vector<tensor::WeightOrder>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const tensor::WeightOrder& x, const tensor::WeightOrder& y) {
    return x.parameter == y.parameter && x.map == y.map;
  });
}

bool wants_the_same_weights(const Kernel& kernel, const tensor::Schedule& schedule) {
  return same_orders(tensor::weight_orders(kernel.func, schedule.trace()), kernel.orders);
}

// For another GPU than the first. A library has weights once: where the rules would have them in another order here, they are asked to
// choose as they did for the first GPU, and else leave them alone.
Chosen by_default_for_other(const Kernel& kernel, const tensor::Target& target) {
  tuner::DefaultSchedule made = tuner::explained_default_schedule(kernel.func, target);
  if (!wants_the_same_weights(kernel, made.schedule))
    made = tuner::explained_default_schedule(kernel.func, target, kernel.answers);
  if (!wants_the_same_weights(kernel, made.schedule)) made = tuner::plain_schedule(kernel.func, target);
  return chosen_by_rules(std::move(made), kernel, target);
}

// The variant for another GPU; one that is there already where the schedule is the same.
Result<size_t> compile_other(Kernel& kernel, size_t number, const tensor::Target& target,
                             const CompileOptions& options) {
  auto variant_of = [&](const Chosen& chosen) -> Result<size_t> {
    if (!wants_the_same_weights(kernel, chosen.schedule)) {
      return Diagnostic{ErrorKind::tuning_log, kernel.where,
                        text("its schedule for ", target.cpu, " wants weights in another order than the one for the first GPU"), ""};
    }
    for (size_t i = 0; i < kernel.device.size(); ++i) {
      if (kernel.device[i].trace == chosen.trace() && fits(kernel.device[i].code, target.gpu)) return i;
    }
    Status status = compile_scheduled(kernel, chosen, target, text(kernel.symbol, "_", target.cpu), options);
    if (!status.ok()) return status.errors();
    return kernel.device.size() - 1;
  };
  auto compile = [&](Chosen chosen) {
    Result<size_t> variant = variant_of(chosen);
    if (!variant.ok()) return variant;
    note(kernel, std::move(chosen), *variant, target.cpu);
    return variant;
  };
  const OtherSchedule other = number < kernel.others.size() ? kernel.others[number] : OtherSchedule{};
  if (!other.schedule) return compile(by_default_for_other(kernel, target));
  Result<size_t> variant = compile(
      with_other_runs(chosen(*other.schedule, other.origin), kernel, target, other.source, other.sizes));
  if (variant.ok() || options.locked || other.source == ScheduleSource::file) return variant;
  kernel.refusal = text("for ", target.cpu, ": ", to_text(variant.errors()));
  return compile(by_default_for_other(kernel, target));
}

Status compile_all(Kernel& kernel, const KernelTargets& targets, const CompileOptions& options) {
  kernel.device.clear();
  kernel.schedules.clear();
  Status status = compile_first(kernel, targets, options);
  if (!status.ok() || targets.first().kind != tensor::TargetKind::cuda) return status;
  for (size_t k = 0; k < targets.list.size(); ++k) {
    const tensor::Target& target = targets.list[k];
    Result<size_t> variant =
        k == 0 ? Result<size_t>(size_t{0}) : compile_other(kernel, k - 1, target, options);
    if (!variant.ok()) return variant.errors();
    if (targets.assembler == nullptr) continue;
    // What is for one architecture alone has no machine code elsewhere.
    Result<codegen::Cubin> cubin = targets.assembler->assemble(kernel.device[*variant].code.ptx, target.cpu);
    if (!cubin.ok()) return at(kernel, cubin.errors());
    kernel.device[*variant].cubins.push_back(std::move(*cubin));
  }
  return done();
}

Status compile_kernel(Kernel& kernel, const KernelTargets& targets, const CompileOptions& options) {
  Status status = compile_all(kernel, targets, options);
  const bool is_of_log = kernel.schedule && kernel.source != ScheduleSource::file;
  if (status.ok() || options.locked || !is_of_log || targets.list.size() == 1) return status;
  // What the log has for one GPU may want weights in an order that nothing for another one does.
  leave_to_rules(kernel, to_text(status.errors()));
  kernel.others.clear();
  return compile_all(kernel, targets, options);
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
  const std::vector<std::vector<graph::NodeId>> users = graph.users();
  for (const graph::KernelGroup& group : groups) {
    if (group.kind != graph::KernelGroup::Kind::kernel) {
      set.of_group.push_back(-1);
      continue;
    }
    auto prepared = [&](const tensor::Func& built) {
      tensor::Func f = tensor::merge_axes(built);
      tensor::mark_weights(f, weights_of(graph, group, f));
      tensor::mark_sizes(f, size_ranges(graph, f));
      return f;
    };
    tensor::Func f = prepared(build_kernel(graph, group));
    const std::string text_of_all = to_text(f);
    std::string key = text_of_all;
    std::vector<graph::OtherKernel> other_runs = build_other_kernels(graph, group);
    const std::optional<InPlace> in_place = in_place_of(graph, group, users);
    if (in_place)
      other_runs.push_back(
          {in_place->flag == tensor::Expr(1), build_in_place(graph, group, in_place->node), true});
    for (graph::OtherKernel& other : other_runs) {
      other.func = prepared(other.func);
      key += text("# where ", tensor::to_text(other.condition), "\n", to_text(other.func));
    }
    auto [entry, is_new] = known.try_emplace(std::move(key), static_cast<int>(set.kernels.size()));
    if (is_new) {
      Kernel kernel;
      kernel.name = name_of(f);
      kernel.symbol = text("mcc_kernel_", set.kernels.size(), "_", kernel.name);
      kernel.where = text("node '", join(origins(graph, group), "', '"), "'");
      kernel.work = tensor::work_of(f);
      kernel.func = std::move(f);
      kernel.other_runs = std::move(other_runs);
      kernel.in_place = in_place;
      kernel.text = text_of_all;
      kernel.id = codegen::sha256(kernel.text).substr(0, 16);
      set.kernels.push_back(std::move(kernel));
    }
    ++set.kernels[static_cast<size_t>(entry->second)].uses;
    set.of_group.push_back(entry->second);
  }
  return set;
}

std::optional<SharedMemory> shared_memory(const Kernel& kernel, const graph::KernelGroup& group) {
  if (!kernel.in_place) return std::nullopt;
  return SharedMemory{group.inputs[kernel.in_place->input],
                      group.outputs[kernel.in_place->output - group.inputs.size()]};
}

Status compile_kernels(KernelSet& set, const KernelTargets& targets, const CompileOptions& options) {
  std::vector<Diagnostics> errors(set.kernels.size());
  std::mutex progress_mutex;
  size_t finished = 0;
  run_jobs(set.kernels.size(), options.jobs, [&](size_t i) {
    Status status = compile_kernel(set.kernels[i], targets, options);
    if (!status.ok()) errors[i] = status.errors();
    std::lock_guard lock(progress_mutex);
    ++finished;
    if (options.progress) {
      options.progress("compiling kernels", static_cast<double>(finished) / static_cast<double>(set.kernels.size()));
    }
  });
  Diagnostics all;
  for (Diagnostics& e : errors) all.insert(all.end(), e.begin(), e.end());
  if (!all.empty()) return all;
  return done();
}

}  // namespace mcc::tools
