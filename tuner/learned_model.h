// The cost models that learn: what the analyser says, corrected by boosted trees over the features of all stores.
//
// With the analyser as a base ("auto"), trees learn the logarithm of measured over estimated time, up to one constant a
// task, and fast schedules count more than slow ones. Without it ("xgboost") they learn Ansor's label, best time over
// time.
#pragma once

#include <map>

#include "tuner/boosted_trees.h"
#include "tuner/cost_model.h"

namespace mcc::tuner {

// What the trees see of a schedule: for each store its 164 features, and what the analyser says of the whole.
inline constexpr size_t kModelColumns = 164 + 6;
struct Described {
  std::vector<float> rows;
  double estimated_us = 0;
};
Described describe(const tensor::Func& scheduled, const tensor::Target& target);

// A schedule of a task with its time; infinite for one that failed.
struct Example {
  Described described;
  double us = 0;
};

struct LearnedOptions {
  bool has_base = true;                   // the analyser's estimate
  std::span<const char> pretrained = {};  // trees to start from; must outlive the model
  int trees = 50;                         // added for the measurements at hand
  int first_trial = 32;                   // before so many measurements, what is known from elsewhere decides
};

class LearnedModel : public CostModel {
 public:
  LearnedModel(const tensor::Target& target, const LearnedOptions& options)
      : target_(target), options_(options) {}

  std::vector<double> predict(const Task& task, std::span<const Planned> schedules) override;
  void learn(const Task& task, std::span<const Trial> trials) override;

  // The same on descriptions, for tests and for making the shipped trees. `task` is any name.
  void learn(const std::string& task, std::vector<Example> examples);
  std::vector<double> predict(const std::string& task, std::span<const Described> schedules);
  // Trees fitted to everything learned, without the shipped ones.
  std::string pretrain(int trees) const;

 private:
  std::vector<Sample> samples() const;
  void refit();

  tensor::Target target_;
  LearnedOptions options_;
  std::map<std::string, std::vector<Example>> examples_;             // by task
  std::map<std::string, std::map<std::string, Example>> described_;  // by task and trace: replayed once
  std::unique_ptr<BoostedTrees> trees_;
  size_t fitted_ = 0;  // examples that the trees have seen
};

// The trees that mcc ships, empty if it ships none.
std::span<const char> shipped_trees();

}  // namespace mcc::tuner
