// The algorithms of a model's operators by measuring: the kernels that each gives, against each other.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/passes/algorithm_choices.h"
#include "tools/driver.h"

namespace mcc::tools {

// The operators of one problem that have a choice.
struct AlgorithmProblem {
  std::string name;                          // graph::AlgorithmQuestion::problem
  std::vector<std::string> origins;          // ONNX nodes of all of them
  std::vector<graph::Algorithm> algorithms;  // those that may be best, at least two
  std::string expected;                      // of these: what the model has while nobody has decided
};

// Collects them while the tasks of a model are extracted (graph::AlgorithmChoices::observer).
class AlgorithmQuestions {
 public:
  std::function<void(const graph::AlgorithmQuestion&)> observer();
  // Those that nobody has decided, in the order in which the model has them.
  const std::vector<AlgorithmProblem>& open() const { return problems_; }

 private:
  std::vector<AlgorithmProblem> problems_;
};

// What the kernels of a problem's operators take by each algorithm.
struct AlgorithmTimes {
  AlgorithmProblem problem;
  std::map<std::string, double> us;  // without those that cannot be measured
  std::string best;                  // the expected one unless another one is clearly faster
};

struct AlgorithmTuning {
  // Measures tasks by their default schedules, as many as there is time for, the first ones first.
  std::function<Status(std::span<const tuner::Task* const> tasks)> measure;
  // Microseconds by the default schedule, or the best that is known; infinity where it cannot be measured. Nothing where there was
  // no time for it.
  std::function<std::optional<double>(const tuner::Task& task)> time;
  std::function<bool()> is_over;  // there is no time left
};

// Compares the algorithms of each problem in the model that `compile` is for. Problems for which there was no time, or whose
// algorithms make the same kernels, are left out.
Result<std::vector<AlgorithmTimes>> compare_algorithms(const CompileOptions& compile, const std::vector<AlgorithmProblem>& problems,
                                                       const AlgorithmTuning& tuning);

}  // namespace mcc::tools
