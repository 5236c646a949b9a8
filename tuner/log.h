// The tuning log: JSON lines, appended to and made durable batch by batch, readable after any interruption. A log is data:
// names and bounded integers, checked when read and again when used; nothing in it is run, opened or passed on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tuner/trial.h"

namespace mcc::tuner {

inline constexpr int kLogVersion = 1;

// Where a trial was measured.
struct Device {
  std::string target;       // Target::fingerprint()
  std::string description;  // processor, cores; no host name, no serial number
};

struct LogEntry {
  std::string task;  // Task::id
  Device device;
  Trial trial;
  int threads = 1;
  uint64_t seed = 0;
  double time = 0;  // seconds since 1970, of the measurement
  int line = 0;     // in its file
};

// What a log says of a task, once a file.
struct LogTask {
  std::string id, name, text;
  int64_t flops = 0, bytes = 0;
};

struct LogContents {
  std::vector<LogTask> tasks;
  std::vector<LogEntry> entries;
  // Lines that were left out, with the reason, at most some; and how many in all.
  std::vector<std::string> complaints;
  int64_t skipped = 0;
};

}  // namespace mcc::tuner
