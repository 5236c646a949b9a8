#include "tools/measure/race.h"

#include <algorithm>
#include <cmath>

namespace mcc::tools {

Race::Race(const RaceOptions& options, Timer time, Report report)
    : options_(options), time_(std::move(time)), report_(std::move(report)) {}

// What a candidate is to be compared with; 0: nothing yet.
double Race::bar_us() const {
  if (best_us_ <= 0) return options_.incumbent_us;
  return options_.incumbent_us > 0 ? std::min(best_us_, options_.incumbent_us) : best_us_;
}

int64_t Race::runs_of_block(double run_us) const {
  return std::max<int64_t>(1, std::llround(options_.block_us / std::max(run_us, 0.01)));
}

// A disturbed block counts only as long as there is no other.
RunBlock Race::take_block(Lane& lane) {
  const RunBlock block = time_(lane.candidate, runs_of_block(lane.best_us));
  lane.wall_us += block.wall_us;
  if (lane.times_us.empty()) lane.best_us = block.us;  // so far it was a single run
  lane.best_us = std::min(lane.best_us, block.us);
  if (lane.times_us.empty() || !block.is_disturbed) lane.times_us.push_back(block.us);
  return block;
}

void Race::enter(size_t candidate, double warm_us) {
  ++entered_;
  Lane lane;
  lane.candidate = candidate;
  lane.best_us = warm_us;
  const double bar = bar_us();
  const double limit = options_.hopeless * bar;
  // Far too slow, whatever else ran meanwhile. Less than that may be cold code and caches, or something that ran beside it:
  // such a candidate is timed again.
  if (bar > 0 && warm_us > options_.hopeless * limit && warm_us > 10 * options_.stage_us[0]) {
    lane.times_us.push_back(warm_us);
    lane.is_censored = true;
    return report_(lane);
  }
  const RunBlock first = time_(candidate, 1);
  lane.wall_us += first.wall_us;
  lane.best_us = first.us;
  if (bar > 0 && first.us > limit) {
    // A single run of a short kernel is mostly what its code's way into the caches takes.
    const RunBlock second = time_(candidate, runs_of_block(first.us));
    lane.wall_us += second.wall_us;
    lane.best_us = std::min(lane.best_us, second.us);
    if (lane.best_us > limit) {
      lane.times_us.push_back(lane.best_us);
      lane.is_censored = true;
      return report_(lane);
    }
  }
  // A long run is a block by itself.
  if (first.us >= options_.block_us && !first.is_disturbed) lane.times_us.push_back(first.us);
  const double wanted_us = stage_us(0, lane.best_us);
  double spare_us = wanted_us;  // for blocks that have to be repeated
  while (lane.times_us.empty() || lane.wall_us < wanted_us) {
    const RunBlock block = take_block(lane);
    if (block.is_disturbed && spare_us > 0) {
      spare_us -= block.wall_us;
      lane.wall_us -= block.wall_us;
    }
  }
  best_us_ = best_us_ <= 0 ? lane.best_us : std::min(best_us_, lane.best_us);
  lanes_.push_back(std::move(lane));
}

// The best of those left, but none that is clearly behind.
void Race::keep_best(size_t count) {
  std::stable_sort(lanes_.begin(), lanes_.end(),
                   [](const Lane& a, const Lane& b) { return a.best_us < b.best_us; });
  const double limit = options_.behind * bar_us();
  size_t kept = 0;
  while (kept < lanes_.size() && kept < count && lanes_[kept].best_us <= limit)
    ++kept;
  while (lanes_.size() > kept) {
    report_(lanes_.back());
    lanes_.pop_back();
  }
}

// The fastest quarter of at least eight blocks agrees.
bool Race::is_precise(const Lane& lane) const {
  if (lane.times_us.size() < 8) return false;
  std::vector<double> times = lane.times_us;
  auto quarter = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), quarter, times.end());
  return *quarter <= lane.best_us * (1 + options_.precision);
}

// An ordinary race has one run of what takes longer than a stage; a patient one at least 1, 2 and 4, as often as it is patient.
double Race::stage_us(int stage, double run_us) const {
  const double runs_us = options_.patience > 1 ? run_us * (1 << stage) : 0;
  return options_.patience * std::max(options_.stage_us[stage], runs_us);
}

// Blocks in turns until each candidate has had its time, or all are known well enough.
void Race::run_stage(double budget_us) {
  std::vector<double> left_us(lanes_.size(), budget_us), spare_us(lanes_.size(), budget_us);
  bool any = true;
  for (int round = 0; any; ++round) {
    any = false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (left_us[i] <= 0) continue;
      const RunBlock block = take_block(lanes_[i]);
      double& account = block.is_disturbed && spare_us[i] > 0 ? spare_us[i] : left_us[i];
      account -= block.wall_us;
      any = true;
    }
    const bool known =
        std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return is_precise(l); });
    if (known && round >= 4) break;
  }
  for (const Lane& lane : lanes_)
    best_us_ = std::min(best_us_, lane.best_us);
}

void Race::finish() {
  keep_best(std::max<size_t>((entered_ + 1) / 2, 1));
  run_stage(stage_us(1, best_us_));
  keep_best(3);
  run_stage(stage_us(2, best_us_));
  keep_best(1);
  if (lanes_.empty()) return;
  lanes_.front().is_winner = true;
  report_(lanes_.front());
  lanes_.clear();
}

}  // namespace mcc::tools
