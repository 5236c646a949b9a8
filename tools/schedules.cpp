#include "tools/schedules.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "codegen/hash.h"
#include "support/text.h"
#include "tools/console.h"
#include "tuner/library_schedules.h"
#include "tuner/replay.h"

namespace mcc::tools {
namespace {

constexpr size_t kMaxFile = size_t{16} << 20;

Diagnostic bad_file(const std::string& path, int line, std::string message, std::string hint = "") {
  return {ErrorKind::bad_input, line > 0 ? text(path, ":", line) : path, std::move(message), std::move(hint)};
}

std::string_view trimmed(std::string_view s) {
  const char* blanks = " \t\r";
  size_t start = s.find_first_not_of(blanks);
  if (start == std::string_view::npos) return {};
  return s.substr(start, s.find_last_not_of(blanks) - start + 1);
}

std::string task_list(const KernelSet& set) {
  std::vector<std::string> names;
  for (const Kernel& k : set.kernels) names.push_back(text(k.id, " (", k.name, ")"));
  return text("the model's tasks are ", join(names, ", "));
}

Status apply_user_schedule(const UserSchedule& user, const std::string& path, KernelSet& set) {
  std::vector<Kernel*> kernels;
  for (Kernel& k : set.kernels) {
    if ((user.is_task ? k.id : k.name) == user.key) kernels.push_back(&k);
  }
  const std::string what = text(user.is_task ? "task " : "kernel ", user.key);
  if (kernels.empty()) return bad_file(path, user.line, text("the model has no ", what), task_list(set));
  if (kernels.size() > 1) {
    return bad_file(path, user.line, text("expected one ", what, ", the model has ", kernels.size()),
                    "name it by its task; mcc tasks lists them");
  }
  Kernel& kernel = *kernels[0];
  if (kernel.schedule) return bad_file(path, user.line, text("expected one schedule for ", what, ", got another before"));
  tensor::Schedule schedule(kernel.func);
  for (const auto& [line, step] : user.steps) {
    tensor::Outcome outcome = schedule.apply(step);
    if (outcome) continue;
    return bad_file(path, line, text(to_text(step), " is refused for ", what, " (", tensor::to_text(outcome.code),
                                     "): ", outcome.detail),
                    text("blocks of the kernel: ", join(schedule.block_names(), ", "),
                         "; mcc compile --emit tensor=FOLDER writes its loops"));
  }
  std::string excess = tuner::excess_of(kernel.func, schedule.func());
  if (!excess.empty()) return bad_file(path, user.line, text("the schedule of ", what, " is refused: ", excess));
  kernel.schedule = std::move(schedule);
  kernel.source = ScheduleSource::file;
  kernel.origin = "a schedule file";
  return done();
}

Status use_schedule_file(KernelSet& set, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string source(kMaxFile + 1, '\0');
  in.read(source.data(), static_cast<std::streamsize>(source.size()));
  if (in.bad() || (!in && !in.eof())) return bad_file(path, 0, "the schedule file cannot be read");
  source.resize(static_cast<size_t>(in.gcount()));
  if (source.size() > kMaxFile) return bad_file(path, 0, text("expected at most ", kMaxFile, " bytes, got more"));
  Result<std::vector<UserSchedule>> file = parse_schedule_file(source, path);
  if (!file.ok()) return file.errors();
  Diagnostics errors;
  for (const UserSchedule& user : *file) {
    Status status = apply_user_schedule(user, path, set);
    if (!status.ok()) errors.insert(errors.end(), status.errors().begin(), status.errors().end());
  }
  if (!errors.empty()) return errors;
  return done();
}

std::string time_text(double us) { return text(fixed(us, us < 10 ? 3 : us < 1000 ? 2 : 1), " us"); }

// "log exact, 12.31 us; default 15.00 us; runner-up 12.90 us; sketch rules; line 17"
std::string origin_of(const tuner::LogMatch& match) {
  if (match.is_picked) {
    return printable(text("log picked by analysis, not measured; estimate ", time_text(match.estimate_us), "; sketch ",
                          match.sketch, "; line ", match.line));
  }
  std::string out = text("log ", to_text(match.found), ", ");
  if (match.found == tuner::Found::nearest) {
    out += text("confidence ", fixed(match.confidence, 2), ", from ", match.reason, ": ");
  }
  out += time_text(match.best_us);
  if (!match.sizes.empty()) out += text(" at ", join(match.sizes, " x "));
  if (match.default_us > 0) out += text("; default ", time_text(match.default_us));
  if (match.runner_up_us > 0) out += text("; runner-up ", time_text(match.runner_up_us));
  if (!match.sketch.empty()) out += text("; sketch ", match.sketch);
  out += text("; line ", match.line);
  return printable(out);
}

// What to say of a log that has nothing from a machine like this.
std::string foreign_note(const tuner::LogContents& log, const tensor::Target& target) {
  const std::string here = target.fingerprint();
  std::set<std::string> targets;
  for (const auto& [key, counts] : log.counts) {
    if (counts.trials > 0 || counts.picked > 0) targets.insert(key.target);
  }
  if (targets.empty()) return "has no trials: the default schedules are used";
  if (targets.contains(here)) return "";
  return text("has trials of another machine only (", *targets.begin(), targets.size() > 1 ? text(" and ", targets.size() - 1, " more") : "",
              "), this is ", here, ": their decisions are used where they apply, mcc tune finds better ones");
}

Status use_log(KernelSet& set, const tensor::Target& target, const CompileOptions& options, const TuningLog& log, ScheduleReport& report) {
  const tuner::LogContents& contents = log.index.contents();
  report.log_hash = log.hash;
  report.lines_skipped = contents.skipped;
  if (!log.complaints.empty()) report.notes.push_back(log.complaints);
  if (std::string note = foreign_note(contents, target); !note.empty()) report.notes.push_back(text(options.tune_log, ": ", note));
  Diagnostics missing;
  for (Kernel& kernel : set.kernels) {
    if (kernel.schedule) continue;
    tuner::LogMatch match = log.index.find(kernel.func, kernel.text, target, target.cores);
    for (const std::string& note : match.notes) {
      report.notes.push_back(text(options.tune_log, ": task ", kernel.id, " (", kernel.name, "), ", note));
    }
    if (options.locked && match.found != tuner::Found::exact) {
      missing.push_back({ErrorKind::tuning_log, text("task ", kernel.id, " (", kernel.name, ")"),
                         match.notes.empty() ? "the tuning log has no valid trial of it"
                                             : "no trial of it in the tuning log applies: " + match.notes[0],
                         ""});
      continue;
    }
    if (match.found == tuner::Found::none) continue;
    kernel.source = match.is_picked                        ? ScheduleSource::log_picked
                    : match.found == tuner::Found::exact ? ScheduleSource::log_exact
                                                         : ScheduleSource::log_nearest;
    kernel.origin = origin_of(match);
    kernel.schedule = std::move(match.schedule);
    kernel.sizes = std::move(match.sizes);
  }
  if (missing.empty()) return done();
  missing.back().hint = text("--locked wants every kernel in ", options.tune_log, " for ", target.cores,
                             target.cores == 1 ? " thread" : " threads", " on ", target.fingerprint(),
                             "; mcc tune adds what is missing");
  return missing;
}

}  // namespace

Result<std::vector<UserSchedule>> parse_schedule_file(std::string_view source, const std::string& path) {
  std::vector<UserSchedule> sections;
  Diagnostics errors;
  int number = 0;
  while (!source.empty()) {
    ++number;
    size_t end = std::min(source.find('\n'), source.size());
    std::string_view line = trimmed(source.substr(0, end));
    source.remove_prefix(std::min(end + 1, source.size()));
    if (line.empty() || line[0] == '#') continue;
    bool is_task = line.starts_with("task "), is_kernel = line.starts_with("kernel ");
    if (is_task || is_kernel) {
      std::string_view key = trimmed(line.substr(is_task ? 5 : 7));
      key = trimmed(key.substr(0, key.find('#')));
      sections.push_back({std::string(key), is_task, number, {}});
      continue;
    }
    if (sections.empty()) {
      return bad_file(path, number, "expected `task ID` or `kernel NAME` before the first step");
    }
    Result<tensor::Trace> trace = tensor::parse_trace(line);
    if (!trace.ok()) {
      errors.push_back(bad_file(path, number, trace.errors()[0].message));
      if (errors.size() == 20) break;
      continue;
    }
    for (const tensor::Step& step : *trace) sections.back().steps.emplace_back(number, step);
  }
  if (!errors.empty()) return errors;
  if (sections.empty()) return bad_file(path, 0, "expected `task ID` or `kernel NAME` and steps, got nothing");
  return sections;
}

Result<std::optional<TuningLog>> read_tuning_log(const CompileOptions& options) {
  if (options.tune_log.empty()) return std::optional<TuningLog>();
  tuner::LogReadOptions read;
  read.keep = tuner::kIndexedEntries;
  // So that they take no other's place among those that are kept; the index looks at the traces.
  if (!options.libraries) read.wants = [](const tuner::LogEntry& e) { return e.trial.candidate.sketch != tuner::kLibrarySketch; };
  Result<tuner::LogContents> contents = tuner::read_log(options.tune_log, read);
  if (!contents.ok()) return contents.errors();
  Result<std::string> hash = codegen::sha256_of_file(options.tune_log);
  if (!hash.ok()) return Diagnostic{ErrorKind::tuning_log, options.tune_log, "the tuning log cannot be read", ""};
  TuningLog log{{}, "sha256:" + *hash, tuner::complaints_text(options.tune_log, *contents)};
  log.index = tuner::LogIndex(std::move(*contents), options.libraries);
  return std::optional(std::move(log));
}

Result<ScheduleReport> choose_schedules(KernelSet& set, const tensor::Target& target, const CompileOptions& options,
                                        const std::optional<TuningLog>& log) {
  ScheduleReport report;
  if (!options.schedule_file.empty()) {
    Status status = use_schedule_file(set, options.schedule_file);
    if (!status.ok()) return status.errors();
  }
  if (log) {
    Status status = use_log(set, target, options, *log, report);
    if (!status.ok()) return status.errors();
  }
  return report;
}

}  // namespace mcc::tools
