// How good a cost model is, on schedules whose times are known (the figures of TenSet and Pruner).
#pragma once

#include <cstdint>
#include <span>

namespace mcc::tuner {

// `scores`: the larger, the faster a schedule is taken to be. `times`: measured, of the same schedules; infinite for
// failed ones. Equal lengths.

// Share of the pairs of different times that the scores put into the right order; equal scores count half. 1 without any pair.
double pairwise_accuracy(std::span<const double> scores, std::span<const double> times);

// How many of the k fastest are among the k with the largest scores, of k. Ties of scores go by position; ties of times
// in the schedules' favour.
double top_k_recall(std::span<const double> scores, std::span<const double> times, size_t k);

// What measuring the k schedules with the largest scores brings: best time of all over best time of those; averaged over
// 1..k measured ones. 1 is perfect, 0 means that all of them failed.
double peak_at_k(std::span<const double> scores, std::span<const double> times, size_t k);

// Best time of all over the best among the k with the largest scores: without the average.
double best_at_k(std::span<const double> scores, std::span<const double> times, size_t k);

}  // namespace mcc::tuner
