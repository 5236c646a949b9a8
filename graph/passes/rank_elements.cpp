// How TopK finds its picks. On CPUs by a tournament of groups of elements (attribute group), which looks at each element once; step by step where
// a value and its position do not fit into one integer. On GPUs by ranks:
//
//   v, i = TopK(x, 300)    becomes    v, i = TopK(x, 300) {by_rank = 1}    or    v, i = TopK(x, 300) {part = 128, gap = 16}
//
// By steps (graph/ops/top_k.cpp) each pick waits for the one before, and one block of threads looks through its row again for each. An
// element's rank takes n comparisons of its own that all threads of the GPU share: less time for many picks of a row that is not too
// long. Of a long one each element is compared with those of its part, and the few that come into question then with each other: far
// fewer comparisons, in more launches.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/ops/common.h"
#include "graph/ops/tournament.h"
#include "graph/passes/passes.h"

namespace mcc::graph {
namespace {

using tensor::Gpu;

constexpr double kThreads = 512;  // of the block that makes the steps
constexpr double kLanes = 128;    // of a multiprocessor, in a cycle

// Microseconds. A step: barriers and shuffles, then two passes over the row. Launches in front and behind.
double time_by_steps(double rows, double n, double k, const Gpu& gpu) {
  constexpr double kCycles = 100, kInstructions = 12, kLaunches = 5;
  const double a_step = kCycles + 2 * std::ceil(n / kThreads) * kInstructions * kThreads / kLanes;
  return std::ceil(rows / gpu.multiprocessors) * k * a_step / (gpu.ghz * 1e3) + kLaunches * gpu.launch_us;
}

// A launch for the ranks, one for the places of the first k, one for what is there.
double time_by_rank(double rows, double n, double k, const Gpu& gpu) {
  constexpr double kInstructions = 10, kLaunches = 3;
  return rows * n * (n + k) * kInstructions / (kLanes * gpu.multiprocessors * gpu.ghz * 1e3) + kLaunches * gpu.launch_us;
}

// Parts of a row, and how far apart samples are in the order of a part's elements.
struct Parts {
  int64_t part = 0, gap = 0;
  double us = std::numeric_limits<double>::infinity();
};

double time_by_parts(double rows, double n, double k, double part, double gap, const Gpu& gpu) {
  constexpr double kInstructions = 10, kCycles = 12, kLaunches = 13;
  const double parts = std::ceil(n / part), samples = n / gap, candidates = std::min(n, k + gap + parts * (gap - 1));
  const double ranks = n * part + samples * samples + candidates * candidates;
  const double places = samples * part + candidates * (part + parts) + k * candidates + parts * parts;
  // One thread goes through a part, some go through the samples and candidates together.
  const double wait = (part + (samples + candidates) / 32) * kCycles;
  return (rows * (ranks + places) * kInstructions / (kLanes * gpu.multiprocessors) + wait) / (gpu.ghz * 1e3) + kLaunches * gpu.launch_us;
}

Parts best_parts(double rows, double n, double k, const Gpu& gpu) {
  Parts best;
  for (const int64_t part : {64, 128, 256, 512}) {
    for (const int64_t gap : {4, 8, 16, 32}) {
      if (n < 4 * static_cast<double>(part)) continue;
      const double us = time_by_parts(rows, n, k, static_cast<double>(part), static_cast<double>(gap), gpu);
      if (us < best.us) best = {part, gap, us};
    }
  }
  return best;
}

// Elements of a group of a tournament on a CPU, each of which a pick looks at, while the games before the first pick are as many as there are
// groups.
int64_t group_size(const Expr& elements, const Expr& picks) {
  constexpr int64_t kLeast = 4, kMost = 64, kUnknown = 16;
  const std::optional<int64_t> n = static_dim(elements), k = static_dim(picks);
  if (!n || !k) return kUnknown;
  int64_t group = kLeast;
  while (group < kMost && group * group * std::max<int64_t>(*k, 1) < *n)
    group *= 2;
  return group;
}

void choose_for_gpu(Node& node, const Shape& in, const Shape& out, size_t axis, const tensor::Gpu& gpu,
                    const AlgorithmChoices& choices) {
  if (!is_static(in) || !is_static(out)) return;
  const std::vector<int64_t> extents = static_shape(in);
  int64_t row_count = 1;
  for (size_t d = 0; d < extents.size(); ++d)
    row_count *= d == axis ? 1 : extents[d];
  const auto rows = static_cast<double>(row_count);
  const auto n = static_cast<double>(extents[axis]), k = static_cast<double>(static_shape(out)[axis]);
  std::vector<Algorithm> algorithms = {{"by_steps", time_by_steps(rows, n, k, gpu)},
                                       {"by_rank", time_by_rank(rows, n, k, gpu)}};
  const Parts parts = best_parts(rows, n, k, gpu);
  if (parts.part != 0) algorithms.push_back({"by_parts", parts.us});
  const std::string problem = text("the first ", static_shape(out)[axis], " of ", extents[axis],
                                   " elements, ", row_count, row_count == 1 ? " time" : " times");
  const auto least = std::min_element(algorithms.begin(), algorithms.end(),
                                      [](const Algorithm& a, const Algorithm& b) { return a.us < b.us; });
  const size_t chosen =
      choose_algorithm(problem, node, algorithms, static_cast<size_t>(least - algorithms.begin()), choices);
  if (chosen == 1) node.attributes.set("by_rank", int64_t{1});
  if (chosen == 2) {
    node.attributes.set("part", parts.part);
    node.attributes.set("gap", parts.gap);
  }
}

}  // namespace

void rank_elements(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices) {
  for (Node& node : graph.nodes) {
    if (node.dead || node.op->name != "TopK" || !node.op->domain.empty()) continue;
    const ValueId result = node.outputs[0] != kNoValue ? node.outputs[0] : node.outputs[1];
    const TensorType& in = graph.value(node.inputs[0]).type;
    const Shape& out = graph.value(result).type.shape;
    const auto axis = static_cast<size_t>(
        normal_axis(node.attributes.integer("axis", -1), static_cast<int>(in.shape.size())));
    if (target.kind == tensor::TargetKind::cuda)
      choose_for_gpu(node, in.shape, out, axis, target.gpu, choices);
    else if (has_element_key(in.element) && static_dim(in.shape[axis]).value_or(0) <= kMostKeyPositions)
      node.attributes.set("group", group_size(in.shape[axis], out[axis]));
  }
}

}  // namespace mcc::graph
