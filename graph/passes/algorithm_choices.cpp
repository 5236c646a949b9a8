#include "graph/passes/algorithm_choices.h"

#include <algorithm>

namespace mcc::graph {

int64_t choose_tile(const ConvProblem& problem, const Node& node, const tensor::Target& target, int64_t model_weight_bytes,
                    const AlgorithmChoices& choices) {
  AlgorithmQuestion question{to_text(problem), node.origins, algorithm_costs(problem, target, model_weight_bytes)};
  if (question.costs.size() == 1) return 0;
  auto known = choices.tiles.find(question.problem);
  question.is_known = known != choices.tiles.end() &&
                        std::any_of(question.costs.begin(), question.costs.end(),
                                    [&](const AlgorithmCost& cost) { return cost.tile == known->second; });
  question.tile = question.is_known ? known->second : best_tile(question.costs);
  if (choices.observer) choices.observer(question);
  return question.tile;
}

}  // namespace mcc::graph
