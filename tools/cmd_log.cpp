#include "tools/cmd_log.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "support/hash.h"
#include "tools/algorithms.h"
#include "tools/commands.h"
#include "tools/console.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;
using tuner::LogContents;
using tuner::LogCounts;
using tuner::LogEntry;
using tuner::LogKey;
using tuner::LogTask;
using tuner::TrialError;

struct Arguments {
  std::vector<std::string> inputs;
  std::string output;
  int keep = 3;
  bool json = false;
};

Result<LogContents> read_kept(const std::string& path, int keep,
                              std::function<void(const LogEntry&, const std::string&)> on_trial = nullptr) {
  tuner::LogReadOptions options;
  options.keep = keep;
  options.on_trial = std::move(on_trial);
  Result<LogContents> log = tuner::read_log(path, options);
  if (log.ok()) say_complaints(path, *log);
  return log;
}

std::string name_of(const LogContents& log, const std::string& id) {
  const LogTask* task = log.find_task(id);
  return task ? task->name : "";
}

std::string us_text(double us) { return us > 0 ? fixed(us, us < 10 ? 3 : us < 1000 ? 2 : 1) : "-"; }

// "2 timeout, 1 wrong"
std::string errors_text(const LogCounts& counts) {
  std::vector<std::string> parts;
  for (size_t i = 1; i < counts.errors.size(); ++i) {
    if (counts.errors[i] > 0) parts.push_back(text(counts.errors[i], " ", tuner::to_text(static_cast<TrialError>(i))));
  }
  return parts.empty() ? "-" : join(parts, ", ");
}

Json counts_json(const LogContents& log, const LogKey& key, const LogCounts& counts) {
  Json errors = Json::object();
  for (size_t i = 1; i < counts.errors.size(); ++i) {
    if (counts.errors[i] > 0) errors[std::string(tuner::to_text(static_cast<TrialError>(i)))] = counts.errors[i];
  }
  auto time = [](double us) { return us > 0 ? Json(us) : Json(); };
  return {{"task", key.task},
          {"name", name_of(log, key.task)},
          {"target", key.target},
          {"threads", key.threads},
          {"sizes", key.sizes},
          {"trials", counts.trials},
          {"errors", errors},
          {"censored", counts.censored},
          {"unchecked", counts.unchecked},
          {"seeds", counts.seeds},
          {"picked", counts.picked},
          {"estimate_us", time(counts.estimate_us)},
          {"best_us", time(counts.best_us)},
          {"default_us", time(counts.default_us)},
          {"speedup",
           counts.best_us > 0 && counts.default_us > 0 ? Json(counts.default_us / counts.best_us) : Json()}};
}

// A log is only replaced by one who could write to it: another mcc may be appending.
Result<tuner::LogWriter> lock_output(const std::string& path) { return tuner::LogWriter::open(path, /*keeps_empty=*/false); }

// The entries of every task under the line of their task, in the order of the tasks.
Status write_contents(const std::string& path, const LogContents& log) {
  return tuner::write_log(path, log.tasks, log.entries, log.choices);
}

int finish(const Arguments& arguments, Json report, const std::string& sentence) {
  if (arguments.json)
    print_json(report);
  else
    say(sentence);
  return 0;
}

// Times at other sizes than those of a task's last trial are of no use to anybody who compiles with the log.
void drop_other_sizes(LogContents& log) {
  std::erase_if(log.entries, [&](const LogEntry& e) { return !log.has_last_sizes(e); });
}

// Of what analysis has picked, that for which nothing was measured.
void drop_needless_picks(LogContents& log) {
  std::erase_if(log.entries, [&](const LogEntry& e) {
    return tuner::is_picked(e) && log.counts[tuner::key_of(e)].best_us > 0;
  });
}

int run_best(const Arguments& arguments) {
  Result<LogContents> log = read_kept(arguments.inputs[0], 1);
  if (!log.ok()) return report_errors(log.errors(), arguments.json);
  drop_other_sizes(*log);
  drop_needless_picks(*log);
  std::erase_if(log->entries, [](const LogEntry& e) { return !tuner::is_valid(e) && !tuner::is_picked(e); });
  const auto picked = std::count_if(log->entries.begin(), log->entries.end(), tuner::is_picked);
  std::erase_if(log->tasks, [&](const LogTask& t) {
    return std::none_of(log->entries.begin(), log->entries.end(), [&](const LogEntry& e) { return e.task == t.id; });
  });
  Result<tuner::LogWriter> lock = lock_output(arguments.output);
  if (!lock.ok()) return report_errors(lock.errors(), arguments.json);
  Status status = write_contents(arguments.output, *log);
  if (!status.ok()) return report_errors(status.errors(), arguments.json);
  return finish(arguments,
                {{"output", arguments.output},
                 {"tasks", log->tasks.size()},
                 {"trials", log->entries.size()},
                 {"picked", picked},
                 {"lines_left_out", log->skipped}},
                text(printable(arguments.output), ": the best of ", log->tasks.size(), " tasks",
                     picked > 0 ? text("; ", picked, " picked by analysis, not measured") : ""));
}

