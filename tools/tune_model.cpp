#include "tools/tune_model.h"

#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <limits>
#include <map>
#include <regex>
#include <set>

#include "nlohmann/json.hpp"
#include "tools/algorithms.h"
#include "tools/cmd_log.h"
#include "tools/console.h"
#include "tools/kernels.h"
#include "tools/measure/worker_measurer.h"
#include "tools/subprocess.h"
#include "tools/task_sizes.h"
#include "tools/temporary_folder.h"
#include "tools/tune_algorithms.h"
#include "tools/tune_display.h"
#include "tuner/library_schedules.h"
#include "tuner/log.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;

// The whole model is measured when this much of the budget is used, and at the end; but for the end only as long as that takes
// a small part of the time.
constexpr double kChecks[] = {0.25, 0.5, 0.75};
constexpr double kMostCheckShare = 0.1;
// At most so much of the time goes into comparing algorithms.
constexpr double kAlgorithmShare = 0.1;
constexpr double kFirstCheckSeconds = 2;  // until one has been timed

// More trials than this slow the search down and teach it little.
constexpr int64_t kMostKnown = 50'000;
constexpr int kKnownOfLongLogs = 1000;  // of each task

class ModelTuner {
 public:
  // `machine`: that measures; `problems`: whose algorithms are open.
  ModelTuner(const TuneModelOptions& options, Machine machine, ModelTasks model, size_t all_tasks,
             std::vector<AlgorithmProblem> problems)
      : options_(options),
        tune_(options.tune),
        machine_(std::move(machine)),
        target_(std::move(model.target)),
        problems_(std::move(problems)) {
    report_.target = text(options.compile.target, " (", target_.cpu, ")");
    report_.compile_target = options.compile.target;
    if (!options.worker.empty()) name_other_machine();
    report_.all_tasks = all_tasks;
    report_.threads = target_.cores;
    report_.sizes = model.sizes;
    report_.of_data = model.of_data;
    tune_.measure.threads = report_.threads;
    if (target_.kind == tensor::TargetKind::cuda) {
      // Between two runs of a kernel in a model, others fill the cache.
      tune_.measure.is_cold = true;
      tune_.ahead = tune_.batch;
      device_ = machine_.gpu;
      report_.assembler_problem = machine_.assembler_problem;
      if (!report_.assembler_problem.empty()) say(printable_lines(report_.assembler_problem));
    } else {
      tune_.peak_gflops = machine_.peak_gflops;
      device_ = text(target_.cpu, ", ", target_.cores, " cores");
    }
    set_tasks(std::move(model.tasks));
  }

  Result<TuneModelReport> run() {
    const std::string& path = options_.compile.tune_log;
    Result<tuner::LogWriter> log = tuner::LogWriter::open(path);
    if (!log.ok()) return log.errors();
    if (!log->repair().empty()) say(log->repair());
    if (report_.sizes.size() > options_.compile.task_sizes.size())
      say(text("open dimensions: measured at ", printable(sizes_text(report_.sizes)), "; others by --tune-dim NAME=8"));
    Result<Known> known = read_known(path);
    if (!known.ok()) return known.errors();
    WorkerOptions worker;
    if (!options_.worker.empty()) worker.command = worker_command(options_.worker);
    worker.target = target_.name;
    worker.emit = emit_options(options_.compile);
    WorkerMeasurer measurer(worker);

    start_ = Clock::now();
    if (is_to_measure_first()) {
      TuneDisplay display(report_.tasks, tune_.seconds, tune_.trials);
      measure_model(std::nullopt, measurer, display);
    }
    if (is_to_compare()) {
      Status compared = choose_algorithms(*log, *known, measurer);
      if (!compared.ok()) return compared.errors();
      known = read_known(path, /*is_again=*/true);
      if (!known.ok()) return known.errors();
    }
    Status status = search(*log, *known, measurer);
    if (!status.ok()) return status.errors();
    return std::move(report_);
  }

 private:
  using Known = std::vector<std::vector<tuner::Trial>>;  // by task

