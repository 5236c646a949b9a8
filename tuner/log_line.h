// One line of a tuning log: its record, or what is wrong with it. Internal to the log.
#pragma once

#include <string>
#include <string_view>

#include "tuner/log.h"

namespace mcc::tuner {

// How every line of a log begins.
inline constexpr std::string_view kLogStart = "{\"v\":1,";
static_assert(kLogVersion == 1);

// Bounds on what a line may ask for.
inline constexpr size_t kMaxLogLine = size_t{4} << 20;  // bytes
inline constexpr size_t kMaxBeats = 16;
inline constexpr size_t kMaxAlgorithms = 16;

struct LogLine {
  enum class Kind { task, trial, choice, bad, newer };
  Kind kind = Kind::bad;
  LogTask task;
  LogEntry entry;          // without its trace
  std::string trace_text;  // of the trial
  LogChoice choice;
  int64_t version = 0;
  std::string error;  // "times_us: expected ..., got ..."
};

LogLine parse_log_line(std::string_view line);

// Fills in the entry's trace; otherwise the reason why it has none.
Status resolve_trace(LogEntry& entry, const std::string& trace_text);

}  // namespace mcc::tuner
