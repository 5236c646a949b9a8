// The algorithms of a model's convolutions by measuring: the kernels that each gives, against each other.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/passes/algorithm_choices.h"
#include "tools/driver.h"

namespace mcc::tools {

// The convolutions of one problem that have a choice.
struct AlgorithmProblem {
  std::string name;                           // graph::AlgorithmQuestion::problem
  std::vector<std::string> origins;           // ONNX nodes of all of them
  std::vector<graph::AlgorithmCost> costs;    // expected, of each
  int64_t tile = 0;                           // by expected cost
};

// Collects them while the tasks of a model are extracted (graph::AlgorithmChoices::observer).
class AlgorithmQuestions {
 public:
  std::function<void(const graph::AlgorithmQuestion&)> observer();
  // Those that nobody has decided, in the order in which the model has them.
  std::vector<AlgorithmProblem> open() const;

 private:
  std::vector<AlgorithmProblem> problems_;
};

// What the kernels of a problem's convolutions take by each algorithm.
struct AlgorithmTimes {
  AlgorithmProblem problem;
  std::map<int64_t, double> us;  // by tile; without those that cannot be measured or are expected to be far slower
  int64_t best = 0;              // the problem's own unless another one is clearly faster
};

struct AlgorithmTuning {
  // Microseconds of a task by its default schedule, or the best that is known; infinity where it has none.
  std::function<Result<double>(const tuner::Task& task)> time;
  // Asked before each task: whether there is no time left.
  std::function<bool()> is_over;
};

// Compares the algorithms of each problem. `compile` makes the model's tasks, those of the problems as they are by default among
// them. Problems for which there was no time are left out.
Result<std::vector<AlgorithmTimes>> compare_algorithms(const CompileOptions& compile, const std::vector<AlgorithmProblem>& problems,
                                                       const AlgorithmTuning& tuning);

}  // namespace mcc::tools
