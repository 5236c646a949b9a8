// The subcommands of `mcc log` that need a model: its kernels are what is measured, or what seeds are made for. Functions
// out of a log are never run: tasks are matched by their texts.
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <ctime>
#include <set>

#include "tools/cmd_log.h"
#include "tools/console.h"
#include "tools/driver.h"
#include "tools/kernels.h"
#include "tools/measure/worker_measurer.h"
#include "tools/options.h"
#include "tools/task_sizes.h"
#include "tuner/import_records.h"
#include "tuner/replay.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;
using tuner::LogEntry;

// Times that differ by less are equal: what one machine differs by from day to day.
constexpr double kTolerance = 0.1;

struct Arguments {
  CompileOptions compile;
  InputArguments inputs;
  std::vector<std::string> records;
  std::string log, worker;
  int keep = 1, limit = 3;
  bool append = false, json = false;
};

Result<ModelTasks> tasks_of(Arguments& arguments) {
  Status status = parse_import_options(arguments.inputs, arguments.compile.import);
  if (!status.ok()) return status.errors();
  arguments.compile.tune_log = arguments.log;
  arguments.compile.leave_open = true;
  return extract_tasks(with_log_if_there(arguments.compile));
}

// gpu: its name, if one measures.
tuner::Device device_of(const tensor::Target& target, const std::string& gpu = "") {
  return {target.fingerprint(), gpu.empty() ? text(target.cpu, ", ", target.cores, " cores") : gpu};
}

// ---- verify ----

// What measuring an entry again says of it.
enum class Verdict : uint8_t { holds, faster, slower, unfit, failed, elsewhere };

struct Row {
  const tuner::Task* task = nullptr;
  LogEntry before;
  tuner::Measurement now;
  Verdict verdict = Verdict::holds;
};

std::string_view to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::unfit:
      return "unfit";
    case Verdict::failed:
      return "failed";
    case Verdict::elsewhere:
      return "elsewhere";
  }
  MCC_UNREACHABLE("unknown verdict");
}

double ratio_of(const Row& row) { return row.now.best_us() / row.before.trial.measurement.best_us(); }

Verdict verdict_of(const Row& row) {
  switch (row.now.error) {
    case tuner::TrialError::none:
      break;
    case tuner::TrialError::refused:
    case tuner::TrialError::rejected:
    case tuner::TrialError::build:
      return Verdict::unfit;
    case tuner::TrialError::crash:
    case tuner::TrialError::timeout:
    case tuner::TrialError::wrong:
      return Verdict::failed;
  }
  const double ratio = ratio_of(row);
  const double tolerance = std::max({kTolerance, 3 * row.now.noise, 3 * row.before.trial.measurement.noise});
  // A seed has no time of its own.
  if (!std::isfinite(ratio) || ratio == 0) return Verdict::holds;
  return ratio > 1 + tolerance         ? Verdict::slower
         : ratio < 1 / (1 + tolerance) ? Verdict::faster
                                       : Verdict::holds;
}

// One entry, measured alone: in a race it might be stopped early.
Result<Row> measure_entry(const tuner::Task& task, const tensor::Target& target, const LogEntry& entry,
                          tuner::Measurer& measurer) {
  Row row{&task, entry, {}};
  // A GPU's schedule may be legal on a CPU, and the other way round; its time says nothing of the other.
  const bool is_of_gpu = entry.device.target.starts_with("nvptx");
  if (is_of_gpu != (target.kind == tensor::TargetKind::cuda)) {
    row.verdict = Verdict::elsewhere;
    row.now.error = tuner::TrialError::rejected;
    row.now.message = text("is for ", entry.device.target, "; what is measured here is for ", target.fingerprint(), " (--target)");
    return row;
  }
  if (const std::vector<int64_t> sizes = tuner::measured_sizes(task); entry.sizes != sizes) {
    row.verdict = Verdict::elsewhere;
    row.now.error = tuner::TrialError::rejected;
    row.now.message = text("was measured at sizes ", join(entry.sizes, " x "), "; what is measured here is at ", join(sizes, " x "));
    return row;
  }
  if (entry.threads > target.cores) {
    row.verdict = Verdict::elsewhere;
    row.now.error = tuner::TrialError::rejected;
    row.now.message = text("is for ", entry.threads, " threads; this machine has ", target.cores);
    return row;
  }
  Result<tensor::Schedule> schedule = tuner::replay(task.func, entry.trial.candidate.trace);
  if (schedule.ok()) {
    tuner::MeasureOptions options;
    options.threads = entry.threads;
    options.is_fresh = true;
    options.is_cold = target.kind == tensor::TargetKind::cuda;  // as mcc tune measures there
    Result<std::vector<tuner::Measurement>> got =
        measurer.measure(task, std::span(&entry.trial.candidate, 1), options);
    if (!got.ok()) return got.errors();
    row.now = std::move(got->at(0));
  } else {
    row.now.error = tuner::TrialError::refused;
    row.now.message = schedule.errors()[0].message;
  }
  row.verdict = verdict_of(row);
  return row;
}

