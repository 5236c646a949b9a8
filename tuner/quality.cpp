#include "tuner/quality.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "support/check.h"

namespace mcc::tuner {

namespace {

std::vector<size_t> by_score(std::span<const double> scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

double share_of(double best, double time) { return std::isfinite(time) && time > 0 ? best / time : 0; }

}  // namespace

double pairwise_accuracy(std::span<const double> scores, std::span<const double> times) {
  MCC_CHECK(scores.size() == times.size(), "scores and times differ in number");
  double right = 0;
  int64_t pairs = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    for (size_t j = i + 1; j < times.size(); ++j) {
      if (times[i] == times[j]) continue;
      ++pairs;
      if (scores[i] == scores[j]) {
        right += 0.5;
      } else {
        right += (scores[i] > scores[j]) == (times[i] < times[j]) ? 1 : 0;
      }
    }
  }
  return pairs == 0 ? 1 : right / static_cast<double>(pairs);
}

double top_k_recall(std::span<const double> scores, std::span<const double> times, size_t k) {
  MCC_CHECK(scores.size() == times.size(), "scores and times differ in number");
  k = std::min(k, times.size());
  if (k == 0) return 1;
  std::vector<double> sorted(times.begin(), times.end());
  std::sort(sorted.begin(), sorted.end());
  double limit = sorted[k - 1];
  std::vector<size_t> order = by_score(scores);
  auto hits = std::count_if(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k),
                            [&](size_t i) { return times[i] <= limit; });
  return static_cast<double>(hits) / static_cast<double>(k);
}

double peak_at_k(std::span<const double> scores, std::span<const double> times, size_t k) {
  MCC_CHECK(scores.size() == times.size(), "scores and times differ in number");
  k = std::min(k, times.size());
  if (k == 0) return 1;
  double best = *std::min_element(times.begin(), times.end());
  double so_far = std::numeric_limits<double>::infinity(), sum = 0;
  std::vector<size_t> order = by_score(scores);
  for (size_t n = 0; n < k; ++n) {
    so_far = std::min(so_far, times[order[n]]);
    sum += share_of(best, so_far);
  }
  return sum / static_cast<double>(k);
}

double best_at_k(std::span<const double> scores, std::span<const double> times, size_t k) {
  MCC_CHECK(scores.size() == times.size(), "scores and times differ in number");
  k = std::min(k, times.size());
  if (k == 0) return 1;
  double best = *std::min_element(times.begin(), times.end());
  double found = std::numeric_limits<double>::infinity();
  std::vector<size_t> order = by_score(scores);
  for (size_t n = 0; n < k; ++n)
    found = std::min(found, times[order[n]]);
  return share_of(best, found);
}

}  // namespace mcc::tuner
