// What rounding may make of a model's outputs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace mcc::tools {

// How far an output may be from another correct evaluation of the same graph, which adds the terms of its sums in another
// order: rounding errors of a sum of K terms grow like sqrt(K) where they are independent (Higham, Accuracy and Stability of
// Numerical Algorithms, 4.2), and those of operators in a row add up.
struct Rounding {
  int64_t longest_sum = 1;  // terms
  int depth = 0;            // sums in a row, at most
  double ulps = 1;          // sum over the worst path of sqrt(terms)
  double unit = 0;          // the model's own tensors on the way are rounded to so much of themselves: f16, bf16; 0: to f32

  // Of an output whose largest value is `largest`, in f32. The factor covers algorithms that cancel more (Winograd's).
  double absolute(double largest) const;
  // What operands that are rounded to `unit` of themselves add to that: their errors are independent, so those of sums in a row
  // grow like the root of how many there are.
  double of_operands(double unit, double largest) const;
};

// One for each output of the graph.
std::vector<Rounding> rounding_of_outputs(const graph::Graph& graph);

// The graph of another correct evaluation that quantises other values: at each step of quantisation (QuantizeLinear, QLinearConv, ...)
// numbers are as much larger as rounding may have made them since the one before, so that what is close to the border takes the next
// step. How far its results are from the graph's own is how far steps that are taken otherwise may move them. unit: as in of_operands().
// None: the graph quantises nothing.
std::optional<graph::Graph> with_other_steps(const graph::Graph& graph, double unit);

std::string to_text(const Rounding& rounding);  // "sums of up to 4608 terms, 53 in a row, tensors in f16"

}  // namespace mcc::tools
