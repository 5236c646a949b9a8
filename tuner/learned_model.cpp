#include "tuner/learned_model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tensor/sizes.h"
#include "tuner/analyzer_cpu.h"
#include "tuner/analyzer_gpu.h"
#include "tuner/features.h"
#include "tuner/library_schedules.h"
#include "tuner/parallel.h"

extern "C" const char mcc_pretrained_trees_begin[], mcc_pretrained_trees_end[];

namespace mcc::tuner {

namespace {

static_assert(kModelColumns == kFeatures + 6);

constexpr double kNever = std::numeric_limits<double>::infinity();
// What failed counts as this many times slower than the slowest.
constexpr double kFailed = 2;

float log2_us(double us) { return static_cast<float>(std::log2(us + 0.01)); }

// How much an example counts: fast ones most; failures are worth knowing, too.
double weight_of(double best, double us) { return std::isfinite(us) ? 0.1 + best / us : 0.3; }

// Best time over time.
double speed(double best, double us) { return std::isfinite(us) && us > 0 ? best / us : 0; }

}  // namespace

std::span<const char> shipped_trees() {
  return {mcc_pretrained_trees_begin,
          static_cast<size_t>(mcc_pretrained_trees_end - mcc_pretrained_trees_begin)};
}

Described describe(const tensor::Func& scheduled, const tensor::Target& target) {
  Nest nest = nest_of(scheduled);
  Described d;
  std::array<float, 6> whole{};
  if (is_gpu(nest)) {
    d.estimated_us = estimate_us(nest, target);
    whole[0] = log2_us(d.estimated_us);
  } else {
    CpuEstimate e = estimate_cpu(nest, target);
    d.estimated_us = e.us;
    whole = {log2_us(e.us),    log2_us(e.compute_us), log2_us(e.l2_us),
             log2_us(e.l3_us), log2_us(e.dram_us),    log2_us(e.fork_us)};
  }
  for (const FeatureRow& row : features_of(nest)) {
    d.rows.insert(d.rows.end(), row.begin(), row.end());
    d.rows.insert(d.rows.end(), whole.begin(), whole.end());
  }
  return d;
}

std::vector<Sample> LearnedModel::samples() const {
  std::vector<Sample> list;
  for (const auto& [task, examples] : examples_) {
    double best = kNever, worst = 0;
    for (const Example& e : examples) {
      if (!std::isfinite(e.us)) continue;
      best = std::min(best, e.us);
      worst = std::max(worst, e.us);
    }
    if (!std::isfinite(best)) continue;
    auto ratio = [&](const Example& e) {
      double us = std::isfinite(e.us) ? e.us : kFailed * worst;
      return std::log2(us / std::max(e.described.estimated_us, 1e-3));
    };
    // The task's own constant: the mean of the ratios, weighted as below.
    double sum = 0, weights = 0;
    for (const Example& e : examples) {
      double w = weight_of(best, e.us);
      sum += w * ratio(e);
      weights += w;
    }
    for (const Example& e : examples) {
      double y = speed(best, e.us), weight = weight_of(best, e.us);
      list.push_back({e.described.rows, options_.has_base ? ratio(e) - sum / weights : y, weight});
    }
  }
  return list;
}

std::string LearnedModel::pretrain(int trees) const {
  BoostedTrees boosted(kModelColumns);
  boosted.fit(samples(), trees);
  return boosted.save();
}

void LearnedModel::refit() {
  size_t count = 0;
  for (const auto& [task, examples] : examples_)
    count += examples.size();
  if (trees_ && static_cast<double>(count) < 1.2 * static_cast<double>(fitted_)) return;
  trees_ = std::make_unique<BoostedTrees>(kModelColumns);
  if (!options_.pretrained.empty()) trees_->load(options_.pretrained);
  if (count >= static_cast<size_t>(options_.first_trial)) {
    trees_->fit(samples(), options_.trees);
    fitted_ = count;
  } else {
    fitted_ = 0;
  }
}

void LearnedModel::learn(const std::string& task, std::vector<Example> examples) {
  examples_[task] = std::move(examples);
  refit();
}

std::vector<double> LearnedModel::predict(const std::string&, std::span<const Described> schedules) {
  if (!trees_) refit();
  std::vector<std::span<const float>> programs;
  for (const Described& d : schedules)
    programs.emplace_back(d.rows);
  std::vector<double> scores = trees_->predict(programs);
  if (!options_.has_base) return scores;
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = -(std::log2(std::max(schedules[i].estimated_us, 1e-3)) + scores[i]);
  }
  return scores;
}

void LearnedModel::learn(const Task& task, std::span<const Trial> trials) {
  std::map<std::string, Example>& known = described_[task.text];
  std::vector<std::pair<std::string, const Trial*>> wanted;  // by trace
  std::map<std::string, const Trial*> unknown;
  for (const Trial& t : trials) {
    if (calls_library(t.candidate.trace)) continue;  // its loops say nothing of its time
    wanted.emplace_back(tensor::to_text(t.candidate.trace), &t);
    if (!known.contains(wanted.back().first)) unknown.insert(wanted.back());
  }
  // Replaying and describing one takes some milliseconds.
  const std::vector<std::pair<std::string, const Trial*>> list(unknown.begin(), unknown.end());
  std::vector<std::optional<Described>> described =
      parallel_map<std::optional<Described>>(list.size(), [&](size_t i) {
        tensor::Schedule schedule(task.func);
        const bool is_replayed = static_cast<bool>(schedule.replay(list[i].second->candidate.trace));
        return is_replayed ? std::optional(describe(tensor::at_first_sample(schedule.func()), target_))
                           : std::nullopt;
      });
  for (size_t i = 0; i < list.size(); ++i)
    if (described[i]) known.emplace(list[i].first, Example{std::move(*described[i]), 0});
  std::vector<Example> examples;
  for (const auto& [trace, trial] : wanted) {
    auto it = known.find(trace);
    if (it == known.end()) continue;
    Example example = it->second;
    example.us = trial->measurement.ok() ? trial->measurement.best_us() : kNever;
    examples.push_back(std::move(example));
  }
  learn(task.text, std::move(examples));
}

std::vector<double> LearnedModel::predict(const Task& task, std::span<const Planned> schedules) {
  return predict(task.text, parallel_map<Described>(schedules.size(), [&](size_t i) {
                   return describe(schedules[i].func, target_);
                 }));
}

}  // namespace mcc::tuner
