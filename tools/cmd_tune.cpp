#include <signal.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "nlohmann/json.hpp"
#include "tools/algorithms.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/options.h"
#include "tools/pick_model.h"
#include "tools/task_sizes.h"
#include "tools/tune_display.h"
#include "tools/tune_model.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

volatile sig_atomic_t interrupted = 0;

void on_interrupt(int) { interrupted = 1; }

// The first Ctrl-C ends the search between two rounds, the second ends the program.
void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Arguments {
  TuneModelOptions tune;
  InputArguments inputs;
  std::vector<std::string> sizes;
  std::string time, timeout;
  bool json = false, no_check = false, no_measure = false;
};

// "90", "60s", "10m", "1.5h", "0s"; seconds, or nothing.
std::optional<double> parse_duration(const std::string& s) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(s, &used);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  const std::string unit = s.substr(used);
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "m" || unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (factor == 0 || !(value >= 0) || value * factor > 1e8) return std::nullopt;
  return value * factor;
}

Result<double> duration(const char* option, const std::string& value) {
  std::optional<double> seconds = parse_duration(value);
  if (seconds) return *seconds;
  return Diagnostic{ErrorKind::usage, option, text(value, " is no duration, expected 90s, 10m or 1h"), ""};
}

Status check_names(const tuner::TuneOptions& options) {
  const std::vector<std::string_view> searches = tuner::search_names(), models = tuner::cost_model_names();
  if (std::find(searches.begin(), searches.end(), options.search) == searches.end()) {
    return Diagnostic{ErrorKind::usage, "--tuner",
                      text("there is no ", options.search, "; there are ", join(searches, ", ")), ""};
  }
  if (std::find(models.begin(), models.end(), options.cost_model) == models.end()) {
    return Diagnostic{ErrorKind::usage, "--cost-model",
                      text("there is no ", options.cost_model, "; there are ", join(models, ", ")), ""};
  }
  return done();
}

std::string_view end_text(tuner::TuneEnd end) {
  switch (end) {
    case tuner::TuneEnd::time:
      return "the time is up";
    case tuner::TuneEnd::trials:
      return "all trials are used";
    case tuner::TuneEnd::nothing_left:
      return "there is little left to gain";
    case tuner::TuneEnd::interrupted:
      return "interrupted";
  }
  return "";
}

// What is not as a user would hope for, and what happens then.
std::vector<std::string> shortcomings(const TuneModelReport& report) {
  std::vector<std::string> out;
  if (report.of_data > 0) out.push_back(of_data_text(report.of_data));
  if (report.tasks.empty()) {
    out.emplace_back("the model has no kernels to tune");
    return out;
  }
  if (!report.assembler_problem.empty()) out.push_back(report.assembler_problem);
  size_t untried = 0;
  for (size_t i = 0; i < report.tasks.size(); ++i) {
    const tuner::TaskReport& task = report.tune.tasks[i];
    if (std::isfinite(task.best_us)) continue;
    if (task.errors.empty()) {
      ++untried;
      continue;
    }
    std::vector<std::string> errors;
    for (const auto& [error, count] : task.errors) errors.push_back(text(count, " ", tuner::to_text(error)));
    out.push_back(text("task ", report.tasks[i].id, " (", report.tasks[i].name, "): no candidate has a time (", join(errors, ", "),
                       "); compile uses its default schedule"));
  }
  if (untried > 0) {
    out.push_back(text("nothing was measured for ", untried, " of ", report.tasks.size(), " tasks (", end_text(report.tune.end),
                       "); compile uses their default schedules"));
  }
  return out;
}

// The line that uses what was found.
void print_next(const Arguments& arguments, const std::string& target) {
  const CompileOptions& compile = arguments.tune.compile;
  const std::string sizes = input_options_text(arguments.inputs);
  const std::string precision = compile.precision == "fp32" ? "" : text(" --precision ", compile.precision);
  std::printf("\nmcc compile %s --target %s%s%s --tune-log %s -o model.so\n",
              printable(compile.model_path).c_str(), target.c_str(), printable(sizes).c_str(),
              precision.c_str(), printable(compile.tune_log).c_str());
}

