// TopK of a GPU by ranks:
//
//   v, i = TopK(x, 300)    becomes    v, i = TopK(x, 300) {by_rank = 1}
//
// By steps (graph/ops/top_k.cpp) each pick waits for the one before, and one block of threads looks through its row again for each. An
// element's rank takes n comparisons of its own that all threads of the GPU share: less time for many picks of a row that is not too
// long.
#include <cmath>

#include "graph/ops/common.h"
#include "graph/passes/passes.h"

namespace mcc::graph {
namespace {

using tensor::Gpu;

constexpr double kThreads = 512;  // of the block that makes the steps
constexpr double kLanes = 128;    // of a multiprocessor, in a cycle

// Microseconds. A step: barriers and shuffles, then two passes over the row.
double time_by_steps(double rows, double n, double k, const Gpu& gpu) {
  constexpr double kCycles = 100, kInstructions = 12;
  const double a_step = kCycles + 2 * std::ceil(n / kThreads) * kInstructions * kThreads / kLanes;
  return std::ceil(rows / gpu.multiprocessors) * k * a_step / (gpu.ghz * 1e3);
}

// A launch for the ranks, one for the places of the first k.
double time_by_rank(double rows, double n, double k, const Gpu& gpu) {
  constexpr double kInstructions = 6;
  return rows * n * (n + k) * kInstructions / (kLanes * gpu.multiprocessors * gpu.ghz * 1e3) + gpu.launch_us;
}

}  // namespace

void rank_elements(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices) {
  if (target.kind != tensor::TargetKind::cuda) return;
  for (Node& node : graph.nodes) {
    if (node.dead || node.op->name != "TopK" || !node.op->domain.empty()) continue;
    const ValueId result = node.outputs[0] != kNoValue ? node.outputs[0] : node.outputs[1];
    const Shape &in = graph.value(node.inputs[0]).type.shape, &out = graph.value(result).type.shape;
    if (!is_static(in) || !is_static(out)) continue;
    const auto axis = static_cast<size_t>(normal_axis(node.attributes.integer("axis", -1), static_cast<int>(in.size())));
    const std::vector<int64_t> extents = static_shape(in);
    int64_t row_count = 1;
    for (size_t d = 0; d < extents.size(); ++d)
      row_count *= d == axis ? 1 : extents[d];
    const auto rows = static_cast<double>(row_count);
    const auto n = static_cast<double>(extents[axis]), k = static_cast<double>(static_shape(out)[axis]);
    const std::vector<Algorithm> algorithms = {{"by_steps", time_by_steps(rows, n, k, target.gpu)},
                                               {"by_rank", time_by_rank(rows, n, k, target.gpu)}};
    const std::string problem =
        text("the first ", static_shape(out)[axis], " of ", extents[axis], " elements, ", row_count, row_count == 1 ? " time" : " times");
    const size_t expected = algorithms[1].us < algorithms[0].us ? 1 : 0;
    if (choose_algorithm(problem, node, algorithms, expected, choices) == 1) node.attributes.set("by_rank", int64_t{1});
  }
}

}  // namespace mcc::graph
