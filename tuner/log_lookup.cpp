#include "tuner/log_lookup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "support/text.h"
#include "tuner/library_schedules.h"
#include "tuner/replay.h"
#include "tuner/sketch.h"

namespace mcc::tuner {
namespace {

// Entries of the same task, and of others, that are tried before the default is taken.
constexpr size_t kMaxTried = 16, kMaxOthersTried = 4;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

struct Numbers {
  std::string rest;  // the text with '#' for each number
  std::vector<int64_t> values;
};

// Words begin with a letter and may hold digits; numbers that are no integers are a part of the structure.
Numbers split_numbers(std::string_view text) {
  Numbers out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_name_char(text[end])) ++end;
    if (end == at) {
      out.rest += text[at++];
      continue;
    }
    std::string_view word = text.substr(at, end - at);
    int64_t value = 0;
    auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && stop == word.data() + word.size()) {
      out.rest += '#';
      out.values.push_back(value);
    } else {
      out.rest += word;
    }
    at = end;
  }
  return out;
}

// Decisions that follow from the number of threads more than from the kernel.
Point without_threads(const Point& point) {
  Point out;
  for (const auto& [name, answer] : point) {
    if (!name.ends_with(".parallel") && !name.ends_with(".chunks") && !name.ends_with(".grain")) out[name] = answer;
  }
  return out;
}

struct Replan {
  std::optional<tensor::Schedule> schedule;
  double share = 0;  // of the point's answers that were used
  std::string why_not;
};

Replan replan(const tensor::Func& f, const tensor::Target& target, const LogEntry& entry, bool keep_threads) {
  Replan out;
  const Candidate& c = entry.trial.candidate;
  auto sketches = all_sketches();
  auto sketch = std::find_if(sketches.begin(), sketches.end(), [&](const Sketch& s) { return s.name == c.sketch; });
  if (sketch == sketches.end()) {
    out.why_not = text("there is no sketch '", c.sketch.substr(0, 40), "'");
    return out;
  }
  Point point = keep_threads ? c.point : without_threads(c.point);
  if (point.empty()) {
    out.why_not = "it has no decisions to go by";
    return out;
  }
  PreferredDecider preferred;
  Planned planned = plan_point(*sketch, f, target, point, preferred);
  if (!planned.ok()) {
    out.why_not = planned.fits ? planned.outcome.detail : "its sketch is for other functions";
    return out;
  }
  size_t used = 0;
  for (const auto& [name, answer] : point) {
    auto at = planned.candidate.point.find(name);
    used += at != planned.candidate.point.end() && at->second == answer ? 1 : 0;
  }
  out.share = static_cast<double>(used) / static_cast<double>(point.size());
  // The planned function is replayed like any other trace: its bounds hold for all.
  Result<tensor::Schedule> schedule = replay(f, planned.candidate.trace);
  if (schedule.ok()) {
    out.schedule = std::move(*schedule);
  } else {
    out.why_not = schedule.errors()[0].message;
  }
  return out;
}

}  // namespace

std::string anchor_of(std::string_view text) { return split_numbers(text).rest; }

double distance_of(std::string_view a, std::string_view b) {
  std::vector<int64_t> x = split_numbers(a).values, y = split_numbers(b).values;
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (x[i] != y[i]) pairs.emplace(x[i], y[i]);
  }
  double distance = 0;
  for (auto [p, q] : pairs) {
    // Zero and one are not zero times apart.
    double u = std::abs(static_cast<double>(p)) + (p == 0 ? 0.5 : 0), v = std::abs(static_cast<double>(q)) + (q == 0 ? 0.5 : 0);
    distance += std::abs(std::log(u / v)) + ((p < 0) != (q < 0) ? 1 : 0);
  }
  return distance;
}

std::string_view to_text(Found found) {
  switch (found) {
    case Found::exact: return "exact";
    case Found::nearest: return "nearest";
    case Found::none: return "none";
  }
  MCC_UNREACHABLE("unknown way to find");
}

LogIndex::LogIndex(LogContents contents, bool with_libraries) : contents_(std::move(contents)) {
  for (const LogTask& task : contents_.tasks) {
    if (id_of_text_.try_emplace(task.text, task.id).second) anchors_[anchor_of(task.text)].push_back(task.id);
  }
  for (size_t i = 0; i < contents_.entries.size(); ++i) {
    // Times at other sizes say nothing of which is faster at these.
    if (!contents_.has_last_sizes(contents_.entries[i])) continue;
    if (!with_libraries && calls_library(contents_.entries[i].trial.candidate.trace)) continue;
    if (is_valid(contents_.entries[i])) by_task_[contents_.entries[i].task].push_back(i);
    if (is_picked(contents_.entries[i])) picked_[contents_.entries[i].task].push_back(i);
  }
  for (auto& [id, list] : picked_) std::reverse(list.begin(), list.end());
  for (auto& [id, list] : by_task_) {
    std::stable_sort(list.begin(), list.end(),
                     [&](size_t a, size_t b) { return is_faster(contents_.entries[a], contents_.entries[b]); });
  }
}