void print_report(const TuneModelReport& report, const Arguments& arguments) {
  std::printf("%s", tune_table(report.tasks, report.tune.tasks, nullptr, report.tasks.size()).c_str());
  std::map<tuner::TrialError, int> errors;
  for (const tuner::TaskReport& task : report.tune.tasks) {
    for (const auto& [error, count] : task.errors)
      errors[error] += count;
  }
  std::string failed;
  for (const auto& [error, count] : errors)
    failed += text(failed.empty() ? "" : ", ", count, " ", tuner::to_text(error));
  std::printf("\n%lld trials in %.1f s (%s)%s%s\n", static_cast<long long>(report.tune.trials), report.tune.seconds,
              std::string(end_text(report.tune.end)).c_str(), failed.empty() ? "" : "; without a time: ", failed.c_str());
  if (report.tune.best_us > 0) std::printf("kernels: %s by default, %s tuned%s\n", time_text(report.tune.default_us).c_str(), time_text(report.tune.best_us).c_str(),
              report.tune.best_us > 0 ? text(" (", fixed(report.tune.default_us / report.tune.best_us, 2), "x)").c_str() : "");
  if (!report.choices.empty()) std::printf("algorithms, by measuring:\n");
  for (const tuner::LogChoice& choice : report.choices) std::printf("  %s\n", choice_text(choice).c_str());
  if (!report.sizes.empty())
    std::printf("all times are for %s\n", printable(sizes_text(report.sizes)).c_str());
  if (!report.latencies.empty()) {
    const ModelLatency &first = report.latencies.front(), &last = report.latencies.back();
    const std::string before = report.latencies.size() > 1 ? text(time_text(first.measured_us), " after ",
                                                                  fixed(first.seconds, 1), " s, ")
                                                           : "";
    std::printf("whole model, measured: %s%s with %d thread%s\n", before.c_str(),
                time_text(last.measured_us).c_str(), report.threads, report.threads == 1 ? "" : "s");
  }
  for (const std::string& sentence : shortcomings(report)) std::puts(printable(sentence).c_str());
  const bool is_there = !report.machine.empty() && report.compile_target == "cpu";
  if (is_there) std::printf("\non a machine as the one that measured:");
  print_next(arguments, report.compile_target);
}

Json report_json(const TuneModelReport& report, const CompileOptions& compile) {
  Json latencies = Json::array();
  for (const ModelLatency& l : report.latencies) {
    latencies.push_back({{"seconds", l.seconds},
                         {"estimate_us", l.estimate_us ? Json(*l.estimate_us) : Json()},
                         {"measured_us", l.measured_us}});
  }
  Json out = tune_json(report.tasks, report.tune);
  out["target"] = report.target;
  out["machine"] = report.machine.empty() ? Json() : Json(report.machine);
  out["threads"] = report.threads;
  out["sizes"] = report.sizes;
  out["kernels_of_data"] = report.of_data;
  out["log"] = compile.tune_log;
  out["known_trials"] = report.known_trials;
  out["end"] = end_text(report.tune.end);
  out["model"] = latencies;
  out["choices"] = choices_json(report.choices);
  out["notes"] = shortcomings(report);
  return out;
}

// Options that say how to measure, where nothing is.
Status check_no_measure(const Arguments& arguments) {
  const tuner::TuneOptions& tune = arguments.tune.tune;
  const char* option = !arguments.tune.worker.empty()                               ? "--worker"
                       : tune.trials > 0                                            ? "--trials"
                       : tune.search != "auto"                                      ? "--tuner"
                       : tune.cost_model != "auto" && tune.cost_model != "analyzer" ? "--cost-model"
                       : tune.measure.is_cold                                       ? "--cold"
                       : !arguments.timeout.empty()                                 ? "--timeout"
                                                                                    : nullptr;
  if (option == nullptr) return done();
  return Diagnostic{ErrorKind::usage, option,
                    "does not go with --no-measure: the analyser ranks, nothing is measured", ""};
}

int run_no_measure(const Arguments& arguments) {
  if (Status status = check_no_measure(arguments); !status.ok())
    return report_errors(status.errors(), arguments.json);
  Result<PickModelReport> report = pick_model(arguments.tune);
  if (!report.ok()) return report_errors(report.errors(), arguments.json);
  const CompileOptions& compile = arguments.tune.compile;
  if (arguments.json) {
    Json out = pick_json(*report);
    out["sizes"] = report->sizes;
    out["kernels_of_data"] = report->of_data;
    out["log"] = compile.tune_log;
    print_json(out);
    return 0;
  }
  std::printf("%s\n", pick_table(*report).c_str());
  size_t picked = 0, changed = 0;
  for (const PickedTask& task : report->picks) {
    picked += task.state == PickedTask::State::picked ? 1 : 0;
    changed += task.state == PickedTask::State::picked && !task.pick.is_default ? 1 : 0;
  }
  std::printf(
      "%zu of %zu tasks picked in %.1f s, %zu other than the default; times are estimates by analysis%s, "
      "nothing was measured\n",
      picked, report->tasks.size(), report->seconds, changed,
      report->assembler.empty() ? "" : text(" with figures of ", report->assembler).c_str());
  if (!report->sizes.empty())
    std::printf("all estimates are for %s\n", printable(sizes_text(report->sizes)).c_str());
  if (report->of_data > 0) std::puts(of_data_text(report->of_data).c_str());
  print_next(arguments, compile.target);
  return 0;
}