  // What "cpu" and "cuda" are there is something else here.
  void name_other_machine() {
    const bool is_gpu = target_.kind == tensor::TargetKind::cuda;
    report_.machine = is_gpu ? machine_.gpu : target_.cpu;
    say(printable(
        text("measuring on another machine (", report_.machine, "); the whole model is not measured there")));
    if (report_.compile_target != target_.name || target_.name.find(':') != std::string::npos) return;
    const std::string name = text(target_.name, ":", target_.cpu);
    const Result<tensor::Target> named = codegen::make_target(name);
    if (named.ok() && named->fingerprint() == target_.fingerprint()) report_.compile_target = name;
  }

  void set_tasks(std::vector<tuner::Task> tasks) {
    report_.tasks = std::move(tasks);
    sizes_.clear();
    for (const tuner::Task& task : report_.tasks) {
      sizes_.push_back(tuner::measured_sizes(task));
      defaults_[task.id] = to_text(default_of(task).trace);
    }
  }

  tuner::Candidate default_of(const tuner::Task& task) const {
    tuner::PreferredDecider preferred;
    return tuner::plan_point(tuner::all_sketches()[0], task.func, target_, {}, preferred).candidate;
  }

  tuner::TuneHooks hooks_for(tuner::LogWriter& log) {
    tuner::TuneHooks hooks;
    hooks.clock = [this] { return elapsed(); };
    hooks.is_interrupted = options_.is_interrupted;
    hooks.record = [&](const tuner::Task& task, std::span<const tuner::Trial> trials) {
      return log.append(tuner::log_task(task), entries(task, trials));
    };
    hooks.record_race = [&](const tuner::Task& task, std::span<const tuner::Trial> trials) {
      return log.append(tuner::log_task(task), entries_of_race(task, trials));
    };
    return hooks;
  }

  Status search(tuner::LogWriter& log, Known& known, WorkerMeasurer& measurer) {
    offer_library(known);
    TuneDisplay display(report_.tasks, tune_.seconds, tune_.trials);
    tuner::TuneHooks hooks = hooks_for(log);
    size_t checks = 0;
    hooks.progress = [&](const tuner::TuneState& state) { display.show(state); };
    hooks.wants_pause = [&](const tuner::TuneState& state) {
      return options_.check_model && checks < std::size(kChecks) && part_done(state) >= kChecks[checks] &&
             elapsed() - last_check_ >= check_seconds_ / kMostCheckShare;
    };
    hooks.pause = [&](const tuner::TuneState& state) {
      while (checks < std::size(kChecks) && part_done(state) >= kChecks[checks])
        ++checks;
      measure_model(state.scheduler->latency_us(), measurer, display);
    };
    Result<tuner::TuneReport> tuned = tuner::tune(report_.tasks, target_, measurer, known, tune_, hooks);
    if (!tuned.ok()) return tuned.errors();
    add_earlier(*tuned);
    report_.tune = std::move(*tuned);
    if (options_.check_model && !report_.tasks.empty())
      measure_model(report_.tune.best_us, measurer, display);
    return done();
  }

  // ---- Algorithms ----

  // Not of some tasks only: what they are is what is to be chosen.
  bool is_to_compare() const {
    const auto tasks = static_cast<int64_t>(report_.tasks.size());
    const bool has_trials = tune_.trials == 0 || tune_.trials > 2 * tasks;
    return !problems_.empty() && options_.tasks.empty() && has_trials;
  }

  // Each task without a trial is measured by its default schedule, so that there is a complete model; then the other algorithms of its
  // operators. Sets the tasks of what is chosen, and leaves the search the trials that are left.
  Status choose_algorithms(tuner::LogWriter& log, const Known& known, tuner::Measurer& measurer) {
    Status measured = measure_defaults(log, known, measurer);
    if (!measured.ok()) return measured;
    const double begin = elapsed();
    AlgorithmTuning tuning;
    tuning.is_over = [&] {
      const bool is_late = tune_.seconds > 0 && elapsed() - begin > kAlgorithmShare * tune_.seconds;
      return is_late || (options_.is_interrupted && options_.is_interrupted());
    };
    tuning.measure = [&](std::span<const tuner::Task* const> tasks) {
      Status status = time_defaults(tasks, tuning.is_over, log, measurer);
      if (!status.ok()) measurer.abandon();
      return status;
    };
    tuning.time = [&](const tuner::Task& task) {
      auto at = times_.find(task.text);
      return at == times_.end() ? std::nullopt : std::optional(at->second);
    };
    say(text("comparing the algorithms of ", problems_.size(), problems_.size() == 1 ? " problem" : " problems"));
    Result<std::vector<AlgorithmTimes>> found = compare_algorithms(options_.compile, problems_, tuning);
    if (!found.ok()) return found.errors();
    if (tune_.trials > 0) tune_.trials -= earlier_trials_;
    return take(*found, log);
  }

