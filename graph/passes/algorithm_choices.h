// Which algorithm convolutions take where there are several: by expected cost, or as somebody has found by measuring.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/passes/convolution_cost.h"

namespace mcc::graph {

// A convolution with a choice, and what is chosen.
struct AlgorithmQuestion {
  std::string problem;               // to_text(ConvProblem)
  std::vector<std::string> origins;  // ONNX nodes
  std::vector<AlgorithmCost> costs;  // of what there is, direct first
  int64_t tile = 0;                  // chosen
  bool is_known = false;             // by somebody, not by expected cost
};

struct AlgorithmChoices {
  std::map<std::string, int64_t> tiles;  // by problem; what is not in it, or has no such algorithm, goes by expected cost
  // Told of each convolution with a choice; of one more than once where the graph is tried in several layouts.
  std::function<void(const AlgorithmQuestion&)> observer;
};

// The tile (AlgorithmCost) of a convolution in f32 for which every algorithm is allowed.
int64_t choose_tile(const ConvProblem& problem, const Node& node, const tensor::Target& target, int64_t model_weight_bytes,
                    const AlgorithmChoices& choices);

}  // namespace mcc::graph