void print_rows(const std::vector<Row>& rows) {
  std::printf("%-16s %6s %7s %10s %10s %6s  %-9s %s\n", "task", "line", "threads", "log us", "here us",
              "ratio", "verdict", "kernel");
  for (const Row& row : rows) {
    const double before = row.before.trial.measurement.best_us();
    std::printf("%-16s %6lld %7d %10s %10s %6s  %-9s %s\n", row.task->id.c_str(),
                static_cast<long long>(row.before.line), row.before.threads,
                std::isfinite(before) ? fixed(before, 2).c_str() : "-",
                row.now.ok() ? fixed(row.now.best_us(), 2).c_str() : "-",
                row.now.ok() && std::isfinite(before) ? fixed(ratio_of(row), 2).c_str() : "-",
                std::string(to_text(row.verdict)).c_str(), printable(row.task->name).c_str());
    if (!row.now.ok())
      std::printf("  %s: %s\n", std::string(to_text(row.now.error)).c_str(),
                  printable(row.now.message).c_str());
  }
}

// "2 hold, 1 is slower than the log says"
std::string summary_of(const std::vector<Row>& rows) {
  std::array<int64_t, 6> counts{};
  for (const Row& row : rows)
    ++counts[static_cast<size_t>(row.verdict)];
  constexpr std::string_view kWords[] = {"hold",
                                         "faster than the log says",
                                         "slower than the log says",
                                         "no longer apply",
                                         "with a wrong result, a crash or no end",
                                         "for another kind of machine, for more threads than there are, or at other sizes"};
  std::vector<std::string> parts;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) parts.push_back(text(counts[i], " ", kWords[i]));
  }
  return parts.empty() ? "nothing was measured" : join(parts, ", ");
}

Json rows_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    const double before = row.before.trial.measurement.best_us();
    list.push_back({{"task", row.task->id},
                    {"name", row.task->name},
                    {"line", row.before.line},
                    {"target", row.before.device.target},
                    {"threads", row.before.threads},
                    {"source", row.before.source},
                    {"log_us", std::isfinite(before) ? Json(before) : Json()},
                    {"here_us", row.now.ok() ? Json(row.now.best_us()) : Json()},
                    {"ratio", row.now.ok() && std::isfinite(before) ? Json(ratio_of(row)) : Json()},
                    {"verdict", to_text(row.verdict)},
                    {"checked", row.now.is_checked},
                    {"error", to_text(row.now.error)},
                    {"message", row.now.message}});
  }
  return list;
}

Status append_rows(const std::string& path, const tuner::Device& device, const std::vector<Row>& rows) {
  Result<tuner::LogWriter> log = tuner::LogWriter::open(path);
  if (!log.ok()) return log.errors();
  for (const Row& row : rows) {
    if (row.verdict == Verdict::elsewhere) continue;
    LogEntry entry = row.before;
    entry.task = row.task->id;
    entry.device = device;
    entry.trial.measurement = row.now;
    entry.source = row.before.source == "default" ? "default" : "verify";
    entry.time = static_cast<double>(std::time(nullptr));
    Status status = log->append(tuner::log_task(*row.task), std::span(&entry, 1));
    if (!status.ok()) return status;
  }
  return done();
}

// Sizes of open dimensions, by their names, that the log's times are of; the others may have any.
std::map<std::string, int64_t> sizes_in(const tuner::LogContents& log, const ModelTasks& model) {
  std::map<std::string, int64_t> sizes;
  std::map<std::string, const tuner::Task*> of_text;
  for (const tuner::Task& task : model.tasks)
    of_text[task.text] = &task;
  for (const LogEntry& entry : log.entries) {
    const auto task = of_text.find(log.find_task(entry.task)->text);
    if (task == of_text.end() || !log.has_last_sizes(entry)) continue;
    const std::vector<tensor::Var>& dims = task->second->func.dims;
    for (size_t i = 0; i < dims.size() && entry.sizes.size() == dims.size(); ++i)
      sizes.try_emplace(dims[i].name(), entry.sizes[i]);
  }
  return sizes;
}

