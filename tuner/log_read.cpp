// Reading a log line by line, in bounded memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "support/hash.h"
#include "support/text.h"
#include "tuner/log_line.h"

namespace mcc::tuner {
namespace {

constexpr size_t kMaxComplaints = 20;
constexpr size_t kMaxTasks = 100'000, kMaxKeys = 200'000;

std::string errno_text() { return std::strerror(errno); }

Diagnostic unusable(const std::string& path, std::string message, std::string hint = "") {
  return {ErrorKind::tuning_log, path, std::move(message), std::move(hint)};
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

struct Kept {
  LogEntry entry;
  std::string trace;  // its key
  size_t bytes = 0;   // of its line
};

// The fastest of one LogKey, as many as may be beaten at once and one more.
using BestTimes = std::multimap<double, std::string>;  // microseconds, trace's key
constexpr size_t kMaxBestTimes = kMaxBeats + 1;

class Reader {
 public:
  Reader(const std::string& path, const LogReadOptions& options, LogContents& contents)
      : path_(path), options_(options), out_(contents) {}

  Status run() {
    Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.fd < 0) return unusable(path_, text("the tuning log cannot be read: ", errno_text()));
    struct stat info {};
    if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) return unusable(path_, "the tuning log is not a file");
    Status status = read_lines(file.fd);
    if (!status.ok()) return status;
    if (newest_ > 0 && out_.tasks.empty() && choices_.empty()) {
      return unusable(path_, text("the log is of version ", newest_, "; this mcc reads version ", kLogVersion),
                      "use the mcc that wrote it, or a newer one");
    }
    if (out_.skipped > 0 && out_.tasks.empty() && choices_.empty() && !begins_as_log_) {
      return unusable(path_, text("is not a tuning log: ", out_.complaints[0]),
                      "a log is what mcc tune or mcc log import has written");
    }
    collect();
    return done();
  }

 private:
  Status read_lines(int fd) {
    std::vector<char> buffer(size_t{1} << 18);
    std::string line;
    bool is_too_long = false;
    for (;;) {
      ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return unusable(path_, text("the tuning log cannot be read: ", errno_text()));
      if (got == 0) break;
      const char* at = buffer.data();
      const char* end = at + got;
      while (at < end) {
        const auto* newline = static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
        const char* stop = newline ? newline : end;
        if (!is_too_long && line.size() + static_cast<size_t>(stop - at) > kMaxLogLine) {
          is_too_long = true;
          line = {};
        }
        if (!newline) {
          if (!is_too_long) line.append(at, end);
          break;
        }
        // A line that lies whole in the buffer is not copied.
        bool is_whole = line.empty() && !is_too_long;
        if (!is_whole && !is_too_long) line.append(at, stop);
        Status status = take(is_whole ? std::string_view(at, static_cast<size_t>(stop - at)) : line, is_too_long);
        if (!status.ok()) return status;
        line.clear();
        is_too_long = false;
        at = newline + 1;
      }
    }
    if (!line.empty() || is_too_long) return take(line, is_too_long, /*is_last=*/true);
    return done();
  }

  Status take(std::string_view line, bool is_too_long, bool is_last = false) {
    ++out_.lines;
    if (is_too_long) {
      complain(text("expected at most ", kMaxLogLine >> 20, " MiB in a line, got more"));
      return done();
    }
    // A log whose first line was cut has nothing, but it is one.
    const std::string_view start = line.substr(0, kLogStart.size());
    if (out_.lines == 1) begins_as_log_ = (start.size() > 1 || is_last) && kLogStart.starts_with(start);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) return done();
    LogLine record = parse_log_line(line);
    switch (record.kind) {
      case LogLine::Kind::newer:
        newest_ = std::max(newest_, record.version);
        complain(text("the line is of version ", record.version, ", this mcc reads version ", kLogVersion));
        return done();
      case LogLine::Kind::bad:
        complain(is_last ? text("expected a whole line, got a cut one (", record.error, ")") : record.error);
        return done();
      case LogLine::Kind::task: take_task(std::move(record.task)); return done();
      case LogLine::Kind::choice: take_choice(std::move(record.choice)); return done();
      case LogLine::Kind::trial: take_trial(std::move(record.entry), record.trace_text, line.size()); return done();
    }
    MCC_UNREACHABLE("unknown kind of line");
  }

  void take_task(LogTask task) {
    auto [at, is_new] = task_index_.try_emplace(task.id, out_.tasks.size());
    if (!is_new) {
      if (out_.tasks[at->second].text != task.text) {
        complain(text("id: expected an id of its own, got that of another task, ", task.id));
      }
      return;
    }
    if (out_.tasks.size() == kMaxTasks) {
      task_index_.erase(at);
      return complain(text("expected at most ", kMaxTasks, " tasks"));
    }
    if (options_.on_task) options_.on_task(task);
    out_.tasks.push_back(std::move(task));
  }