  Status measure_defaults(tuner::LogWriter& log, const Known& known, tuner::Measurer& measurer) {
    for (size_t i = 0; i < report_.tasks.size(); ++i) {
      for (const tuner::Trial& trial : known[i]) {
        const tuner::Measurement& m = trial.measurement;
        double& us = times_.try_emplace(report_.tasks[i].text, std::numeric_limits<double>::infinity()).first->second;
        if (m.ok() && !m.is_censored) us = std::min(us, m.best_us());
      }
    }
    tuner::TuneOptions first = tune_;
    first.trials = static_cast<int64_t>(report_.tasks.size() - times_.size());
    first.first_batch = 1;
    first.finalists = 0;
    if (first.trials == 0) return done();
    TuneDisplay display(report_.tasks, tune_.seconds, first.trials);
    tuner::TuneHooks hooks = hooks_for(log);
    hooks.progress = [&](const tuner::TuneState& state) { display.show(state); };
    Result<tuner::TuneReport> defaults = tuner::tune(report_.tasks, target_, measurer, known, first, hooks);
    if (!defaults.ok()) return defaults.errors();
    earlier_trials_ = defaults->trials;
    for (size_t i = 0; i < report_.tasks.size(); ++i) {
      times_[report_.tasks[i].text] = defaults->tasks[i].best_us;
      earlier_[report_.tasks[i].id] = defaults->tasks[i];
    }
    return done();
  }

  // Of those that have no time yet.
  Status time_defaults(std::span<const tuner::Task* const> tasks, const std::function<bool()>& is_over,
                       tuner::LogWriter& log, tuner::Measurer& measurer) {
    struct Begun {
      const tuner::Task* task;
      tuner::Trial trial;
    };
    std::deque<Begun> begun;
    // Without trials there is no limit: one is left for the search.
    auto may_begin = [&] {
      const bool is_used_up = tune_.trials > 0 && earlier_trials_ + std::ssize(begun) + 1 >= tune_.trials;
      return std::ssize(begun) <= tune_.ahead && !is_used_up && !is_over();
    };
    for (auto next = tasks.begin(); next != tasks.end() || !begun.empty();) {
      if (next != tasks.end() && may_begin()) {
        const tuner::Task& task = **next++;
        if (!times_.try_emplace(task.text, std::numeric_limits<double>::infinity()).second) continue;
        const Begun& now = begun.emplace_back(&task, tuner::Trial{default_of(task), {}});
        defaults_[task.id] = to_text(now.trial.candidate.trace);
        measurer.begin(task, std::span(&now.trial.candidate, 1), tune_.measure);
        continue;
      }
      if (begun.empty()) break;
      auto& [task, trial] = begun.front();
      Result<std::vector<tuner::Measurement>> measured = measurer.finish();
      if (!measured.ok()) return measured.errors();
      trial.measurement = std::move(measured->at(0));
      ++earlier_trials_;
      Status recorded = log.append(tuner::log_task(*task), entries(*task, std::span(&trial, 1)));
      if (!recorded.ok()) return recorded;
      if (trial.measurement.ok() && !trial.measurement.is_censored)
        times_[task->text] = trial.measurement.best_us();
      begun.pop_front();
    }
    return done();
  }

  Status take(const std::vector<AlgorithmTimes>& found, tuner::LogWriter& log) {
    bool is_changed = false;
    for (const AlgorithmTimes& times : found) {
      tuner::LogChoice choice{times.problem.name, times.best, times.us, {target_.fingerprint(), device_}};
      // What cannot be measured is not chosen.
      if (!choice.us.contains(choice.algorithm)) continue;
      choice.threads = report_.threads;
      choice.time = static_cast<double>(std::time(nullptr));
      is_changed |= times.best != times.problem.expected;
      report_.choices.push_back(std::move(choice));
    }
    Status recorded = log.append(report_.choices);
    if (!recorded.ok() || !is_changed) return recorded;
    Result<ModelTasks> model = extract_tasks(options_.compile);
    if (!model.ok()) return model.errors();
    report_.all_tasks = model->tasks.size();
    set_tasks(std::move(model->tasks));
    return done();
  }

