// The choice of layouts by cost. A model's convolutions begin blocked. Each region is then tried with its channels last and
// plain, and single convolutions that would take less time in plain form are tried so (few output channels leave most of a
// vector's lanes empty): the graph is rewritten, what cancels is taken away, and the expected time of the convolutions and
// of what else depends on the layout is compared.
#include <algorithm>

#include "graph/elements.h"
#include "graph/ops/common.h"
#include "graph/passes/aliases.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"

namespace mcc::graph {
namespace {

// Changes of layout reach this share of the second-level cache's bandwidth, read and written bytes together.
constexpr double kMovingShare = 1.0 / 6;
// Elements of windows that plain pooling takes a cycle, as a share of a vector; with a stride it gathers them, one a cycle.
constexpr double kPoolingShare = 0.5;
// A change has to win this share of its convolutions' time: kernels fall short of a model.
constexpr double kLeastGain = 0.05;

// Bytes of an operator's results, each vector counted as a full one.
double whole_vector_bytes(const Graph& g, const Node& node, const tensor::Target& t) {
  double bytes = 0;
  for (ValueId out : node.outputs) {
    if (out == kNoValue || !is_static(g.value(out).type.shape)) continue;
    const TensorType& type = g.value(out).type;
    std::vector<int64_t> dims = static_shape(type.shape);
    int64_t lanes = t.lanes(32), row = dims.empty() ? 1 : std::max<int64_t>(dims.back(), 1);
    double share = static_cast<double>(row) / static_cast<double>((row + lanes - 1) / lanes * lanes);
    bytes += static_cast<double>(static_count(type.shape)) * byte_size(type.element) / share;
  }
  return bytes;
}

// Whether the node is part of a kernel that is there anyway, whatever the layout: the one that converts an input of the model.
bool joins_conversion(const Graph& g, const Node& node) {
  const NodeId maker = g.value(node.inputs[0]).producer;
  if (maker < 0 || g.node(maker).op->fusion != FusionClass::elementwise) return false;
  const std::vector<ValueId>& inputs = g.node(maker).inputs;
  return std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return v == kNoValue || g.value(v).producer < 0; });
}

// Whether the node gives pieces of its operand, or joins what can be written where it lies in the result; on GPUs parts of rows, too.
bool shares_memory(const Graph& g, const Node& node, const tensor::Target& t) {
  const bool in_rows = t.kind == tensor::TargetKind::cuda;
  auto is_piece = [&](ValueId v) { return v == kNoValue || piece_offset(g, v) || (in_rows && row_part(g, v)); };
  return joins_pieces(g, node) || (in_rows && joins_rows(g, node)) || std::all_of(node.outputs.begin(), node.outputs.end(), is_piece);
}

// Microseconds of what depends on the layout apart from convolutions: operators that only move elements, unless of constants,
// pooling in plain form, and on GPUs the launches of reductions.
double other_us(const Graph& g, const tensor::Target& t) {
  std::vector<bool> is_known = known_values(g);
  double moved = 0, launches = 0, pooling_cycles = 0;
  for (const Node& node : g.nodes) {
    if (node.dead) continue;
    const ValueId result = first_result(node);
    if (is_known[static_cast<size_t>(result)]) continue;
    const bool is_free = shares_memory(g, node, t) || (t.kind == tensor::TargetKind::cuda && joins_conversion(g, node));
    if (node.op->fusion == FusionClass::injective && !node.op->is_view && !is_free) {
      moved += 2 * whole_vector_bytes(g, node, t);
      ++launches;
    }
    if (node.op->fusion == FusionClass::reduction) ++launches;
    const TensorType& type = g.value(result).type;
    if (node.op->layout == LayoutRole::pool && is_static(type.shape)) {
      double elements = static_cast<double>(static_count(type.shape));
      for (int64_t k : node.attributes.integers("kernel_shape"))
        elements *= static_cast<double>(k);
      bool gathers = node.attributes.integers("strides", {1}).back() > 1;
      pooling_cycles += elements / (gathers ? 1 : t.lanes(32) * kPoolingShare);
    }
  }
  if (t.kind == tensor::TargetKind::cuda) return launches * t.gpu.launch_us + moved / (t.gpu.gb_per_s * 1e3);
  return moved / (t.l2.gb_per_s * kMovingShare * 1e3) + pooling_cycles / (t.ghz * 1e3);
}