  void take_choice(LogChoice choice) {
    choice.line = out_.lines;
    auto key = std::tuple(choice.problem, choice.device.target, choice.threads);
    auto found = choices_.find(key);
    if (found == choices_.end() && choices_.size() == kMaxKeys)
      return complain(text("expected at most ", kMaxKeys, " combinations of problem, target and threads"));
    if (options_.on_choice) options_.on_choice(choice);
    choices_.insert_or_assign(std::move(key), std::move(choice));
  }

  void take_trial(LogEntry entry, const std::string& trace_text, size_t bytes) {
    if (!task_index_.contains(entry.task)) {
      return complain(text("task: expected a task of a line before, got ", entry.task));
    }
    entry.line = out_.lines;
    LogKey key = key_of(entry);
    auto found = out_.counts.find(key);
    if (found == out_.counts.end() && out_.counts.size() == kMaxKeys) {
      return complain(
          text("expected at most ", kMaxKeys, " combinations of task, target, threads and sizes"));
    }
    bool is_seed = entry.source == "import";
    std::vector<Kept>* among = options_.keep == 0    ? nullptr
                               : is_seed             ? &seeds_[key]
                               : is_picked(entry)    ? &picked_[key]
                                                     : &best_[key];
    bool is_kept = is_wanted(entry, among);
    if (is_kept && kept_bytes_ + bytes > options_.most_bytes) {
      ++out_.beyond;
      is_kept = false;
    }
    if (is_kept) {
      Status status = resolve_trace(entry, trace_text);
      if (!status.ok()) {
        const Diagnostic& why = status.errors()[0];
        return complain(text(why.where, ": ", why.message));
      }
    }
    note_sizes(entry);
    LogCounts& counts = found == out_.counts.end() ? out_.counts[key] : found->second;
    count(counts, entry);
    const std::string trace = trace_key(trace_text);
    if (is_valid(entry)) {
      leave_behind(key, entry.beats);
      BestTimes& best = best_times_[key];
      best.emplace(entry.trial.measurement.best_us(), trace);
      if (best.size() > kMaxBestTimes) best.erase(std::prev(best.end()));
      counts.best_us = best.begin()->first;
    }
    if (options_.on_trial) options_.on_trial(entry, trace_text);
    if (!is_kept) return;
    kept_bytes_ += bytes;
    if (!among) {
      if (is_valid(entry)) with_trace_[{key, trace}].push_back(out_.entries.size());
      out_.entries.push_back(std::move(entry));
      return;
    }
    if (is_picked(entry)) {
      // The latest counts: it is from the newest rules.
      for (const Kept& before : *among) kept_bytes_ -= before.bytes;
      among->clear();
    }
    auto is_before = [](const LogEntry& a, const Kept& b) { return is_faster(a, b.entry); };
    auto at = is_seed ? among->end() : std::upper_bound(among->begin(), among->end(), entry, is_before);
    // The same schedule measured twice is one of the kept ones.
    among->insert(at, Kept{std::move(entry), trace, bytes});
    if (among->size() > static_cast<size_t>(options_.keep)) {
      kept_bytes_ -= among->back().bytes;
      among->pop_back();
    }
  }

  // What was measured goes before what analysis picked.
  void note_sizes(const LogEntry& entry) {
    if (entry.sizes.empty()) return;
    const LogKey key{entry.task, entry.device.target, entry.threads};
    if (is_valid(entry))
      has_measured_.insert(key);
    else if (!is_picked(entry) || has_measured_.contains(key))
      return;
    out_.last_sizes[key] = entry.sizes;
  }

  // What has been measured of these traces so far no longer counts.
  void leave_behind(const LogKey& key, const std::vector<std::string>& beaten) {
    if (beaten.empty()) return;
    auto is_out = [&](const std::string& trace) { return std::find(beaten.begin(), beaten.end(), trace) != beaten.end(); };
    std::erase_if(best_times_[key], [&](const auto& time) { return is_out(time.second); });
    if (options_.keep > 0) {
      std::erase_if(best_[key], [&](const Kept& kept) {
        if (is_out(kept.trace)) kept_bytes_ -= kept.bytes;
        return is_out(kept.trace);
      });
      return;
    }
    for (const std::string& trace : beaten) {
      auto at = with_trace_.find({key, trace});
      if (at == with_trace_.end()) continue;
      for (size_t entry : at->second) out_.entries[entry].is_beaten = true;
      with_trace_.erase(at);
    }
  }

  // Whether the entry is one of those to keep, by what is kept of its key so far.
  bool is_wanted(const LogEntry& entry, const std::vector<Kept>* among) const {
    if (options_.wants && !options_.wants(entry)) return false;
    if (!among) return true;
    bool is_full = among->size() >= static_cast<size_t>(options_.keep);
    if (entry.source == "import") return !is_full;
    if (is_picked(entry)) return true;
    if (is_valid(entry) && !entry.beats.empty()) return true;  // what is faster so far may be what it beats
    return is_valid(entry) && (!is_full || is_faster(entry, among->back().entry));
  }