  // What was measured before the search is part of the report.
  void add_earlier(tuner::TuneReport& report) const {
    report.trials += earlier_trials_;
    for (size_t i = 0; i < report_.tasks.size(); ++i) {
      auto at = earlier_.find(report_.tasks[i].id);
      if (at == earlier_.end()) continue;
      report.tasks[i].trials += at->second.trials;
      for (const auto& [error, count] : at->second.errors) report.tasks[i].errors[error] += count;
    }
  }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // How much of the budget is used.
  double part_done(const tuner::TuneState& state) const {
    double part = 0;
    if (tune_.seconds > 0) part = std::max(part, state.seconds / tune_.seconds);
    if (tune_.trials > 0)
      part = std::max(part, static_cast<double>(state.trials) / static_cast<double>(tune_.trials));
    return part;
  }

  // Trials of earlier runs on this target, with as many threads. Of a log that is too long for memory the best.
  // Again: with what this run has added, without a word.
  Result<Known> read_known(const std::string& path, bool is_again = false) {
    std::map<std::string, size_t> index;
    for (size_t i = 0; i < report_.tasks.size(); ++i)
      index[report_.tasks[i].id] = i;
    const std::string fingerprint = target_.fingerprint();
    std::set<std::string> others;  // ids that stand for other tasks in the log
    tuner::LogReadOptions read;
    read.on_task = [&](const tuner::LogTask& task) {
      auto it = index.find(task.id);
      if (it != index.end() && report_.tasks[it->second].text != task.text) others.insert(task.id);
    };
    int64_t count = 0;
    read.wants = [&](const tuner::LogEntry& entry) {
      const auto task = index.find(entry.task);
      const bool is_known = entry.device.target == fingerprint && entry.threads == report_.threads &&
                            task != index.end() && !others.contains(entry.task) &&
                            entry.sizes == sizes_[task->second];
      return is_known && (read.keep > 0 || ++count <= kMostKnown);
    };
    Result<tuner::LogContents> contents = tuner::read_log(path, read);
    if (contents.ok() && (count > kMostKnown || contents->beyond > 0)) {
      read.keep = kKnownOfLongLogs;
      contents = tuner::read_log(path, read);
    }
    if (!contents.ok()) return contents.errors();
    if (!is_again) say_complaints(path, *contents);
    if (read.keep > 0 && !is_again) say(text(printable(path), " is long: of each task the ", read.keep, " fastest trials are remembered"));
    Known known(report_.tasks.size());
    struct Seen {
      size_t at = 0;
      bool is_beaten = false;
    };
    std::map<std::pair<size_t, std::string>, Seen> seen;
    std::map<size_t, size_t> champions;  // by task
    for (const tuner::LogEntry& entry : contents->entries) {
      const size_t task = index.at(entry.task);
      std::vector<tuner::Trial>& of_task = known[task];
      auto [before, is_new] = seen.try_emplace({task, to_text(entry.trial.candidate.trace)}, of_task.size(), entry.is_beaten);
      if (!is_new) {
        // Of a schedule that lost a race, the latest time is the one to go by; of others the least.
        tuner::Trial& trial = of_task[before->second.at];
        const bool is_better = entry.trial.measurement.best_us() < trial.measurement.best_us();
        if (before->second.is_beaten || is_better) trial = entry.trial;
        before->second.is_beaten = entry.is_beaten;
      } else {
        of_task.push_back(entry.trial);
      }
      if (!entry.beats.empty()) champions[task] = before->second.at;
      if (!is_again && is_new && entry.source != "import" && !tuner::is_picked(entry)) ++report_.known_trials;
    }
    for (const auto& [task, at] : champions) known[task][at].is_champion = true;
    int64_t elsewhere = 0, at_other_sizes = 0;
    std::string where;
    for (const auto& [key, counts] : contents->counts) {
      const auto task = index.find(key.task);
      if (key.target == fingerprint && task != index.end() && key.sizes != sizes_[task->second])
        at_other_sizes += counts.trials;
      if (key.target == fingerprint) continue;
      elsewhere += counts.trials;
      where = key.target;
    }
    if (at_other_sizes > 0 && !is_again) {
      say(text(printable(path), ": ", at_other_sizes, " trials are at other sizes than ",
               printable(sizes_text(report_.sizes)),
               " and do not count here; what is measured now replaces them"));
    }
    if (elsewhere > 0 && !is_again) {
      say(printable(text(path, ": ", elsewhere, " trials are from another machine (", where, ") and do not count here")));
    }
    return known;
  }

