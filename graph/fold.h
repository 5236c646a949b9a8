// Computing with constants: the evaluator that constant folding is given, and the fold of one node.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"
#include "tensor/stmt.h"

namespace mcc::graph {

// Runs a function of static shape: inputs are its parameters in order, outputs the types of what it gives. The graph
// layer knows only the interpreter; whoever has code generation passes something faster.
using Evaluator = std::function<Result<std::vector<Constant>>(
    const tensor::Func& f, std::span<const Constant> inputs, const std::vector<TensorType>& outputs)>;

// Through the interpreter: exact, slow, for small tensors and as the reference. After max_steps stores it gives up with
// an error (0: never).
Evaluator interpreter_evaluator(int64_t max_steps = 0);

// The outputs of a node as constants: from the types alone (OpDef::fold), or, when all its inputs are constants, by
// running it. Nothing when that cannot be done. Output types must be set; an output that the node leaves out gives an
// empty constant.
Result<std::optional<std::vector<Constant>>> fold_node(const Graph& graph, const Node& node,
                                                       const Evaluator& evaluate);

// The outputs of a node for given inputs (one for each of node.inputs; those left out are not read). The node must have
// a compute definition and static types.
Result<std::vector<Constant>> evaluate_node(const Graph& graph, const Node& node,
                                            std::span<const Constant> inputs, const Evaluator& evaluate);

// The whole graph, node by node: the outputs for given inputs, in the order of Graph::outputs. The reference that
// compiled models are compared with. observe, if given, sees every node with its outputs as they are computed.
using NodeObserver = std::function<void(const Node& node, const std::vector<Constant>& outputs)>;
Result<std::vector<Constant>> run_graph(const Graph& graph, std::span<const Constant> inputs,
                                        const Evaluator& evaluate, const NodeObserver& observe = nullptr);

}  // namespace mcc::graph
