// GridSample and RoiAlign of CPUs with the channels last: what is read of a place is one piece of memory then, in vectors, for all
// channels at once, and a place is looked up, and its weights are computed, once.
//
//   y = GridSample(x, grid)    becomes    y = Transpose(mcc.GridSample(Transpose(x), grid))
//
// In front of sink_transposes, as attention of several levels reads what has its channels last anyway. Few channels stay where they are:
// vectors along the places gather them. GPUs compute each element by itself.
#include <cmath>

#include "graph/ops/sample.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// Elements of a vector that are read side by side, and those which are gathered, in cycles; a transposed element.
constexpr double kSideBySide = 0.15, kGathered = 1.5, kTransposed = 0.5;
constexpr int64_t kFewChannels = 4;  // less are no vector

double count_of(const Shape& shape, double open) {
  double count = 1;
  for (const Expr& d : shape) {
    const std::optional<int64_t> n = static_dim(d);
    count *= n ? static_cast<double>(*n) : open;
  }
  return count;
}

// Elements of x that are read for each of the results.
double taps_of(const Graph& g, const Node& node) {
  if (node.op->name == "RoiAlign") {
    // 0: as many as data says, usually some.
    const auto samples = static_cast<double>(node.attributes.integer("sampling_ratio", 0));
    return samples == 0 ? 16 : 4 * samples * samples;
  }
  const std::string mode = node.attributes.text("mode", "linear");
  const double taps = mode == "nearest" ? 1 : mode == "cubic" || mode == "bicubic" ? 4 : 2;
  return std::pow(taps, static_cast<double>(g.value(node.inputs[0]).type.shape.size()) - 2);
}

bool gains(const Graph& g, const Node& node) {
  const Shape& in = g.value(node.inputs[0]).type.shape;
  const Shape& out = g.value(node.outputs[0]).type.shape;
  const std::optional<int64_t> channels = static_dim(in[1]);
  if (channels && *channels < kFewChannels) return false;
  if (!is_static(in) || !is_static(out)) return true;
  const double read = count_of(in, 1), made = count_of(out, 1);
  return (read + made) * kTransposed + made * taps_of(g, node) * kSideBySide <
         made * taps_of(g, node) * kGathered;
}

std::vector<int64_t> channels_to_last(size_t rank) {
  std::vector<int64_t> perm{0};
  for (size_t d = 2; d < rank; ++d)
    perm.push_back(static_cast<int64_t>(d));
  perm.push_back(1);
  return perm;
}

std::vector<int64_t> channels_from_last(size_t rank) {
  std::vector<int64_t> perm{0, static_cast<int64_t>(rank) - 1};
  for (size_t d = 1; d + 1 < rank; ++d)
    perm.push_back(static_cast<int64_t>(d));
  return perm;
}

ValueId transposed(Graph& g, const Node& node, ValueId x, std::vector<int64_t> perm) {
  Attributes a;
  a.set("perm", std::move(perm));
  return emit(g, "", "Transpose", node.name, {x}, std::move(a));
}

}  // namespace

void lay_out_samples(Graph& graph, const tensor::Target& target) {
  if (target.kind != tensor::TargetKind::cpu) return;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node node = graph.node(id);
    if (node.dead || !node.op->domain.empty() ||
        (node.op->name != "GridSample" && node.op->name != "RoiAlign"))
      continue;
    if (!gains(graph, node)) {
      graph.node(id).attributes.set(kTabulated, int64_t{1});
      continue;
    }
    const size_t rank = graph.value(node.inputs[0]).type.shape.size();
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = transposed(graph, node, inputs[0], channels_to_last(rank));
    const ValueId sampled = emit(graph, "mcc", node.op->name, node.name, inputs, node.attributes);
    add_origins(graph.node(graph.value(sampled).producer), node);
    const ValueId y = transposed(graph, node, sampled, channels_from_last(rank));
    graph.node(id).dead = true;
    take_place(graph, node.outputs[0], y);
  }
  graph.compact();
}

}  // namespace mcc::graph
