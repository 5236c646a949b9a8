// Gradient-boosted trees over programs of several rows (stores): a program's prediction is the sum over its rows, as in
// Ansor's cost model. The trees are XGBoost's; deterministic (one thread, fixed seed).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mcc::tuner {

struct Sample {
  std::span<const float> rows;  // one row after the other
  double label = 0;             // what the sum should be
  double weight = 1;
};

class BoostedTrees {
 public:
  explicit BoostedTrees(size_t columns);
  ~BoostedTrees();
  BoostedTrees(const BoostedTrees&) = delete;
  BoostedTrees& operator=(const BoostedTrees&) = delete;

  // Trees made before, as save() gives them. They are mcc's own data: anything else is a bug and checked as such.
  void load(std::span<const char> bytes);
  std::string save() const;
  // Adds `trees` trees that lessen the weighted squared error.
  void fit(std::span<const Sample> samples, int trees);
  // Sums of each program; 0 without trees.
  std::vector<double> predict(std::span<const std::span<const float>> programs) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mcc::tuner