int run_prune(const Arguments& arguments) {
  const std::string& input = arguments.inputs[0];
  const std::string output = arguments.output.empty() ? input : arguments.output;
  Result<tuner::LogWriter> lock = [&]() -> Result<tuner::LogWriter> {
    if (arguments.output.empty() && !std::filesystem::exists(input))
      return Diagnostic{ErrorKind::tuning_log, input, "the tuning log cannot be read: there is no such file", ""};
    return lock_output(output);
  }();
  if (!lock.ok()) return report_errors(lock.errors(), arguments.json);
  // The default stays, too: it is what others are compared with, as measured last. So does the last race, which says whose times do
  // not count.
  std::map<LogKey, std::pair<LogEntry, std::string>> defaults, last_defaults, races;
  Result<LogContents> log =
      read_kept(input, arguments.keep, [&](const LogEntry& entry, const std::string& trace) {
        if (!entry.beats.empty()) races.insert_or_assign(tuner::key_of(entry), std::pair(entry, trace));
        if (entry.source != "default" || !entry.trial.measurement.ok()) return;
        last_defaults.insert_or_assign(tuner::key_of(entry), std::pair(entry, trace));
        if (!tuner::is_valid(entry)) return;
        auto [at, is_new] = defaults.try_emplace(tuner::key_of(entry), entry, trace);
        if (!is_new && tuner::is_faster(entry, at->second.first)) at->second = {entry, trace};
      });
  if (!log.ok()) return report_errors(log.errors(), arguments.json);
  drop_needless_picks(*log);
  int64_t before = 0;
  for (const auto& [key, counts] : log->counts)
    before += counts.trials + counts.seeds + counts.picked;
  std::map<int64_t, std::string> lines;
  for (const LogEntry& entry : log->entries) lines[entry.line] = tuner::entry_line(entry);
  for (const auto* entries : {&defaults, &last_defaults, &races}) {
    for (const auto& [key, entry] : *entries) lines[entry.first.line] = tuner::entry_line(entry.first, entry.second);
  }
  tuner::LogFile file(output);
  for (const tuner::LogChoice& choice : log->choices) file.put(tuner::choice_line(choice));
  for (const LogTask& task : log->tasks) file.put(tuner::task_line(task));
  for (const auto& [number, line] : lines) file.put(line);
  Status status = file.commit();
  if (!status.ok()) return report_errors(status.errors(), arguments.json);
  return finish(arguments,
                {{"output", output}, {"trials_before", before}, {"trials", lines.size()}, {"lines_left_out", log->skipped}},
                text(printable(output), ": ", lines.size(), " of ", before, " trials kept"));
}

int run_merge(const Arguments& arguments) {
  Result<tuner::LogWriter> lock = lock_output(arguments.output);
  if (!lock.ok()) return report_errors(lock.errors(), arguments.json);
  tuner::LogFile file(arguments.output);
  std::map<std::string, std::string> texts;  // of tasks, by id
  std::set<uint64_t> written;
  int64_t trials = 0, duplicates = 0, conflicts = 0, skipped = 0;
  for (const std::string& input : arguments.inputs) {
    std::set<std::string> foreign;  // ids that stand for other tasks in the logs before
    tuner::LogReadOptions options;
    options.keep = 1;
    options.on_task = [&](const LogTask& task) {
      auto [at, is_new] = texts.try_emplace(task.id, task.text);
      if (is_new) file.put(tuner::task_line(task));
      if (at->second != task.text) foreign.insert(task.id);
    };
    options.on_trial = [&](const LogEntry& entry, const std::string& trace) {
      if (foreign.contains(entry.task)) {
        ++conflicts;
        return;
      }
      std::string line = tuner::entry_line(entry, trace);
      if (!written.insert(hash_bytes(line)).second) {
        ++duplicates;
        return;
      }
      file.put(line);
      ++trials;
    };
    options.on_choice = [&](const tuner::LogChoice& choice) {
      std::string line = tuner::choice_line(choice);
      if (written.insert(hash_bytes(line)).second) file.put(line);
    };
    Result<LogContents> log = tuner::read_log(input, options);
    if (!log.ok()) return report_errors(log.errors(), arguments.json);
    if (log->skipped > 0) say(printable(text(input, ": ", log->skipped, " lines left out; first: ", log->complaints[0])));
    skipped += log->skipped;
  }
  Status status = file.commit();
  if (!status.ok()) return report_errors(status.errors(), arguments.json);
  if (conflicts > 0) say(text(conflicts, " trials left out: their tasks' ids stand for other tasks in a log before"));
  return finish(arguments,
                {{"output", arguments.output}, {"tasks", texts.size()}, {"trials", trials}, {"duplicates", duplicates},
                 {"conflicts", conflicts}, {"lines_left_out", skipped}},
                text(printable(arguments.output), ": ", texts.size(), " tasks, ", trials, " trials, ", duplicates,
                     " duplicates left out"));
}

