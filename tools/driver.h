// From an ONNX file to a model library: the one function that composes the layers.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "frontend/import.h"
#include "graph/passes/algorithm_choices.h"
#include "tensor/target.h"
#include "tuner/refused_rule.h"
#include "tuner/trial.h"

namespace mcc::tools {

struct CompileOptions {
  std::string model_path;
  std::string output_path;  // *.so, or *.o and *.a to be linked into a program
  std::string header_path;  // of a model that is linked in; empty: none
  std::string report_path;  // of a page with plots; empty: none
  std::string target = "cpu";  // or a list of GPUs, for a library with code for each
  // What `target` stands for, where that is another machine's matter; empty: what it is here.
  std::vector<tensor::Target> targets;
  bool cubins = true;  // machine code for GPUs where NVIDIA's assembler is found; PTX is always there
  bool libraries = true;  // schedules of the log that call a GPU maker's library are taken
  int threads = 0;  // that the library is meant to run with, what schedules go by; 0: the target's cores
  frontend::ImportOptions import;
  bool leave_open = false;  // dimensions without a value stay open, without a bound
  int opt_level = 2;
  bool strict = false;
  std::string precision = "fp32";  // or tf32, fp16, bf16: of what products and convolutions multiply
  bool fast_math = false;
  std::map<std::string, std::string> emit;  // "graph", "tensor", "llvm", "asm", "ptx" -> folder
  std::map<std::string, int64_t>
      task_sizes;  // of dimensions that stay open: what tasks are listed and measured at; others: typical sizes
  std::string tune_log;       // empty: none
  graph::AlgorithmChoices algorithms;  // before those of the log
  bool locked = false;        // every kernel must have a schedule in the log
  std::string schedule_file;  // a person's schedules; empty: none
  int jobs = 0;  // kernels compiled at once; 0: all processors
  // Called now and then with what is being done and how far it is (0..1).
  std::function<void(const std::string& what, double fraction)> progress;
};

// Rules that were refused a kernel's default schedule.
struct RefusedOfKernel {
  std::string task, name;
  std::vector<std::string> archs;  // of a list of GPUs: those whose schedule it is about
  std::vector<tuner::RefusedRule> rules;
};

struct CompileReport {
  double seconds = 0;
  int64_t kernels = 0;  // compiled; the plan may call one several times
  int64_t nodes = 0;    // of the plan
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;  // with dimensions without a bound: about what it takes at usual sizes
  struct OpenDimension {
    std::string name;
    graph::DimRange sizes;
  };
  std::vector<OpenDimension> open_dimensions;
  int64_t file_bytes = 0;
  std::string target;  // as resolved
  // Of GPUs: the assembler that made machine code and figures (empty: none), and the kernels' worst figures.
  std::string assembler;
  int64_t launches = 0, most_registers = 0, spilled_bytes = 0;
  std::vector<std::string> without_machine_code;  // architectures that the assembler no longer knows: figures are those of another
  int64_t library_calls = 0;  // among the launches
  // Kernels by where their schedules are from.
  int64_t exact = 0, picked = 0, nearest = 0, by_default = 0, from_file = 0;  // picked: exact, but never measured
  int64_t plain = 0;  // of those by default: a rule was refused, and they have what is legal always
  std::vector<RefusedOfKernel> refused;
  std::string log_hash;            // empty without a log
  int64_t log_lines_skipped = 0;
  std::vector<std::string> notes;  // what the user should know: lines left out, schedules refused
};

Result<CompileReport> compile_model(const CompileOptions& options);

// The distinct kernels of a model for a target, in the order in which the model first runs them: what `mcc tasks` lists
// and `mcc tune` tunes. Of the log only which algorithms it has chosen counts. With open dimensions tasks are functions for all sizes, with
// samples (tensor/sizes.h) of those they are measured at. Errors: a size that the model does not take.
struct ModelTasks {
  tensor::Target target;                // the first of the list
  std::vector<tensor::Target> targets;  // all of it: the tasks are the same for each
  std::vector<tuner::Task> tasks;
  std::map<std::string, int64_t> sizes;  // of open dimensions, what tasks are measured at
  int64_t of_data = 0;                   // kernels that are no tasks, as data decides sizes of theirs
  std::vector<std::vector<std::vector<std::string>>> runs;  // of each task, each time that the model runs it: for which ONNX nodes
};
Result<ModelTasks> extract_tasks(const CompileOptions& options);
// The options for tasks that a log is only to be made for: without it where there is none yet.
CompileOptions with_log_if_there(CompileOptions options);

}  // namespace mcc::tools
