// Which algorithm an operator takes where a pass knows several: by expected cost, or as somebody has found by measuring.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

// The names are those of the tuning log (docs/tuning_log.md).
struct Algorithm {
  std::string name;
  double us = 0;  // expected
};

// An operator with a choice, and what is chosen.
struct AlgorithmQuestion {
  std::string problem;                // what is computed, in words: different for different ones
  std::vector<std::string> origins;   // ONNX nodes
  std::vector<Algorithm> algorithms;  // that there are
  size_t chosen = 0;                  // of these
  bool is_known = false;              // by somebody, not by expected cost
};

struct AlgorithmChoices {
  std::map<std::string, std::string> names;  // by problem; what is not in it, or has no such algorithm, goes by expected cost
  // Told of each operator with a choice; of one more than once where the graph is tried in several forms.
  std::function<void(const AlgorithmQuestion&)> observer;
};

// The algorithm of a node that several can compute, the one that a pass expects to be best unless another one is known to be.
size_t choose_algorithm(const std::string& problem, const Node& node, const std::vector<Algorithm>& algorithms, size_t expected,
                        const AlgorithmChoices& choices);

}  // namespace mcc::graph