  static void count(LogCounts& counts, const LogEntry& entry) {
    if (entry.source == "import") {
      ++counts.seeds;
      return;
    }
    if (is_picked(entry)) {
      ++counts.picked;
      counts.estimate_us = entry.estimate_us;
      return;
    }
    const Measurement& m = entry.trial.measurement;
    ++counts.trials;
    ++counts.errors[static_cast<size_t>(m.error)];
    if (!m.ok()) return;
    counts.censored += m.is_censored ? 1 : 0;
    counts.unchecked += m.is_checked ? 0 : 1;
    if (entry.source == "default") counts.default_us = m.best_us();
  }

  void collect() {
    for (auto& [key, choice] : choices_) out_.choices.push_back(std::move(choice));
    if (options_.keep == 0) return;
    for (auto* kept : {&best_, &seeds_, &picked_}) {
      for (auto& [key, entries] : *kept) {
        for (Kept& kept_entry : entries) out_.entries.push_back(std::move(kept_entry.entry));
      }
    }
    std::sort(out_.entries.begin(), out_.entries.end(),
              [](const LogEntry& a, const LogEntry& b) { return a.line < b.line; });
  }

  void complain(const std::string& reason) {
    ++out_.skipped;
    if (out_.complaints.size() < kMaxComplaints) out_.complaints.push_back(text(path_, ":", out_.lines, ": ", reason));
  }

  const std::string& path_;
  const LogReadOptions& options_;
  LogContents& out_;
  std::map<std::string, size_t, std::less<>> task_index_;
  std::map<std::tuple<std::string, std::string, int>, LogChoice> choices_;
  std::map<LogKey, std::vector<Kept>> best_, seeds_, picked_;
  std::map<LogKey, BestTimes> best_times_;
  std::map<std::pair<LogKey, std::string>, std::vector<size_t>> with_trace_;  // valid entries, where all are kept
  std::set<LogKey> has_measured_;  // of symbolic dimensions, without their sizes
  size_t kept_bytes_ = 0;
  bool begins_as_log_ = false;
  int64_t newest_ = 0;  // of the versions that are newer than this one
};

}  // namespace

bool is_valid(const LogEntry& entry) {
  const Measurement& m = entry.trial.measurement;
  return m.ok() && !m.times_us.empty() && m.is_checked && !m.is_censored && !entry.is_beaten && entry.source != "import";
}

std::string trace_key(const std::string& trace_text) { return hash_hex(trace_text); }

bool is_picked(const LogEntry& entry) { return entry.source == "picked"; }

bool is_faster(const LogEntry& a, const LogEntry& b) {
  double x = a.trial.measurement.best_us(), y = b.trial.measurement.best_us();
  return x != y ? x < y : a.line < b.line;
}

LogTask log_task(const Task& task) { return {task.id, task.name, task.text, task.work.flops, task.work.bytes}; }

LogKey key_of(const LogEntry& entry) { return {entry.task, entry.device.target, entry.threads, entry.sizes}; }

bool LogContents::has_last_sizes(const LogEntry& entry) const {
  const auto last = last_sizes.find({entry.task, entry.device.target, entry.threads});
  return last == last_sizes.end() || last->second == entry.sizes;
}

const LogTask* LogContents::find_task(std::string_view id) const {
  auto at = std::find_if(tasks.begin(), tasks.end(), [&](const LogTask& t) { return t.id == id; });
  return at == tasks.end() ? nullptr : &*at;
}

const LogChoice* LogContents::find_choice(std::string_view problem, std::string_view target, int threads) const {
  auto at = std::find_if(choices.begin(), choices.end(), [&](const LogChoice& c) {
    return c.problem == problem && c.device.target == target && c.threads == threads;
  });
  return at == choices.end() ? nullptr : &*at;
}

Result<LogContents> read_log(const std::string& path, const LogReadOptions& options) {
  LogContents contents;
  Status status = Reader(path, options, contents).run();
  if (!status.ok()) return status.errors();
  return contents;
}

std::string complaints_text(const std::string& path, const LogContents& contents) {
  std::string beyond;
  if (contents.beyond > 0) beyond = text(path, ": is so long that ", contents.beyond, " trials are only counted");
  if (contents.skipped == 0) return beyond;
  std::string out = text(path, ": ", contents.skipped, contents.skipped == 1 ? " line" : " lines", " of ",
                         contents.lines, " left out");
  for (const std::string& complaint : contents.complaints) out += "\n  " + complaint;
  auto shown = static_cast<int64_t>(contents.complaints.size());
  if (contents.skipped > shown) out += text("\n  and ", contents.skipped - shown, " more");
  return beyond.empty() ? out : text(out, "\n", beyond);
}

}  // namespace mcc::tuner
