// What schedules are worth before they are measured.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tuner/nest.h"
#include "tuner/sketch.h"

namespace mcc::tuner {

// Learns from measurements, ranks what has none.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // A score for each schedule: the larger, the faster it is taken to be. Scores are comparable within one task only.
  virtual std::vector<double> predict(const Task& task, std::span<const Planned> schedules) = 0;
  // All trials of a task so far, failed ones included.
  virtual void learn(const Task& task, std::span<const Trial> trials) = 0;
};

// "analyzer" (static), "xgboost" or "auto"; null for "none" and for a name that is not in cost_model_names().
std::unique_ptr<CostModel> make_cost_model(std::string_view name, const tensor::Target& target,
                                           uint64_t seed);
std::vector<std::string_view> cost_model_names();

// What the static analyser takes a schedule to cost, in microseconds.
double estimate_us(const Nest& nest, const tensor::Target& target);

}  // namespace mcc::tuner