  // Where cuBLASLt is here, its ways to compute a product are seeds: they are measured right after the default.
  void offer_library(std::vector<std::vector<tuner::Trial>>& known) const {
    if (target_.kind != tensor::TargetKind::cuda || !options_.compile.libraries) return;
    std::vector<std::vector<tuner::Candidate>> offered;
    size_t products = 0;
    for (const tuner::Task& task : report_.tasks)
      products += offered.emplace_back(tuner::library_candidates(task.func, target_)).empty() ? 0 : 1;
    if (products == 0) return;
    if (machine_.cublaslt.empty()) {
      return say(text("cuBLASLt is not here (libcublasLt.so.13, .12 or .11): no candidate for the ", products,
                      " tasks that are matrix products"));
    }
    say(text("cuBLASLt ", machine_.cublaslt, " is a candidate for ", products, " tasks"));
    for (size_t i = 0; i < offered.size(); ++i)
      for (tuner::Candidate& candidate : offered[i])
        known[i].push_back({std::move(candidate), {}});
  }

  std::vector<tuner::LogEntry> entries(const tuner::Task& task, std::span<const tuner::Trial> trials) const {
    std::vector<tuner::LogEntry> out;
    for (const tuner::Trial& trial : trials) {
      tuner::LogEntry entry;
      entry.task = task.id;
      entry.device = {target_.fingerprint(), device_};
      entry.trial = trial;
      entry.threads = report_.threads;
      entry.sizes = tuner::measured_sizes(task);
      entry.seed = tune_.seed;
      entry.time = static_cast<double>(std::time(nullptr));
      entry.source = to_text(trial.candidate.trace) == defaults_.at(task.id) ? "default" : "search";
      out.push_back(std::move(entry));
    }
    return out;
  }

  std::vector<tuner::LogEntry> entries_of_race(const tuner::Task& task, std::span<const tuner::Trial> trials) const {
    std::vector<tuner::LogEntry> out = entries(task, trials);
    tuner::LogEntry& first = out.back();
    for (tuner::LogEntry& entry : out) {
      if (entry.source == "search") entry.source = "final";
      if (&entry != &first) first.beats.push_back(tuner::trace_key(to_text(entry.trial.candidate.trace)));
    }
    return out;
  }

  // There is a complete model before any kernel has a time of its own; not where the time that takes is short, or how long it will be
  // is not known.
  bool is_to_measure_first() const {
    const bool is_long =
        tune_.seconds > 0 ? kMostCheckShare * tune_.seconds >= kFirstCheckSeconds : tune_.trials == 0;
    return options_.check_model && is_long && !report_.tasks.empty();
  }

  // Compiles the model with what the log has by now, and times it in a process of its own.
  void measure_model(std::optional<double> estimate_us, WorkerMeasurer& measurer, TuneDisplay& display) {
    const double begin = elapsed();
    if (machine_.is_exclusive) measurer.rest();
    compile_and_time(estimate_us, display);
    last_check_ = elapsed();
    check_seconds_ = last_check_ - begin;
  }

  void compile_and_time(std::optional<double> estimate_us, TuneDisplay& display) {
    Result<TemporaryFolder> folder = TemporaryFolder::create();
    if (!folder.ok()) return display.note(to_text(folder.errors()));
    CompileOptions compile = options_.compile;
    compile.output_path = folder->path() + "/model.so";
    compile.progress = nullptr;
    compile.emit.clear();
    Result<CompileReport> compiled = compile_model(compile);
    if (!compiled.ok()) return display.note(text("the model as a whole: ", to_text(compiled.errors())));
    std::vector<std::string> words{"bench",     compile.output_path,  "--json", "--seconds", "0.5",
                                   "--threads", text(report_.threads)};
    // What a program hands over from the host is no matter of schedules.
    if (target_.kind == tensor::TargetKind::cuda) words.push_back("--device-resident");
    for (const auto& [name, size] : report_.sizes)
      words.insert(words.end(), {"--dim", text(name, "=", size)});
    Result<ProcessResult> bench = run_self(words, 60);
    if (!bench.ok()) return display.note(to_text(bench.errors()));
    auto json = nlohmann::json::parse(bench->output, nullptr, false);
    if (bench->exit_code != 0 || !json.is_object() || !json.contains("min_ms")) {
      return display.note("the model as a whole could not be measured");
    }
    ModelLatency latency{elapsed(), estimate_us, json["min_ms"].get<double>() * 1e3};
    report_.latencies.push_back(latency);
    const bool is_whole = estimate_us && report_.tasks.size() == report_.all_tasks;
    display.note(text("after ", fixed(latency.seconds, 1), " s the whole model takes ",
                      time_text(latency.measured_us),
                      is_whole ? text("; the sum of its kernels is ", time_text(*estimate_us)) : ""));
  }

