// What a log says for a kernel: the best valid schedule of the very same task, else one made from a task of the same
// structure. Nothing is measured, and nothing of the log is believed before it has been applied and checked.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/target.h"
#include "tuner/log.h"

namespace mcc::tuner {

// A task's text without its numbers: equal for functions of the same structure and other extents. Floating-point
// constants stay.
std::string anchor_of(std::string_view text);
// How far two texts of the same anchor are apart: the sum of |ln(a / b)| over the different pairs of numbers at the same
// places. 0 for equal ones.
double distance_of(std::string_view a, std::string_view b);

enum class Found : uint8_t { exact, nearest, none };
std::string_view to_text(Found found);

struct LogMatch {
  Found found = Found::none;
  std::optional<tensor::Schedule> schedule;  // unless none
  std::string sketch;
  // 1 for an exact match; below that, how much of the point could be used times exp(-distance / 2); a point of another
  // number of threads counts 0.9, of another target 0.5.
  double confidence = 0;
  double best_us = 0, runner_up_us = 0, default_us = 0;  // as measured for the entry's task; 0: not in the log
  std::vector<int64_t> sizes;                            // of symbolic dimensions, that these times are of
  // An exact match that nobody has measured: only where no measured one of this task, target and number of threads applies.
  bool is_picked = false;
  double estimate_us = 0;  // of a picked one
  int64_t line = 0;
  std::string reason;  // of a nearest match: what is different; else empty
  std::vector<std::string> notes;  // entries that were refused, and why
};

class LogIndex {
 public:
  // Below this a nearest match is none.
  static constexpr double kLeastConfidence = 0.25;

  LogIndex() = default;
  // Without libraries: as if nothing in it called one (tuner/library_schedules.h).
  explicit LogIndex(LogContents contents, bool with_libraries = true);

  const LogContents& contents() const { return contents_; }
  // Deterministic: the same log, function and target give the same match.
  LogMatch find(const tensor::Func& f, const std::string& text, const tensor::Target& target, int threads) const;

 private:
  LogContents contents_;
  std::map<std::string, std::vector<size_t>> by_task_;     // valid entries of each task, the fastest first
  std::map<std::string, std::vector<size_t>> picked_;      // of each task, the latest first
  std::map<std::string, std::string> id_of_text_;
  std::map<std::string, std::vector<std::string>> anchors_;  // -> ids
};

// How many entries of each task, target and number of threads a LogIndex should be given.
inline constexpr int kIndexedEntries = 16;

}  // namespace mcc::tuner
