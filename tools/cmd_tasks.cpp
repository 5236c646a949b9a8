#include <CLI/CLI.hpp>
#include <algorithm>

#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/driver.h"
#include "tools/options.h"
#include "tools/task_sizes.h"

namespace mcc::tools {

namespace {

struct Arguments {
  CompileOptions compile;
  InputArguments inputs;
  std::vector<std::string> sizes;
  bool json = false;
};

// 1234567890 -> "1.23 G".
std::string scaled(double value) {
  const char* units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return text(fixed(value, unit == 0 ? 0 : 2), units[unit]);
}

// The first of some names; a task of many layers has hundreds.
std::string first_of(std::vector<std::string> names) {
  constexpr size_t kShown = 4;
  const size_t count = names.size();
  names.resize(std::min(count, kShown));
  return text(join(names, " "), count > kShown ? text(" and ", count - kShown, " more") : "");
}

void print_tasks(const ModelTasks& model) {
  const std::vector<tuner::Task>& tasks = model.tasks;
  std::printf("%-16s %5s %10s %10s  %-32s %s\n", "task", "runs", "FLOP", "bytes", "kernel", "ONNX nodes");
  for (const tuner::Task& task : tasks) {
    std::printf("%-16s %5lld %10s %10s  %-32s %s\n", task.id.c_str(), static_cast<long long>(task.weight),
                scaled(static_cast<double>(task.work.flops)).c_str(),
                scaled(static_cast<double>(task.work.bytes)).c_str(), printable(task.name).c_str(),
                printable(first_of(task.nodes)).c_str());
  }
  if (!model.sizes.empty())
    std::printf("FLOP and bytes of kernels for all sizes are those for %s\n",
                printable(sizes_text(model.sizes)).c_str());
  if (model.of_data > 0) std::puts(of_data_text(model.of_data).c_str());
}

nlohmann::ordered_json tasks_json(const ModelTasks& model) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const tuner::Task& task : model.tasks) {
    list.push_back({{"id", task.id},
                    {"name", task.name},
                    {"count", task.weight},
                    {"flops", task.work.flops},
                    {"bytes", task.work.bytes},
                    {"text", task.text},
                    {"sizes", tuner::measured_sizes(task)},
                    {"onnx_nodes", task.nodes}});
  }
  return {{"target", model.target.fingerprint()},
          {"threads", model.target.cores},
          {"sizes", model.sizes},
          {"kernels_of_data", model.of_data},
          {"tasks", list}};
}

int run(Arguments& arguments) {
  CompileOptions& options = arguments.compile;
  if (Status status = parse_import_options(arguments.inputs, options.import); !status.ok())
    return report_errors(status.errors(), arguments.json);
  options.leave_open = true;
  for (const std::string& spec : arguments.sizes) {
    if (Status status = parse_task_size(spec, options.task_sizes); !status.ok())
      return report_errors(status.errors(), arguments.json);
  }
  Result<ModelTasks> tasks = extract_tasks(options);
  if (!tasks.ok()) return report_errors(tasks.errors(), arguments.json);
  if (arguments.json)
    print_json(tasks_json(*tasks));
  else
    print_tasks(*tasks);
  return 0;
}

}  // namespace

void add_tasks(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tasks", "List the kernels of a model");
  command->add_option("model", arguments->compile.model_path, "The model, MODEL.onnx")->required();
  command->add_option("--target", arguments->compile.target, "As for compile")->capture_default_str();
  command->add_option("--precision", arguments->compile.precision, "As for compile")->capture_default_str();
  command->add_option("--threads", arguments->compile.threads, "As for compile")->check(CLI::Range(0, 1024));
  command->add_option("--tune-log", arguments->compile.tune_log, "As for compile: the algorithms that it has chosen");
  add_input_options(*command, arguments->inputs);
  command->add_option("--tune-dim", arguments->sizes, "As for tune")->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