int run_diff(const Arguments& arguments) {
  Result<LogContents> a = read_kept(arguments.inputs[0], 1), b = read_kept(arguments.inputs[1], 1);
  if (!a.ok()) return report_errors(a.errors(), arguments.json);
  if (!b.ok()) return report_errors(b.errors(), arguments.json);
  std::set<LogKey> keys;
  for (const LogContents* log : {&*a, &*b}) {
    for (const auto& [key, counts] : log->counts) keys.insert(key);
  }
  auto best = [](const LogContents& log, const LogKey& key) {
    auto at = log.counts.find(key);
    return at == log.counts.end() ? 0 : at->second.best_us;
  };
  Json list = Json::array();
  if (!arguments.json && !keys.empty())
    std::printf("%-16s %7s %10s %10s  %-15s %s\n", "task", "threads", "A us", "B us", "B is", "kernel");
  for (const LogKey& key : keys) {
    const double x = best(*a, key), y = best(*b, key);
    auto is_picked = [&](const LogContents& log) {
      auto at = log.counts.find(key);
      return at != log.counts.end() && at->second.picked > 0;
    };
    std::string verdict = is_picked(*a) || is_picked(*b) ? "not measured" : "no time in both";
    if (x > 0 && y > 0) {
      verdict = x == y ? "the same" : y < x ? text(fixed(x / y, 2), "x faster") : text(fixed(y / x, 2), "x slower");
    } else if (x > 0 || y > 0) {
      verdict = x > 0 ? "only in A" : "only in B";
    }
    const std::string name = name_of(a->find_task(key.task) ? *a : *b, key.task);
    if (arguments.json) {
      list.push_back({{"task", key.task},
                      {"name", name},
                      {"target", key.target},
                      {"threads", key.threads},
                      {"sizes", key.sizes},
                      {"a_us", x > 0 ? Json(x) : Json()},
                      {"b_us", y > 0 ? Json(y) : Json()},
                      {"b_over_a", x > 0 && y > 0 ? Json(y / x) : Json()},
                      {"verdict", x > 0 && y > 0 ? (x == y  ? "same"
                                                    : y < x ? "faster"
                                                            : "slower")
                                  : x > 0        ? "only_a"
                                  : y > 0        ? "only_b"
                                                 : "none"}});
    } else {
      std::printf("%-16s %7d %10s %10s  %-15s %s\n", printable(key.task).c_str(), key.threads,
                  us_text(x).c_str(), us_text(y).c_str(), verdict.c_str(),
                  printable(key.sizes.empty() ? name : text(name, " at ", join(key.sizes, " x "))).c_str());
    }
  }
  if (arguments.json) print_json({{"a", arguments.inputs[0]}, {"b", arguments.inputs[1]}, {"tasks", list}});
  return 0;
}

CLI::App* subcommand(CLI::App& log, const char* name, const char* what, const std::shared_ptr<Arguments>& arguments,
                     int (*run)(const Arguments&), int* exit_code) {
  CLI::App* command = log.add_subcommand(name, what);
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, run, exit_code] { *exit_code = run(*arguments); });
  return command;
}

int run_show(const Arguments& arguments) { return show_log(arguments.inputs[0], arguments.json); }

}  // namespace

void say_complaints(const std::string& path, const LogContents& log) {
  const std::string complaints = tuner::complaints_text(path, log);
  for (size_t at = 0; at < complaints.size();) {
    const size_t end = std::min(complaints.find('\n', at), complaints.size());
    say(printable(complaints.substr(at, end - at)));
    at = end + 1;
  }
}

