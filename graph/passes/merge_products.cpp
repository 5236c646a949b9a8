// Products of one value with several constant matrices (queries, keys and values of one sequence; the two halves of a gated
// layer) as one product with all of them side by side, of which the others are parts: one launch for several, each of which
// would keep a part of a GPU's multiprocessors busy. Rows may be open: typical sizes decide then.
#include <algorithm>
#include <optional>

#include "graph/elements.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// value * matrix (+ bias), of which nobody reads the product without its bias.
struct Projection {
  NodeId product = -1, sum = -1;
  ValueId matrix = kNoValue, bias = kNoValue;
  int64_t columns = 0;
};

class MergeProducts {
 public:
  MergeProducts(Graph& g, const tensor::Gpu& gpu) : g_(g), gpu_(gpu), users_(g.users()) {
    if (!g.dims.empty()) typical_ = likely_instance(g);
  }

  void run() {
    const size_t count = users_.size();
    for (size_t v = 0; v < count; ++v) {
      std::vector<Projection> with_bias, without;
      for (NodeId user : users_[v]) {
        if (std::optional<Projection> p = projection(user, static_cast<ValueId>(v)))
          (p->sum >= 0 ? with_bias : without).push_back(*p);
      }
      for (const std::vector<Projection>* group : {&with_bias, &without}) {
        for (size_t i = 0; i < group->size(); i += kMost) {
          const auto begin = group->begin() + static_cast<std::ptrdiff_t>(i);
          const std::vector<Projection> some(begin, begin + static_cast<std::ptrdiff_t>(std::min(kMost, group->size() - i)));
          if (some.size() > 1) merge(static_cast<ValueId>(v), some);
        }
      }
    }
    g_.compact();
  }

 private:
  // Into one: their results are taken apart by loop nests of one kernel, whose scheduling takes more than linear time.
  static constexpr size_t kMost = 64;

  // Of a constant.
  std::vector<int64_t> dims(ValueId v) const { return static_shape(g_.value(v).type.shape); }

  // Of a value, typically; 0 where that is not known.
  int64_t rows_of(ValueId v) const {
    const Shape& shape = (typical_ ? *typical_ : g_).value(v).type.shape;
    int64_t rows = 1, extent = 0;
    for (size_t d = 0; d + 1 < shape.size(); ++d)
      rows *= tensor::as_int(shape[d], &extent) ? extent : 0;
    return rows;
  }

  std::optional<Projection> projection(NodeId id, ValueId x) const {
    const Node& n = g_.node(id);
    const bool is_product = is_op(n, "MatMul") && n.op->domain.empty() && n.inputs.size() == 2 && n.inputs[0] == x;
    if (!is_product || !is_float(g_.value(x).type.element) || g_.value(x).type.shape.size() < 2) return std::nullopt;
    const ValueId w = n.inputs[1];
    if (!g_.value(w).constant || dims(w).size() != 2) return std::nullopt;
    Projection p{id, -1, w, kNoValue, dims(w)[1]};
    // One that fills the GPU some times over by itself gains nothing: what its last round leaves idle is little.
    constexpr int64_t kTile = 64, kRounds = 4;
    const int64_t rows = rows_of(x), tiles = ((p.columns + kTile - 1) / kTile) * ((rows + kTile - 1) / kTile);
    if (tiles >= kRounds * gpu_.multiprocessors || rows == 0 || p.columns == 0) return std::nullopt;
    const NodeId sum = single_user(g_, users_, n.outputs[0]);
    if (sum < 0 || !is_op(g_.node(sum), "Add")) return p;
    const Node& add = g_.node(sum);
    const ValueId bias = add.inputs[add.inputs[0] == n.outputs[0] ? 1 : 0];
    if (!g_.value(bias).constant || dims(bias) != std::vector<int64_t>{p.columns}) return p;
    p.sum = sum;
    p.bias = bias;
    return p;
  }

  ValueId side_by_side(const std::string& name, const std::vector<ValueId>& parts, int64_t axis) {
    Attributes a;
    a.set("axis", axis);
    return emit(g_, "", "Concat", name, parts, a);
  }

  void merge(ValueId x, const std::vector<Projection>& group) {
    const std::string name = g_.node(group[0].product).name;
    std::vector<ValueId> matrices, biases;
    std::vector<int64_t> columns;
    for (const Projection& p : group) {
      matrices.push_back(p.matrix);
      biases.push_back(p.bias);
      columns.push_back(p.columns);
    }
    ValueId all = emit(g_, "", "MatMul", name, {x, side_by_side(name + ".weights", matrices, 1)});
    const NodeId product = g_.value(all).producer;
    if (group[0].sum >= 0) all = emit(g_, "", "Add", name + ".sum", {all, side_by_side(name + ".biases", biases, 0)});
    const NodeId sum = g_.value(all).producer;
    Attributes last;
    last.set("axis", int64_t{-1});
    const ValueId sizes = g_.add_constant(name + ".columns", Constant::ints(columns));
    const ValueId first =
        emit(g_, "", "Split", name + ".parts", {all, sizes}, last, static_cast<int>(group.size()));
    const NodeId split = g_.value(first).producer;
    for (size_t i = 0; i < group.size(); ++i) {
      const NodeId end = group[i].sum >= 0 ? group[i].sum : group[i].product;
      const ValueId old = g_.node(end).outputs[0];
      g_.node(split).outputs[i] = old;
      g_.value(old).producer = split;
      absorb(g_, group[i].product, product);
      if (group[i].sum >= 0) absorb(g_, group[i].sum, sum);
    }
  }

  Graph& g_;
  const tensor::Gpu& gpu_;
  const std::vector<std::vector<NodeId>> users_;
  std::optional<Graph> typical_;  // of a graph with symbolic dimensions
};

}  // namespace

void merge_products(Graph& graph, const tensor::Target& target) {
  if (target.kind == tensor::TargetKind::cuda) MergeProducts(graph, target.gpu).run();
}

}  // namespace mcc::graph
