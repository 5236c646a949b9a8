#include "tools/driver.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "codegen/codegen.h"
#include "codegen/hash.h"
#include "codegen/linker.h"
#include "codegen/model_library.h"
#include "graph/elements.h"
#include "graph/ops/mcc_text.h"
#include "graph/ops/random.h"
#include "graph/passes/passes.h"
#include "graph/passes/plan_memory.h"
#include "nlohmann/json.hpp"
#include "tensor/sizes.h"
#include "tools/algorithms.h"
#include "tools/compile_page.h"
#include "tools/console.h"
#include "tools/cuda_tools.h"
#include "tools/evaluator.h"
#include "tools/kernels.h"
#include "tools/metadata.h"
#include "tools/model_header.h"
#include "tools/options.h"
#include "tools/plan.h"
#include "tools/plan_device.h"
#include "tools/report_page.h"
#include "tools/schedules.h"
#include "tools/task_sizes.h"
#include "tools/write_file.h"

namespace mcc::tools {
namespace {

// A model after the graph passes: what kernels are made from.
struct Prepared {
  std::vector<tensor::Target> targets;
  tensor::Target target;  // the first of them: what the graph and the schedules are made for
  graph::Graph graph;
  std::map<std::string, frontend::OutputLabels> labels;  // of outputs
  std::map<std::string, frontend::Container> input_containers, output_containers;
  std::vector<std::string> notes;  // of the import
  std::vector<graph::KernelGroup> groups;
  KernelSet kernels;
};

void report(const CompileOptions& options, const char* what, double fraction) {
  if (options.progress) options.progress(what, fraction);
}

Status check_emit(const CompileOptions& options) {
  for (const auto& [what, folder] : options.emit) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return Diagnostic{ErrorKind::usage, "--emit " + what, text("cannot make the folder ", folder), ""};
  }
  return done();
}

// Writes each state of the graph as NN_pass.txt. *written: whether it could.
std::function<void(const std::string&, const graph::Graph&)> graph_observer(const CompileOptions& options, Status* written) {
  auto it = options.emit.find("graph");
  if (it == options.emit.end()) return nullptr;
  return [folder = it->second, written, number = 0](const std::string& pass, const graph::Graph& g) mutable {
    std::string index = text(number++);
    if (written->ok()) *written = write_file(text(folder, "/", index.size() < 2 ? "0" : "", index, "_", pass, ".txt"), {to_text(g)});
  };
}

// `log`: of the options, for its choices; none where there is none.
Result<Prepared> prepare(const CompileOptions& options, const tuner::LogContents* log) {
  Result<std::vector<tensor::Target>> targets =
      options.targets.empty() ? codegen::make_targets(options.target) : options.targets;
  if (!targets.ok()) return targets.errors();
  if (options.threads > 0)
    for (tensor::Target& target : *targets) target.cores = options.threads;
  Result<graph::Evaluator> evaluate = jit_evaluator();
  if (!evaluate.ok()) return evaluate.errors();

  report(options, "reading the model", 0);
  frontend::ImportOptions import = options.import;
  if (options.leave_open) import.other_dims = frontend::kAnySize;
  import.has_strings = targets->front().kind != tensor::TargetKind::cuda;
  Result<frontend::ImportedModel> model = frontend::import_onnx(options.model_path, import, *evaluate);
  if (!model.ok()) return model.errors();

  Prepared out;
  out.targets = std::move(*targets);
  out.target = out.targets.front();
  out.graph = std::move(model->graph);
  out.labels = std::move(model->labels);
  out.input_containers = std::move(model->input_containers);
  out.output_containers = std::move(model->output_containers);
  out.notes = std::move(model->notes);
  graph::OptimizeOptions optimize_options;
  optimize_options.target = out.target;
  optimize_options.evaluate = *evaluate;
  optimize_options.level = options.opt_level;
  optimize_options.strict = options.strict;
  Result<ElementType> precision = parse_precision(options.precision, out.targets, options.opt_level);
  if (!precision.ok()) return precision.errors();
  optimize_options.precision = *precision;
  optimize_options.algorithms = options.algorithms;
  if (log) optimize_options.algorithms.names.merge(logged_algorithms(*log, out.targets));
  Status emitted = done();
  optimize_options.observer = graph_observer(options, &emitted);
  report(options, "optimising the graph", 0);
  Status optimized = graph::optimize(out.graph, optimize_options);
  if (!optimized.ok()) return optimized.errors();
  if (!emitted.ok()) return emitted.errors();

  out.groups = graph::fuse(out.graph, out.target.kind == tensor::TargetKind::cuda);
  Diagnostics unsupported;
  for (const graph::KernelGroup& group : out.groups) {
    const graph::Node& node = out.graph.node(group.nodes[0]);
    const std::string where = text(node.name, " (", node.op->name, ")");
    if (group.kind != graph::KernelGroup::Kind::host || graph::is_draw(*node.op)) continue;
    if (!graph::is_text_op(*node.op))
      unsupported.push_back({ErrorKind::unsupported, where, "operator has no kernel and its inputs are not known at compile time", ""});
    else if (out.target.kind == tensor::TargetKind::cuda)
      unsupported.push_back({ErrorKind::unsupported, where, "strings are worked on by CPUs only", ""});
  }
  if (!unsupported.empty()) return unsupported;
  out.kernels = collect_kernels(out.graph, out.groups);
  return out;
}

// Sizes of each group's workspaces, as its kernel asks for them.
std::vector<std::vector<tensor::Expr>> workspace_sizes(const Prepared& p) {
  std::vector<std::vector<tensor::Expr>> sizes(p.groups.size());
  for (size_t i = 0; i < p.groups.size(); ++i) {
    int index = p.kernels.of_group[i];
    if (index < 0) continue;
    for (const tensor::Expr& bytes : p.kernels.kernels[static_cast<size_t>(index)].memory.workspaces)
      sizes[i].push_back(graph::planned_size(p.graph, bytes));
  }
  return sizes;
}

std::vector<std::string> required_features(const tensor::Target& target) {
  std::vector<std::string> features;
  std::string_view list = target.features;
  while (!list.empty()) {
    size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    if (item.size() > 1 && item[0] == '+' && codegen::is_cpu_feature(item.substr(1))) {
      features.emplace_back(item.substr(1));
    }
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return features;
}

// A shared library, or by the output's name an object file or static library with a header.
Status write_output(codegen::ModelLibrary& library, const graph::Graph& graph, const CompileOptions& options) {
  const std::string& output = options.output_path;
  codegen::LinkFunction link = codegen::link_shared;
  const std::string name = model_identifier(output);
  if (output.ends_with(".o") || output.ends_with(".a")) {
    library.exported_symbol = model_symbol(name);
    link = [&](const std::vector<std::string>& objects, const std::string& path, const std::string&) {
      return output.ends_with(".o") ? codegen::link_object(objects, path, library.exported_symbol)
                                    : codegen::link_archive(objects, path, library.exported_symbol, name + ".o");
    };
  }
  Status written = codegen::write_model_library(library, output, link);
  if (!written.ok() || options.header_path.empty()) return written;
  return write_file(options.header_path, {model_header(name, graph, library.plan.metadata)});
}

// "cpu (znver4)", "cuda:sm_80,sm_90 (sm_80, sm_90)"
std::string target_text(const CompileOptions& options, const Prepared& p) {
  std::vector<std::string> names;
  for (const tensor::Target& target : p.targets) names.push_back(target.cpu);
  return text(options.target, " (", join(names, ", "), ")");
}

// Of a run; those of a loop whose iterations the shapes decide as one each.
int64_t count_launches(const codegen::DeviceCode& code) {
  auto count = static_cast<int64_t>(code.launches.size());
  for (const codegen::DeviceLaunch& launch : code.launches) {
    int64_t turns = 1;
    tensor::as_int(launch.loop_turns, &turns);
    if (launch.loop_launches > 0) count += (turns - 1) * static_cast<int64_t>(launch.loop_launches);
  }
  return count;
}

void report_device(const KernelSet& set, CompileReport& report) {
  for (const Kernel& kernel : set.kernels) {
    for (const DeviceVariant& variant : kernel.device) {
      report.launches += count_launches(variant.code);
      for (const codegen::DeviceLaunch& launch : variant.code.launches)
        report.library_calls += launch.product ? 1 : 0;
      for (const codegen::Cubin& cubin : variant.cubins) {
        for (const codegen::EntryFigures& f : cubin.entries) {
          report.most_registers = std::max(report.most_registers, int64_t{f.registers});
          report.spilled_bytes += f.spill_stores + f.spill_loads;
        }
      }
    }
  }
}

// Machine code of another architecture stood in for these, for the figures.
std::vector<std::string> without_machine_code(const Prepared& p) {
  std::set<std::string> known;
  for (const Kernel& kernel : p.kernels.kernels)
    for (const DeviceVariant& variant : kernel.device)
      for (const codegen::Cubin& cubin : variant.cubins)
        if (!cubin.bytes.empty()) known.insert(cubin.arch);
  std::vector<std::string> out;
  for (const tensor::Target& target : p.targets)
    if (!known.contains(target.cpu)) out.push_back(target.cpu);
  return out;
}

bool calls_library(const KernelSet& set) {
  CompileReport report;
  report_device(set, report);
  return report.library_calls > 0;
}

// Of a plain schedule the user has to know; of a rule's that took another's place, who asks.
void report_refused(const Kernel& kernel, CompileReport& report) {
  for (const KernelSchedule& schedule : kernel.schedules) {
    if (!schedule.refused.empty()) report.refused.push_back({kernel.id, kernel.name, schedule.archs, schedule.refused});
  }
  const std::string plain = plain_text(kernel.schedules);
  if (plain.empty()) return;
  ++report.plain;
  report.notes.push_back(text("task ", kernel.id, " (", kernel.name, ") ", plain));
}

void report_schedules(const KernelSet& set, const ScheduleReport& schedules, CompileReport& report) {
  report.log_hash = schedules.log_hash;
  report.log_lines_skipped = schedules.lines_skipped;
  report.notes = schedules.notes;
  for (const Kernel& kernel : set.kernels) {
    switch (kernel.source) {
      case ScheduleSource::rules: ++report.by_default; break;
      case ScheduleSource::log_exact: ++report.exact; break;
      case ScheduleSource::log_picked: ++report.picked; break;
      case ScheduleSource::log_nearest: ++report.nearest; break;
      case ScheduleSource::file: ++report.from_file; break;
    }
    report_refused(kernel, report);
    if (kernel.refusal.empty()) continue;
    report.notes.push_back(text("task ", kernel.id, " (", kernel.name,
                                "): its schedule cannot be compiled, the default is used: ", kernel.refusal));
  }
}

// For each target of a list; the report is that of the first, with what else there is to say.
Result<ScheduleReport> choose_all_schedules(Prepared& p, const CompileOptions& options, const std::optional<TuningLog>& log) {
  const KernelSet plain = p.kernels;
  Result<ScheduleReport> report = choose_schedules(p.kernels, p.target, options, log);
  if (!report.ok()) return report.errors();
  for (size_t k = 1; k < p.targets.size(); ++k) {
    KernelSet set = plain;
    Result<ScheduleReport> other = choose_schedules(set, p.targets[k], options, log);
    if (!other.ok()) return other.errors();
    for (std::string& note : other->notes) {
      if (std::find(report->notes.begin(), report->notes.end(), note) == report->notes.end())
        report->notes.push_back(std::move(note));
    }
    for (size_t i = 0; i < set.kernels.size(); ++i)
      p.kernels.kernels[i].others.push_back({std::move(set.kernels[i].schedule), set.kernels[i].source,
                                             set.kernels[i].origin, set.kernels[i].sizes});
  }
  return report;
}

// Options that would give the dimensions that stay open values. None where lengths of sequences have to be given first.
std::vector<std::string> size_options(const frontend::ModelSummary& model,
                                      const frontend::ImportOptions& import) {
  const bool lacks_length =
      std::any_of(model.inputs.begin(), model.inputs.end(), [&](const frontend::DeclaredTensor& input) {
        return input.is_sequence && !import.sequence_lengths.contains(input.name) &&
               !import.left_out.contains(input.name);
      });
  return lacks_length ? std::vector<std::string>() : frontend::options_for_other_dims(model, import);
}

// Options that would fix inputs of few numbers, which may be sizes or scales.
std::vector<std::string> value_options(const frontend::ModelSummary& model,
                                       const frontend::ImportOptions& import) {
  std::vector<std::string> words;
  for (const frontend::DeclaredTensor& input : model.inputs) {
    const bool is_tensor =
        !input.element.empty() && input.element != "string" && !input.is_sequence && input.has_shape;
    const int64_t most = input.element.starts_with('f') ? 1 : 4;
    const bool is_small =
        input.shape.empty() || (input.shape.size() == 1 && input.shape[0] >= 1 && input.shape[0] <= most);
    const bool is_given = import.numbers.contains(input.name) || import.left_out.contains(input.name);
    if (is_tensor && is_small && !is_given) words.push_back(text("--input-value ", input.name, "=1"));
  }
  return words;
}

// As operators say that they cannot do without the value of an operand.
bool lacks_value(const Diagnostic& error) {
  return error.message.find("known at compile time") != std::string::npos;
}

// What cannot be compiled for all sizes, or all values of an input, may be possible for one.
Diagnostics with_option_hint(Diagnostics errors, const CompileOptions& options) {
  if (errors.empty() || exit_code_of(errors) != exit_code(ErrorKind::unsupported)) return errors;
  const Result<frontend::ModelSummary> model = frontend::summarize_onnx(options.model_path);
  if (!model.ok()) return errors;
  std::vector<std::string> words, kinds;
  const auto add = [&](const char* kind, const std::vector<std::string>& more) {
    if (!more.empty()) kinds.emplace_back(kind);
    words.insert(words.end(), more.begin(), more.end());
  };
  if (options.leave_open) add("sizes", size_options(*model, options.import));
  if (std::any_of(errors.begin(), errors.end(), lacks_value))
    add("values", value_options(*model, options.import));
  if (words.empty()) return errors;
  std::string& hint = errors.back().hint;
  hint = text(hint, hint.empty() ? "" : "; ", "it may be possible for given ", join(kinds, " or "),
              ", for example ", join(words, " "));
  return errors;
}

void report_open(const graph::Graph& graph, const CompileOptions& options, CompileReport& report) {
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    if (graph.dim_sources[i].kind != graph::DimSource::Kind::input) continue;
    report.open_dimensions.push_back({graph.dims[i].name(), graph.dim_ranges[i]});
    const graph::DimRange& range = graph.dim_ranges[i];
    const std::string& name = graph.dims[i].name();
    const bool is_given = options.import.dim_ranges.contains(name) || !options.import.input_ranges.empty();
    if (!range.has_bound())
      names.push_back(name);
    else if (!is_given)  // found to be possible for these sizes alone
      names.push_back(text(name, " (", range.min, " to ", range.max, ")"));
  }
  if (names.empty()) return;
  const Result<frontend::ModelSummary> model = frontend::summarize_onnx(options.model_path);
  const std::vector<std::string> sizes =
      model.ok() ? size_options(*model, options.import) : std::vector<std::string>();
  if (sizes.empty()) return;
  report.notes.push_back(text(names.size() == 1 ? "dimension " : "dimensions ", join(names, ", "), names.size() == 1 ? " stays" : " stay",
                              " open (any size); ", join(sizes, " "), " makes a faster library for one size"));
}

Result<CompileReport> compile(const CompileOptions& options) {
  auto start = std::chrono::steady_clock::now();
  Status emit = check_emit(options);
  if (!emit.ok()) return emit.errors();
  Result<std::optional<TuningLog>> log = read_tuning_log(options);
  if (!log.ok()) return log.errors();
  Result<Prepared> prepared = prepare(options, *log ? &(*log)->index.contents() : nullptr);
  if (!prepared.ok()) return prepared.errors();
  Prepared& p = *prepared;
  KernelTargets targets{p.targets};
  std::unique_ptr<codegen::Assembler> assembler;
  if (p.target.kind == tensor::TargetKind::cuda && options.cubins) assembler = find_isolated_assembler();
  targets.assembler = assembler.get();

  Result<ScheduleReport> schedules = choose_all_schedules(p, options, *log);
  if (!schedules.ok()) return schedules.errors();
  Status compiled = compile_kernels(p.kernels, targets, options);
  if (!compiled.ok()) return compiled.errors();
  order_weights(p.graph, p.groups, p.kernels);
  graph::MemoryPlan memory = graph::plan_memory(p.graph, p.groups, workspace_sizes(p), p.target.cores);

  report(options, "writing the library", 1);
  Result<std::string> hash = codegen::sha256_of_file(options.model_path);
  if (!hash.ok()) return hash.errors();
  codegen::ModelLibrary library;
  library.symbol_prefix = "mcc_" + hash->substr(0, 16);
  library.plan.features = required_features(p.target);
  library.plan.metadata["mcc.version"] = MCC_VERSION;
  library.plan.metadata["model.hash"] = "sha256:" + *hash;
  library.plan.metadata["model.name"] = std::filesystem::path(options.model_path).stem().string();
  library.plan.metadata["target"] = target_text(options, p);
  if (!schedules->log_hash.empty()) library.plan.metadata["log.hash"] = schedules->log_hash;
  if (calls_library(p.kernels)) library.plan.metadata["needs"] = "libcublasLt.so.13, .12 or .11";
  describe_labels(p.labels, library.plan.metadata);
  describe_containers("input", p.input_containers, library.plan.metadata);
  describe_containers("output", p.output_containers, library.plan.metadata);
  describe_strings(p.graph, library.plan.metadata);
  describe_memory(p.graph, p.groups, p.kernels, library.plan.metadata);
  for (const auto& [name, numbers] : options.import.numbers)
    library.plan.metadata["input." + name + ".value"] = join(numbers, ",");
  fill_library(library, p.graph, p.groups, p.kernels, memory);
  if (p.target.kind == tensor::TargetKind::cuda) library.device = device_code(p.kernels, library.plan);
  Status written = write_output(library, p.graph, options);
  if (!written.ok()) return written.errors();

  CompileReport result;
  result.kernels = static_cast<int64_t>(p.kernels.kernels.size());
  result.nodes = static_cast<int64_t>(library.plan.graphs[0].nodes.size());
  result.weight_bytes = static_cast<int64_t>(library.weights_size);
  result.arena_bytes = memory.arena_bytes;
  struct stat info {};
  if (stat(options.output_path.c_str(), &info) == 0) result.file_bytes = info.st_size;
  result.target = target_text(options, p);
  report_schedules(p.kernels, *schedules, result);
  result.notes.insert(result.notes.begin(), p.notes.begin(), p.notes.end());
  report_open(p.graph, options, result);
  if (assembler) result.assembler = assembler->name();
  report_device(p.kernels, result);
  if (assembler) result.without_machine_code = without_machine_code(p);
  if (!options.report_path.empty()) {
    const CompiledModel model{p.graph, p.groups, p.kernels, memory, p.target, options, result};
    Status page = write_page(Page::compile, compile_page(model), options.report_path);
    if (!page.ok()) return page.errors();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace

Result<CompileReport> compile_model(const CompileOptions& options) {
  Result<CompileReport> report = compile(options);
  return report.ok() ? std::move(report) : with_option_hint(report.errors(), options);
}

CompileOptions with_log_if_there(CompileOptions options) {
  std::error_code error;
  if (!std::filesystem::exists(options.tune_log, error)) options.tune_log.clear();
  return options;
}

Result<ModelTasks> extract_tasks(const CompileOptions& options) {
  tuner::LogContents log;
  if (!options.tune_log.empty()) {
    tuner::LogReadOptions read;
    read.wants = [](const tuner::LogEntry&) { return false; };
    Result<tuner::LogContents> contents = tuner::read_log(options.tune_log, read);
    if (!contents.ok()) return contents.errors();
    log = std::move(*contents);
  }
  Result<Prepared> prepared = prepare(options, &log);
  if (!prepared.ok()) return prepared.errors();
  Result<TaskSizes> sizes = choose_task_sizes(prepared->graph, options.task_sizes);
  if (!sizes.ok()) return sizes.errors();
  ModelTasks out;
  out.target = prepared->target;
  out.targets = prepared->targets;
  out.sizes = sizes->by_name;
  std::vector<int> task_of;
  for (Kernel& kernel : prepared->kernels.kernels) {
    const std::optional<std::vector<std::vector<int64_t>>> samples = sizes->samples_of(kernel.func);
    // Kernels of sizes that data decides have the schedules of analysis.
    task_of.push_back(samples ? static_cast<int>(out.tasks.size()) : -1);
    if (!samples) {
      ++out.of_data;
      continue;
    }
    tuner::Task task;
    task.id = kernel.id;
    task.name = kernel.name;
    task.text = kernel.text;
    task.func = kernel.func;
    if (!task.func.dims.empty()) tensor::mark_samples(task.func, *samples);
    task.work = task.func.dims.empty() ? kernel.work : tensor::work_of(tensor::at_first_sample(task.func));
    task.weight = kernel.uses;
    out.tasks.push_back(std::move(task));
  }
  out.runs.resize(out.tasks.size());
  for (size_t i = 0; i < prepared->groups.size(); ++i) {
    const int kernel = prepared->kernels.of_group[i];
    const int index = kernel < 0 ? -1 : task_of[static_cast<size_t>(kernel)];
    if (index < 0) continue;
    std::vector<std::string> names = origins(prepared->graph, prepared->groups[i]);
    std::vector<std::string>& of_all = out.tasks[static_cast<size_t>(index)].nodes;
    of_all.insert(of_all.end(), names.begin(), names.end());
    out.runs[static_cast<size_t>(index)].push_back(std::move(names));
  }
  return out;
}

}  // namespace mcc::tools