// Whether tensor cores multiply what lies in 16 bits.
bool has_narrow_product(const Graph& g, const tensor::Gpu& gpu) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& node) {
    const LayoutRole role = node.op->layout;
    const bool is_product =
        role == LayoutRole::convolution || role == LayoutRole::matmul || role == LayoutRole::gemm;
    if (node.dead || !is_product) return false;
    const ElementType factor = g.value(node.inputs[0]).type.element;
    return is_narrow_float(factor) && tensor::multiplies_matrices(gpu, factor);
  });
}

class ChooseLayouts {
 public:
  ChooseLayouts(const Graph& graph, const tensor::Target& target, bool strict, const AlgorithmChoices& choices)
      : original_(graph), t_(target), strict_(strict), choices_(choices), weight_bytes_(weight_bytes(graph)) {}

  Graph run() {
    std::vector<Region> regions;
    best_ = with(layouts_, &regions);
    for (const Region& region : regions) {
      for (NodeId id : region)
        convolutions_.push_back(id);
    }
    best_us_ = cost(best_, layouts_);
    for (const Region& region : regions) {
      if (first_layout(t_) != Layout::channels_last) consider(region, Layout::channels_last);
      consider(region, Layout::plain);
    }
    for (NodeId id : convolutions_) {
      if (us(id, Layout::plain) < us(id, layout(layouts_, id))) consider({id}, Layout::plain);
    }
    return std::move(best_);
  }

  const Layouts& layouts() const { return layouts_; }

 private:
  Layout layout(const Layouts& layouts, NodeId id) const {
    auto it = layouts.find(id);
    return it == layouts.end() ? first_layout(t_) : it->second;
  }

  double us(NodeId id, Layout layout) const {
    return convolution_us(*conv_problem(original_, original_.node(id)), layout, t_, weight_bytes_, strict_);
  }

  Graph with(const Layouts& layouts, std::vector<Region>* regions = nullptr) const {
    Graph g = original_;
    std::vector<Region> found = apply_layouts(g, layouts, t_, strict_, choices_);
    simplify_algebra(g);
    eliminate_dead_code(g);
    if (regions) *regions = std::move(found);
    return g;
  }

  double cost(const Graph& g, const Layouts& layouts) const {
    double sum = other_us(g, t_);
    for (NodeId id : convolutions_)
      sum += us(id, layout(layouts, id));
    return sum;
  }

  void consider(const Region& region, Layout layout_of_all) {
    Layouts layouts = layouts_;
    double now = 0;
    for (NodeId id : region) {
      now += us(id, layout(layouts_, id));
      layouts[id] = layout_of_all;
    }
    Graph g = with(layouts);
    double changed = cost(g, layouts);
    if (changed > best_us_ - kLeastGain * now) return;
    best_us_ = changed;
    best_ = std::move(g);
    layouts_ = std::move(layouts);
  }

  const Graph& original_;
  const tensor::Target& t_;
  bool strict_;
  const AlgorithmChoices& choices_;
  int64_t weight_bytes_;
  std::vector<NodeId> convolutions_;
  Layouts layouts_;
  Graph best_;
  double best_us_ = 0;
};

}  // namespace

void choose_layouts(Graph& graph, const tensor::Target& target, bool strict, const AlgorithmChoices& choices) {
  // Blocks and packed operands are for vectors of a CPU. The threads of a GPU read neighbours of plain tensors together; what
  // its tensor cores multiply they fetch in vectors along the channels.
  const bool is_gpu = target.kind == tensor::TargetKind::cuda;
  if (is_gpu && !has_narrow_product(graph, target.gpu)) return;
  if (graph.dims.empty()) {
    graph = ChooseLayouts(graph, target, strict, choices).run();
    return;
  }
  // Costs are those of sizes in the middle; what they decide holds for all.
  Layouts layouts;
  if (const std::optional<Graph> typical = typical_instance(graph)) {
    ChooseLayouts choose(*typical, target, strict, choices);
    choose.run();
    layouts = choose.layouts();
  }
  apply_layouts(graph, layouts, target, strict, choices);
  simplify_algebra(graph);
  eliminate_dead_code(graph);
}

}  // namespace mcc::graph