LogMatch LogIndex::find(const tensor::Func& f, const std::string& key, const tensor::Target& target, int threads) const {
  LogMatch match;
  const std::string fingerprint = target.fingerprint();
  auto describe = [&](const LogEntry& entry) {
    match.line = entry.line;
    match.sketch = entry.trial.candidate.sketch;
    match.best_us = entry.trial.measurement.best_us();
    match.sizes = entry.sizes;
    auto counts = contents_.counts.find(key_of(entry));
    if (counts != contents_.counts.end()) match.default_us = counts->second.default_us;
    for (size_t i : by_task_.at(entry.task)) {
      const LogEntry& other = contents_.entries[i];
      if (other.line == entry.line || key_of(other) != key_of(entry)) continue;
      if (to_text(other.trial.candidate.trace) == to_text(entry.trial.candidate.trace)) continue;
      match.runner_up_us = other.trial.measurement.best_us();
      break;
    }
  };
  auto note = [&](const LogEntry& entry, const std::string& why) {
    match.notes.push_back(text("line ", entry.line, ": ", why));
  };

  // The same task; of this target and number of threads as it stands, of others by its decisions.
  const auto id = id_of_text_.find(key);
  auto entries_of_task = [&](const auto& by_task) {
    const bool is_there = id != id_of_text_.end() && by_task.contains(id->second);
    return is_there ? by_task.at(id->second) : std::vector<size_t>();
  };
  // The first of these entries that can be replayed as it stands; the match has its schedule then.
  auto take_first = [&](const std::vector<size_t>& entries) -> const LogEntry* {
    size_t tried = 0;
    for (size_t i : entries) {
      const LogEntry& entry = contents_.entries[i];
      if (entry.device.target != fingerprint || entry.threads != threads) continue;
      if (tried++ == kMaxTried) break;
      Result<tensor::Schedule> schedule = replay(f, entry.trial.candidate.trace);
      if (!schedule.ok()) {
        note(entry, schedule.errors()[0].message);
        continue;
      }
      match.found = Found::exact;
      match.schedule = std::move(*schedule);
      match.confidence = 1;
      return &entry;
    }
    return nullptr;
  };
  const std::vector<size_t> own = entries_of_task(by_task_);
  if (const LogEntry* measured = take_first(own)) {
    describe(*measured);
    return match;
  }
  // What analysis picked for the very same task, where nothing has been measured.
  if (const LogEntry* picked = take_first(entries_of_task(picked_))) {
    match.is_picked = true;
    match.estimate_us = picked->estimate_us;
    match.line = picked->line;
    match.sketch = picked->trial.candidate.sketch;
    return match;
  }

  struct Option {
    const LogEntry* entry = nullptr;
    double confidence = 0;
    std::string reason;
  };
  std::vector<Option> options;
  auto consider = [&](size_t i, double distance, const std::string& what) {
    const LogEntry& entry = contents_.entries[i];
    bool is_same_target = entry.device.target == fingerprint, is_same_threads = entry.threads == threads;
    if (distance == 0 && is_same_target && is_same_threads) return;  // tried above
    if (calls_library(entry.trial.candidate.trace)) return;  // only where it was measured to be the best
    Option option{&entry, std::exp(-distance / 2), what};
    if (!is_same_threads) option.confidence *= 0.9, option.reason += text(option.reason.empty() ? "" : ", ", entry.threads, " threads");
    if (!is_same_target) option.confidence *= 0.5, option.reason += text(option.reason.empty() ? "" : ", ", "target ", entry.device.target);
    if (option.confidence >= kLeastConfidence) options.push_back(std::move(option));
  };
  for (size_t i : own) consider(i, 0, "");
  auto relatives = anchors_.find(anchor_of(key));
  if (relatives != anchors_.end()) {
    for (const std::string& relative : relatives->second) {
      if ((id != id_of_text_.end() && relative == id->second) || !by_task_.contains(relative)) continue;
      double distance = distance_of(key, contents_.find_task(relative)->text);
      for (size_t i : by_task_.at(relative)) consider(i, distance, text("task ", relative));
    }
  }
  std::stable_sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
    return a.confidence != b.confidence ? a.confidence > b.confidence : is_faster(*a.entry, *b.entry);
  });
  size_t tried = 0;
  for (const Option& option : options) {
    if (tried++ == kMaxOthersTried) break;
    Replan plan = replan(f, target, *option.entry, option.entry->threads == threads);
    double confidence = option.confidence * plan.share;
    if (!plan.schedule || confidence < kLeastConfidence) {
      note(*option.entry, plan.schedule ? text("only ", std::lround(plan.share * 100), " % of its decisions apply") : plan.why_not);
      continue;
    }
    match.found = Found::nearest;
    match.schedule = std::move(plan.schedule);
    match.confidence = confidence;
    match.reason = option.reason;
    describe(*option.entry);
    return match;
  }
  return match;
}

}  // namespace mcc::tuner
