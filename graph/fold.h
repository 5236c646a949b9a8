// Computing with constants: the evaluator that constant folding is given, and the fold of one node.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"
#include "graph/ops/random.h"
#include "tensor/stmt.h"

namespace mcc::graph {

// Runs a function of static shape: inputs are its parameters in order, outputs the types of what it gives. The graph
// layer knows only the interpreter; whoever has code generation passes something faster.
using Evaluator = std::function<Result<std::vector<Constant>>(
    const tensor::Func& f, std::span<const Constant> inputs, const std::vector<TensorType>& outputs)>;

// Through the interpreter: exact, slow, for small tensors and as the reference. After max_steps stores it gives up with
// an error (0: never).
Evaluator interpreter_evaluator(int64_t max_steps = 0);

// How much memory and time computing with constants may take before a model runs. A few nodes can ask for any amount of both; what
// weights are packed, converted or unpacked to is a small multiple of what is there.
class FoldBudget {
 public:
  FoldBudget() : FoldBudget(0) {}
  // For all of a model's constants, as they are in its file.
  explicit FoldBudget(const Graph& graph);

  // Whether a node may make so many bytes of so many: not if it blows up a few to many, which a kernel makes as it needs them.
  static bool may_grow(int64_t from_bytes, int64_t to_bytes);
  // Whether so many bytes of constants may be there at a time.
  bool may_hold(int64_t bytes) const { return bytes <= bytes_; }
  // Takes the iterations from what is left; not done, and false, if they exceed it.
  bool take(int64_t iterations);

 private:
  explicit FoldBudget(int64_t weight_bytes);

  int64_t bytes_;
  int64_t iterations_;
};

// Of all its values that are constants, each for itself.
int64_t constant_bytes(const Graph& graph);

// The outputs of a node as constants: from the types alone (OpDef::fold), or, when all its inputs are constants, by
// running it. Nothing when that cannot be done, or would take more than the budget has. Output types must be set; an output that the
// node leaves out gives an empty constant.
Result<std::optional<std::vector<Constant>>> fold_node(const Graph& graph, const Node& node,
                                                       const Evaluator& evaluate, FoldBudget& budget);

// The outputs of a node for given inputs (one for each of node.inputs; those left out are not read). The node must have
// a compute definition and static types.
Result<std::vector<Constant>> evaluate_node(const Graph& graph, const Node& node,
                                            std::span<const Constant> inputs, const Evaluator& evaluate);

// The whole graph, node by node: the outputs for given inputs, in the order of Graph::outputs. The reference that
// compiled models are compared with. observe, if given, sees every node with its outputs as they are computed. draws: which random
// numbers there are.
using NodeObserver = std::function<void(const Node& node, const std::vector<Constant>& outputs)>;
Result<std::vector<Constant>> run_graph(const Graph& graph, std::span<const Constant> inputs,
                                        const Evaluator& evaluate, const NodeObserver& observe = nullptr,
                                        const Draws& draws = {});

}  // namespace mcc::graph
