// CumSum and CumProd of a GPU in parts:
//
//   y = CumSum(x, axis)    becomes    y = CumSum(x, axis) {part = 64}
//
// Element by element (graph/ops/scan.cpp) a line is one thread's, which waits for what it has just written. In parts, every result goes through
// the elements of its part, from what the parts before come to, which is found the same way: more arithmetic, and some launches,
// none of them long. Sums of floats are added up in another order.
#include <cmath>
#include <limits>

#include "graph/ops/common.h"
#include "graph/passes/passes.h"

namespace mcc::graph {
namespace {

using tensor::Gpu;

constexpr double kLanes = 128;  // of a multiprocessor, in a cycle

// Microseconds. A step loads two numbers, one of which has just been stored, and stores their sum.
double time_in_order(double lines, double n, const Gpu& gpu) {
  constexpr double kCycles = 40,
                   kResident = 1024;  // threads of a multiprocessor that do not keep each other waiting
  return n * kCycles * std::max(1.0, lines / (kResident * gpu.multiprocessors)) / (gpu.ghz * 1e3) +
         gpu.launch_us;
}

// Two launches for each time that the line, or what its parts come to, is divided; one for what is left.
double time_by_parts(double lines, int64_t n, int64_t part, const Gpu& gpu) {
  constexpr double kCycles = 12, kInstructions = 8;  // of a step of one thread; of an element
  const auto step_us = [&](int64_t steps) { return static_cast<double>(steps) * kCycles / (gpu.ghz * 1e3); };
  const auto work_us = [&](int64_t results, int64_t steps) {
    return lines * static_cast<double>(results * steps) * kInstructions /
           (kLanes * gpu.multiprocessors * gpu.ghz * 1e3);
  };
  double us = 0;
  for (; n > 2 * part; n = (n + part - 1) / part)
    us += std::max(step_us(part), work_us(n, 1)) + std::max(step_us(part), work_us(n, part)) +
          2 * gpu.launch_us;
  return us + std::max(step_us(n), work_us(n, n)) + gpu.launch_us;
}

// The elements of a part that are expected to be best; 0 for a line that is shorter than two of the smallest.
int64_t best_part(double lines, int64_t n, const Gpu& gpu) {
  int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const int64_t part : {16, 32, 64, 128, 256}) {
    const double us = time_by_parts(lines, n, part, gpu);
    if (n <= 2 * part || us >= least) continue;
    best = part;
    least = us;
  }
  return best;
}

bool is_scan(const Node& node) {
  return !node.dead && node.op->domain.empty() && (node.op->name == "CumSum" || node.op->name == "CumProd");
}

}  // namespace

void divide_scans(Graph& graph, const tensor::Target& target, bool strict, const AlgorithmChoices& choices) {
  if (target.kind != tensor::TargetKind::cuda) return;
  for (Node& node : graph.nodes) {
    if (!is_scan(node)) continue;
    const TensorType& type = graph.value(node.inputs[0]).type;
    const std::optional<Constant>& along = graph.value(node.inputs[1]).constant;
    if (!is_static(type.shape) || !along || (strict && is_float(type.element))) continue;
    const std::vector<int64_t> extents = static_shape(type.shape);
    const auto axis = static_cast<size_t>(normal_axis(along->int_at(0), static_cast<int>(extents.size())));
    int64_t lines = 1;
    for (size_t d = 0; d < extents.size(); ++d)
      lines *= d == axis ? 1 : extents[d];
    const int64_t n = extents[axis], part = best_part(static_cast<double>(lines), n, target.gpu);
    if (part == 0 || lines == 0) continue;
    const auto count = static_cast<double>(lines);
    const std::vector<Algorithm> algorithms = {
        {"in_order", time_in_order(count, static_cast<double>(n), target.gpu)},
        {"by_parts", time_by_parts(count, n, part, target.gpu)}};
    const std::string problem =
        text(node.op->name, " of lines of ", n, " elements, ", lines, lines == 1 ? " time" : " times");
    const size_t expected = algorithms[1].us < algorithms[0].us ? 1 : 0;
    if (choose_algorithm(problem, node, algorithms, expected, choices) == 1)
      node.attributes.set("part", part);
  }
}

}  // namespace mcc::graph
