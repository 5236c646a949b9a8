// The tuning log: JSON lines, appended to and made durable batch by batch, readable after any interruption. A log is data:
// names and bounded integers, checked when read and again when used; nothing in it is run, opened or passed on.
//
// Three kinds of lines (docs/tuning_log.md has the fields), each with the schema's version as its first field:
//   {"v":1,"kind":"task","id":...,"name":...,"text":...,"flops":...,"bytes":...}
//   {"v":1,"kind":"trial","task":...,"target":...,"sketch":...,"point":{...},"trace":...,"times_us":[...],...}
//   {"v":1,"kind":"choice","problem":...,"target":...,"threads":...,"algorithm":...,"us":{...},...}
// The line of a task stands before its first trial. Lines that are no such records are left out and complained about.
#pragma once

#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"
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
  std::vector<int64_t>
      sizes;  // of the task's symbolic dimensions, in their order, at which it was measured; empty without such
  uint64_t seed = 0;
  double time = 0;  // seconds since 1970, of the measurement
  // Who proposed it: "default" (what analysis picks, without a log), "search", "verify" (measured again), "import": a
  // seed from another tuner's records, not measured here, "picked": by analysis alone, never measured, or "final": measured once more
  // in a race at the end of a search.
  std::string source = "search";
  double estimate_us = 0;  // of a picked one, by analysis; 0: none
  // Hashes of the traces that were measured side by side with this one and were slower: what stood of them in the log before
  // no longer counts, however fast a single measurement once was.
  std::vector<std::string> beats;
  bool is_beaten = false;  // by an entry further down; not written
  int64_t line = 0;  // in its file
};

// What `beats` calls a trace.
std::string trace_key(const std::string& trace_text);
// Whether the entry may decide what is compiled: measured to the end, checked against the reference, not beaten.
bool is_valid(const LogEntry& entry);
// Whether it may decide what is compiled where nothing is valid: picked by analysis, not measured.
bool is_picked(const LogEntry& entry);
// The faster of two valid ones; the earlier line of equals.
bool is_faster(const LogEntry& a, const LogEntry& b);

// What a log says of a task, once a file.
struct LogTask {
  std::string id, name, text;
  int64_t flops = 0, bytes = 0;
};
LogTask log_task(const Task& task);

// Which of several algorithms an operator takes, decided before there are kernels. The latest of equal keys counts.
struct LogChoice {
  std::string problem;            // what is computed, without the algorithm
  std::string algorithm;          // that is to be taken
  std::map<std::string, double> us;  // of the model's kernels by algorithm, that one among them
  Device device;
  int threads = 1;
  double time = 0;  // seconds since 1970
  int64_t line = 0;
};

// Trials whose times can be compared: of one task, on one target, with one number of threads, at the same sizes of symbolic dimensions.
struct LogKey {
  std::string task, target;
  int threads = 1;
  std::vector<int64_t> sizes = {};
  auto operator<=>(const LogKey&) const = default;
};
LogKey key_of(const LogEntry& entry);

struct LogCounts {
  int64_t trials = 0, censored = 0, unchecked = 0, seeds = 0, picked = 0;
  std::array<int64_t, kTrialErrorCount> errors{};  // by TrialError; [none]: the trials without one
  double best_us = 0;     // of the valid ones; 0: none
  double default_us = 0;  // of source "default", the latest (in a race: at least that); 0: none
  double estimate_us = 0;  // of the latest picked one; 0: none. No time: nothing was measured
  bool operator==(const LogCounts&) const = default;
};

struct LogContents {
  std::vector<LogTask> tasks;     // in the file's order, each id once
  std::vector<LogEntry> entries;  // in the file's order
  std::map<LogKey, LogCounts> counts;
  // By task, target and threads: the sizes of the last valid trial, or where there is none of the last picked one, which are those that count
  // where there are others, too.
  // Only of tasks with symbolic dimensions.
  std::map<LogKey, std::vector<int64_t>> last_sizes;
  std::vector<LogChoice> choices;  // those that count, by problem, target and threads
  // Lines that were left out, with the reason ("log.json:17: ..., expected ..."), at most some; and how many in all.
  std::vector<std::string> complaints;
  int64_t skipped = 0;
  int64_t lines = 0;
  int64_t beyond = 0;  // entries that were not kept because of most_bytes

  const LogTask* find_task(std::string_view id) const;
  // Whether the entry is at the sizes that count for its task, target and threads.
  bool has_last_sizes(const LogEntry& entry) const;
  const LogChoice* find_choice(std::string_view problem, std::string_view target, int threads) const;
};

// ---- Reading ----

struct LogReadOptions {
  // Of each key, the fastest valid entries that are kept in memory, as many seeds, and the latest picked one; 0: all entries,
  // failed ones too.
  int keep = 0;
  // Of those, only the ones that this says yes to; empty: all. Asked before the trace is looked at.
  std::function<bool(const LogEntry& entry)> wants;
  // Bytes of lines whose entries are kept, which take some ten times as much in memory. Further ones are only counted.
  size_t most_bytes = size_t{96} << 20;
  // Called for every well-formed line in the file's order, whatever is kept. The trace of an entry is in trace_text of
  // the record; it is parsed only where an entry is kept.
  std::function<void(const LogTask& task)> on_task;
  std::function<void(const LogEntry& entry, const std::string& trace_text)> on_trial;
  std::function<void(const LogChoice& choice)> on_choice;
};

// Reads a log as a stream. Errors (kind tuning_log): the file cannot be read, is no log, or all of it is
// of a newer version.
Result<LogContents> read_log(const std::string& path, const LogReadOptions& options = {});
// "log.json: 3 lines left out" and the first reasons, one a line; empty if there is nothing to say.
std::string complaints_text(const std::string& path, const LogContents& contents);

// ---- Writing ----

std::string task_line(const LogTask& task);      // without the end of line
std::string choice_line(const LogChoice& choice);
std::string entry_line(const LogEntry& entry);
std::string entry_line(const LogEntry& entry, const std::string& trace_text);  // with this for its trace

// The one writer of a log: holds a lock on the file while it lives.
class LogWriter {
 public:
  // Opens the log for appending; makes it if it is not there. A last line that was cut by a crash is taken off.
  // Errors: another process writes it, it cannot be written, or it is not a log.
  // keeps_empty: a log that was made here, and that nothing came into, stays.
  static Result<LogWriter> open(const std::string& path, bool keeps_empty = true);
  LogWriter(LogWriter&&) noexcept;
  LogWriter& operator=(LogWriter&&) noexcept;
  ~LogWriter();

  // Appends the entries of one task, its own line first where the file does not have it yet, and makes them durable
  // before it returns. All or, on an error, nothing.
  Status append(const LogTask& task, std::span<const LogEntry> entries);
  Status append(std::span<const LogChoice> choices);
  // What was mended when the log was opened; empty if nothing.
  const std::string& repair() const { return repair_; }

 private:
  LogWriter() = default;
  struct File;
  std::unique_ptr<File> file_;
  std::string repair_;
};

// A whole log, line by line: what stands at the path is the old file, or after commit() the whole new one.
class LogFile {
 public:
  explicit LogFile(std::string path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void put(const std::string& line);
  Status commit();

 private:
  std::string path_, temporary_;
  std::FILE* out_ = nullptr;
  int error_ = 0;  // of errno
};
Status write_log(const std::string& path, std::span<const LogTask> tasks, std::span<const LogEntry> entries,
                 std::span<const LogChoice> choices = {});

}  // namespace mcc::tuner