bool is_tuning_log(const std::string& path) {
  std::string start(5, '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), 5);
  return start == "{\"v\":";
}

int show_log(const std::string& path, bool json) {
  Result<LogContents> log = read_kept(path, 1);
  if (!log.ok()) return report_errors(log.errors(), json);
  // Tasks in the file's order, the ones of a task by target and threads.
  std::vector<std::pair<LogKey, LogCounts>> rows;
  for (const LogTask& task : log->tasks) {
    for (auto at = log->counts.lower_bound({task.id, "", 0}); at != log->counts.end() && at->first.task == task.id; ++at)
      rows.emplace_back(*at);
  }
  if (json) {
    Json list = Json::array();
    for (const auto& [key, counts] : rows) list.push_back(counts_json(*log, key, counts));
    print_json({{"kind", "log"}, {"version", tuner::kLogVersion}, {"lines", log->lines}, {"lines_left_out", log->skipped},
                {"complaints", log->complaints}, {"tasks", list}, {"choices", choices_json(log->choices)}});
    return 0;
  }
  std::set<std::string> targets;
  for (const auto& [key, counts] : rows) targets.insert(key.target);
  for (const tuner::LogChoice& choice : log->choices) targets.insert(choice.device.target);
  for (const std::string& target : targets) std::puts(text("target  ", printable(target)).c_str());
  const bool has_sizes =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return !row.first.sizes.empty(); });
  std::printf("%-16s %7s %7s %10s %10s %8s  %-24s %s%s\n", "task", "threads", "trials", "best us",
              "default us", "speed-up", "errors", has_sizes ? "sizes            " : "", "kernel");
  for (const auto& [key, counts] : rows) {
    const bool both = counts.best_us > 0 && counts.default_us > 0;
    std::string sizes = key.sizes.empty() ? "-" : join(key.sizes, " x ");
    if (sizes.size() < 16) sizes.resize(16, ' ');
    std::printf("%-16s %7d %7lld %10s %10s %8s  %-24s %s%s\n", printable(key.task).c_str(), key.threads,
                static_cast<long long>(counts.trials),
                counts.best_us == 0 && counts.picked > 0 ? "picked" : us_text(counts.best_us).c_str(),
                us_text(counts.default_us).c_str(),
                both ? text(fixed(counts.default_us / counts.best_us, 2), "x").c_str() : "-",
                errors_text(counts).c_str(), has_sizes ? (sizes + " ").c_str() : "",
                printable(name_of(*log, key.task)).c_str());
  }
  if (std::any_of(rows.begin(), rows.end(),
                  [](const auto& row) { return row.second.best_us == 0 && row.second.picked > 0; }))
    std::puts("picked: chosen by analysis (mcc tune --no-measure); nobody has measured it");
  for (const tuner::LogChoice& choice : log->choices)
    std::puts(printable(text(choice_text(choice), ", ", choice.threads, choice.threads == 1 ? " thread" : " threads")).c_str());
  return 0;
}

void add_log(CLI::App& app, int* exit_code) {
  CLI::App* log = app.add_subcommand("log", "Show and change tuning logs");
  log->require_subcommand(1);
  auto add = [&](const char* name, const char* what, int (*run)(const Arguments&)) {
    auto arguments = std::make_shared<Arguments>();
    return std::pair{subcommand(*log, name, what, arguments, run, exit_code), arguments};
  };
  {
    auto [command, arguments] = add("show", "Trials, errors and best times of each task", run_show);
    command->add_option("log", arguments->inputs, "The tuning log")->required()->expected(1);
  }
  {
    auto [command, arguments] = add("best", "Write the best trial of each task", run_best);
    command->add_option("log", arguments->inputs, "The tuning log")->required()->expected(1);
    command->add_option("-o,--output", arguments->output, "The log to write")->required();
  }
  {
    auto [command, arguments] = add("merge", "Join logs; equal trials are kept once", run_merge);
    command->add_option("logs", arguments->inputs, "The tuning logs")->required();
    command->add_option("-o,--output", arguments->output, "The log to write")->required();
  }
  {
    auto [command, arguments] = add("diff", "Compare the best times of two logs", run_diff);
    command->add_option("logs", arguments->inputs, "The logs A and B")->required()->expected(2);
  }
  {
    auto [command, arguments] = add("prune", "Keep the best trials of each task only", run_prune);
    command->add_option("log", arguments->inputs, "The tuning log")->required()->expected(1);
    command->add_option("-k,--keep", arguments->keep, "Trials of each task that stay")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_option("-o,--output", arguments->output, "The log to write; without it, the log itself is changed");
  }
  add_log_of_model(*log, exit_code);
  add_log_report(*log, exit_code);
}

}  // namespace mcc::tools
