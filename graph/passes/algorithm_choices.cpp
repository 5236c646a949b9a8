#include "graph/passes/algorithm_choices.h"

#include <algorithm>

namespace mcc::graph {

size_t choose_algorithm(const std::string& problem, const Node& node, const std::vector<Algorithm>& algorithms, size_t expected,
                        const AlgorithmChoices& choices) {
  if (algorithms.size() < 2) return expected;
  AlgorithmQuestion question{problem, node.origins, algorithms, expected};
  if (auto known = choices.names.find(problem); known != choices.names.end()) {
    auto at = std::find_if(algorithms.begin(), algorithms.end(), [&](const Algorithm& a) { return a.name == known->second; });
    question.is_known = at != algorithms.end();
    if (question.is_known) question.chosen = static_cast<size_t>(at - algorithms.begin());
  }
  if (choices.observer) choices.observer(question);
  return question.chosen;
}

}  // namespace mcc::graph