  const TuneModelOptions& options_;
  tuner::TuneOptions tune_;
  const Machine machine_;
  tensor::Target target_;  // with the threads that the model is meant for
  std::vector<AlgorithmProblem> problems_;
  std::map<std::string, double> times_;               // of default schedules, or the best known, by the task's text
  std::map<std::string, tuner::TaskReport> earlier_;  // than the search, by task id
  int64_t earlier_trials_ = 0;
  TuneModelReport report_;
  std::string device_;                           // for people
  std::vector<std::vector<int64_t>> sizes_;      // of each task's symbolic dimensions
  std::map<std::string, std::string> defaults_;  // trace of the default schedule, by task id
  Clock::time_point start_;
  double last_check_ = 0, check_seconds_ = kFirstCheckSeconds;  // when and how long the model was measured
};

}  // namespace

Result<std::vector<tuner::Task>> select_tasks(std::vector<tuner::Task> tasks, const std::string& pattern) {
  if (pattern.empty()) return tasks;
  std::regex expression;
  try {
    expression = std::regex(pattern, std::regex::extended);
  } catch (const std::regex_error& error) {
    return Diagnostic{ErrorKind::usage, "--tasks", text(pattern, " is no regular expression: ", error.what()),
                      ""};
  }
  std::vector<tuner::Task> chosen;
  for (tuner::Task& task : tasks) {
    bool fits = std::regex_search(task.id, expression) || std::regex_search(task.name, expression);
    for (const std::string& node : task.nodes)
      fits = fits || std::regex_search(node, expression);
    if (fits) chosen.push_back(std::move(task));
  }
  if (chosen.empty()) {
    return Diagnostic{ErrorKind::usage, "--tasks", text("no task's id, name or ONNX node matches ", pattern),
                      "mcc tasks MODEL lists them"};
  }
  return chosen;
}

namespace {

// What can be done where nothing can be measured.
Diagnostics without_measuring(Diagnostics errors) {
  for (Diagnostic& error : errors) {
    if (!error.hint.empty()) error.hint += "; ";
    error.hint += "--no-measure picks schedules by analysis alone";
  }
  return errors;
}

}  // namespace

Result<TuneModelReport> tune_model(const TuneModelOptions& given) {
  TuneModelOptions options = given;
  Machine machine;
  if (!options.worker.empty()) {
    Result<Machine> there = ask_machine(worker_command(options.worker), options.compile.target);
    if (!there.ok()) return there.errors();
    machine = std::move(*there);
    options.compile.targets = machine.targets;
    options.check_model = false;
  }
  AlgorithmQuestions questions;
  CompileOptions compile = with_log_if_there(options.compile);
  compile.algorithms.observer = questions.observer();
  Result<ModelTasks> model = extract_tasks(compile);
  if (!model.ok()) return model.errors();
  if (options.worker.empty()) {
    Result<Machine> here = describe_machine(options.compile.target, options.compile.libraries);
    if (!here.ok()) return without_measuring(here.errors());
    machine = std::move(*here);
  }
  model->target = model->targets[machine.measured];
  const size_t all = model->tasks.size();
  Result<std::vector<tuner::Task>> tasks = select_tasks(std::move(model->tasks), options.tasks);
  if (!tasks.ok()) return tasks.errors();
  model->tasks = std::move(*tasks);
  return ModelTuner(options, std::move(machine), std::move(*model), all, questions.open()).run();
}

}  // namespace mcc::tools
