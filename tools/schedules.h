// Where the schedules of a model's kernels come from: a person's file, the tuning log, else the default rules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/kernels.h"
#include "tuner/log_lookup.h"

namespace mcc::tools {

// What choose_schedules has to say, for the report of a compile.
struct ScheduleReport {
  std::string log_hash;  // "sha256:..."; empty without a log
  int64_t lines_skipped = 0;
  std::vector<std::string> notes;  // for people: bad lines, refused schedules
};

// What compiling takes from a tuning log, read once.
struct TuningLog {
  tuner::LogIndex index;
  std::string hash;        // "sha256:..."
  std::string complaints;  // lines that were left out, for people
};
// options.tune_log; nothing where there is none. Errors: it cannot be used.
Result<std::optional<TuningLog>> read_tuning_log(const CompileOptions& options);

// Gives every kernel that the file or the log knows its schedule, and every kernel the text that says where its schedule
// is from. Measures nothing. Errors: a file that cannot be used; with options.locked, every kernel that the
// log does not have exactly (kind tuning_log).
Result<ScheduleReport> choose_schedules(KernelSet& set, const tensor::Target& target, const CompileOptions& options,
                                        const std::optional<TuningLog>& log);

// One kernel's part of a schedule file. Steps stand in lines as traces are printed.
struct UserSchedule {
  std::string key;        // task id or kernel name
  bool is_task = false;
  int line = 0;
  std::vector<std::pair<int, tensor::Step>> steps;  // with their lines
};
// A file of sections `task ID` or `kernel NAME`, each followed by steps; '#' begins a comment.
Result<std::vector<UserSchedule>> parse_schedule_file(std::string_view source, const std::string& path);

}  // namespace mcc::tools