int run_verify(Arguments& arguments) {
  tuner::LogReadOptions read;
  read.keep = arguments.keep;
  Result<tuner::LogContents> log = tuner::read_log(arguments.log, read);
  if (!log.ok()) return report_errors(log.errors(), arguments.json);
  say_complaints(arguments.log, *log);
  const bool is_here = arguments.worker.empty();
  Result<Machine> machine = is_here ? describe_machine(arguments.compile.target, /*looks_for_library=*/false)
                                    : ask_machine(worker_command(arguments.worker), arguments.compile.target);
  if (!machine.ok()) return report_errors(machine.errors(), arguments.json);
  if (!is_here) arguments.compile.targets = machine->targets;
  Result<ModelTasks> tasks = tasks_of(arguments);
  if (!tasks.ok()) return report_errors(tasks.errors(), arguments.json);
  arguments.compile.task_sizes = sizes_in(*log, *tasks);
  if (!arguments.compile.task_sizes.empty()) tasks = tasks_of(arguments);
  if (!tasks.ok()) {
    return report_errors({{ErrorKind::tuning_log, arguments.log,
                           text("its sizes of open dimensions are none of the model: ", tasks.errors()[0].message), ""}},
                         arguments.json);
  }
  tasks->target = tasks->targets[machine->measured];
  std::map<std::string, std::vector<const LogEntry*>> of_text;
  for (const LogEntry& entry : log->entries)
    of_text[log->find_task(entry.task)->text].push_back(&entry);
  WorkerOptions options;
  if (!is_here) options.command = worker_command(arguments.worker);
  options.target = tasks->target.name;
  options.emit = emit_options(arguments.compile);
  WorkerMeasurer measurer(options);
  std::vector<Row> rows;
  int64_t absent = 0;
  std::set<std::string> texts;
  {
    Progress progress("verify");
    for (size_t i = 0; i < tasks->tasks.size(); ++i) {
      progress.update(i, tasks->tasks.size());
      const tuner::Task& task = tasks->tasks[i];
      texts.insert(task.text);
      auto entries = of_text.find(task.text);
      if (entries == of_text.end()) {
        ++absent;
        continue;
      }
      for (const LogEntry* entry : entries->second) {
        Result<Row> row = measure_entry(task, tasks->target, *entry, measurer);
        if (!row.ok()) return report_errors(row.errors(), arguments.json);
        rows.push_back(std::move(*row));
      }
    }
  }
  if (arguments.append) {
    Status status = append_rows(arguments.log, device_of(tasks->target, machine->gpu), rows);
    if (!status.ok()) return report_errors(status.errors(), arguments.json);
  }
  Json unknown = Json::array();
  for (const tuner::LogTask& task : log->tasks) {
    if (!texts.contains(task.text)) unknown.push_back(task.id);
  }
  const bool is_broken =
      std::any_of(rows.begin(), rows.end(), [](const Row& r) { return r.verdict == Verdict::failed; });
  if (arguments.json) {
    print_json({{"log", arguments.log},
                {"target", tasks->target.fingerprint()},
                {"sizes", tasks->sizes},
                {"trials", rows_json(rows)},
                {"tasks_without_trials", absent},
                {"tasks_not_in_the_model", unknown},
                {"lines_left_out", log->skipped}});
  } else {
    if (!rows.empty()) print_rows(rows);
    say(summary_of(rows));
    if (!tasks->sizes.empty()) say(text("all times are for ", printable(sizes_text(tasks->sizes))));
    if (absent > 0)
      say(text(absent, " of the model's ", tasks->tasks.size(), " tasks have no trial in the log"));
    if (!unknown.empty())
      say(text(unknown.size(), " of the log's ", log->tasks.size(), " tasks are not in the model"));
  }
  return is_broken ? 1 : 0;
}

// ---- import ----