int run(Arguments& arguments) {
  TuneModelOptions& options = arguments.tune;
  if (Status status = parse_import_options(arguments.inputs, options.compile.import); !status.ok())
    return report_errors(status.errors(), arguments.json);
  options.compile.leave_open = true;
  for (const std::string& spec : arguments.sizes) {
    if (Status status = parse_task_size(spec, options.compile.task_sizes); !status.ok())
      return report_errors(status.errors(), arguments.json);
  }
  if (!arguments.time.empty()) {
    Result<double> seconds = duration("--time", arguments.time);
    if (!seconds.ok()) return report_errors(seconds.errors(), arguments.json);
    // No time at all is a budget, too; 0 stands for none.
    options.tune.seconds = std::max(*seconds, 1e-9);
  }
  if (!arguments.timeout.empty()) {
    Result<double> seconds = duration("--timeout", arguments.timeout);
    if (!seconds.ok()) return report_errors(seconds.errors(), arguments.json);
    options.tune.measure.timeout_seconds = *seconds;
  }
  if (Status status = check_names(options.tune); !status.ok())
    return report_errors(status.errors(), arguments.json);
  options.check_model = !arguments.no_check;
  options.is_interrupted = [] { return interrupted != 0; };
  catch_interrupts();
  if (arguments.no_measure) return run_no_measure(arguments);
  Result<TuneModelReport> report = tune_model(options);
  if (!report.ok()) return report_errors(report.errors(), arguments.json);
  if (arguments.json) {
    print_json(report_json(*report, options.compile));
  } else {
    print_report(*report, arguments);
  }
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  TuneModelOptions& options = arguments->tune;
  CLI::App* command = app.add_subcommand("tune", "Search for faster schedules of a model's kernels");
  command->add_option("model", options.compile.model_path, "The model, MODEL.onnx")->required();
  command->add_option("--tune-log", options.compile.tune_log, "The log to go on with or to begin, F.json")
      ->required();
  command->add_option("--target", options.compile.target, "As for compile")->capture_default_str();
  command->add_option("--precision", options.compile.precision, "As for compile")->capture_default_str();
  command->add_option("--time", arguments->time,
                      "How long to search: 60s, 10m, 1h; without it until little is left to gain");
  command->add_option("--timeout", arguments->timeout,
                      "How long one run of a candidate may take beyond 20 times the best one's: 1s, 500ms, ... (1s)");
  command->add_option("--trials", options.tune.trials, "How many candidates to measure at most")
      ->check(CLI::PositiveNumber);
  command->add_option("--tuner", options.tune.search, "The search: " + join(tuner::search_names(), ", "))
      ->capture_default_str();
  command
      ->add_option("--cost-model", options.tune.cost_model,
                   "What ranks candidates: " + join(tuner::cost_model_names(), ", "))
      ->capture_default_str();
  command->add_option("--tasks", options.tasks,
                      "Only tasks whose id, name or ONNX node matches this regular expression");
  command->add_option("--seed", options.tune.seed, "Of everything random")->capture_default_str();
  command->add_option("-j,--jobs", options.compile.jobs, "Kernels compiled at once; 0: as many as processors")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", options.compile.threads, "As for compile")->check(CLI::Range(0, 1024));
  command->add_flag("--cold", options.tune.measure.is_cold, "Empty the caches before each run of a kernel; on GPUs always");
  command->add_option("--worker", options.worker,
                      "Measure on another machine: a command that starts mcc there, as ssh gpu1 mcc");
  command->add_flag("--no-measure", arguments->no_measure,
                    "Measure nothing: the analyser picks, of GPUs with the assembler's figures; no machine "
                    "of the target is needed");
  command->add_flag("!--no-library", options.compile.libraries, "Of GPUs: do not measure cuBLASLt beside what is generated");
  command->add_flag("--no-check", arguments->no_check, "Do not measure the whole model now and then");
  add_input_options(*command, arguments->inputs);
  command
      ->add_option("--tune-dim", arguments->sizes,
                   "NAME=8: the size of a dimension that stays open to measure at")
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