int run_import(Arguments& arguments) {
  tuner::ForeignRecords foreign;
  for (const std::string& path : arguments.records) {
    Result<tuner::ForeignRecords> one = tuner::read_foreign_records(path);
    if (!one.ok()) return report_errors(one.errors(), arguments.json);
    foreign.lines += one->lines;
    foreign.records.insert(foreign.records.end(), one->records.begin(), one->records.end());
    for (const auto& [reason, count] : one->left_out)
      foreign.left_out[reason] += count;
  }
  Result<ModelTasks> tasks = tasks_of(arguments);
  if (!tasks.ok()) return report_errors(tasks.errors(), arguments.json);
  Result<tuner::LogWriter> log = tuner::LogWriter::open(arguments.log);
  if (!log.ok()) return report_errors(log.errors(), arguments.json);
  int64_t seeds = 0, seeded = 0;
  std::set<const tuner::ForeignRecord*> used;
  for (const tuner::Task& task : tasks->tasks) {
    std::vector<LogEntry> entries;
    for (const tuner::ForeignRecord* record : tuner::fitting_records(task, foreign))
      used.insert(record);
    for (const auto& [candidate, record] :
         seeds_for(task, tasks->target, foreign, static_cast<size_t>(arguments.limit))) {
      LogEntry entry;
      entry.task = task.id;
      entry.device = device_of(tasks->target);
      entry.threads = tasks->target.cores;
      entry.sizes = tuner::measured_sizes(task);
      entry.trial.candidate = candidate;
      entry.trial.measurement.message = text(record->origin, ": ", record->us, " us there");
      entry.source = "import";
      entries.push_back(std::move(entry));
    }
    if (entries.empty()) continue;
    Status status = log->append(tuner::log_task(task), entries);
    if (!status.ok()) return report_errors(status.errors(), arguments.json);
    seeds += static_cast<int64_t>(entries.size());
    ++seeded;
  }
  if (const auto others = static_cast<int64_t>(foreign.records.size() - used.size()); others > 0) {
    foreign.left_out["of a size that no kernel of the model has"] += others;
  }
  if (arguments.json) {
    print_json({{"output", arguments.log},
                {"lines", foreign.lines},
                {"records", foreign.records.size()},
                {"left_out", foreign.left_out},
                {"seeds", seeds},
                {"tasks_with_seeds", seeded},
                {"tasks", tasks->tasks.size()}});
    return 0;
  }
  for (const auto& [reason, count] : foreign.left_out)
    say(text("  ", count, " lines left out: ", reason));
  say(text(printable(arguments.log), ": ", seeds, " seeds for ", seeded, " of the model's ",
           tasks->tasks.size(), " tasks, from ", used.size(), " of ", foreign.lines, " records"));
  if (seeds > 0) say("seeds have no times: mcc tune measures them first, mcc log verify --append at once");
  return 0;
}

void add_model_options(CLI::App& command, const std::shared_ptr<Arguments>& arguments) {
  command.add_option("--target", arguments->compile.target, "As for compile")->capture_default_str();
  command.add_option("--precision", arguments->compile.precision, "As for compile")->capture_default_str();
  add_input_options(command, arguments->inputs);
  command.add_flag("--json", arguments->json, "Report on stdout as JSON");
}

}  // namespace

void add_log_of_model(CLI::App& log, int* exit_code) {
  {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = log.add_subcommand(
        "verify", "Measure the best trials of a model's tasks, and seeds, on this machine or another one");
    command->add_option("log", arguments->log, "The tuning log")->required();
    command
        ->add_option("model", arguments->compile.model_path,
                     "The model whose kernels are measured, MODEL.onnx")
        ->required();
    command->add_option("-k,--keep", arguments->keep, "Trials of each task, target and number of threads")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_flag("--append", arguments->append, "Add what was measured to the log");
    command->add_option("--worker", arguments->worker, "Measure on another machine, as mcc tune does");
    add_model_options(*command, arguments);
    command->callback([arguments, exit_code] { *exit_code = run_verify(*arguments); });
  }
  {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = log.add_subcommand(
        "import",
        "Make seeds of other tuners' records: AutoTVM v0.2, auto_scheduler v0.6, MetaSchedule JSON");
    command->add_option("records", arguments->records, "Their log files")->required();
    command
        ->add_option("--model", arguments->compile.model_path,
                     "The model whose kernels are meant, MODEL.onnx")
        ->required();
    command->add_option("-o,--output", arguments->log, "The tuning log to add to")->required();
    command->add_option("--limit", arguments->limit, "Seeds of each task")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
    add_model_options(*command, arguments);
    command->callback([arguments, exit_code] { *exit_code = run_import(*arguments); });
  }
}

}  // namespace mcc::tools
