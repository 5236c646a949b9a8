#include "graph/passes/passes.h"

namespace mcc::graph {
namespace {

class FoldConstants {
 public:
  FoldConstants(Graph& g, const Evaluator& evaluate, FoldBudget& budget)
      : g_(g), evaluate_(evaluate), budget_(budget), uses_(g.values.size(), 0) {
    auto count = [&](const std::vector<ValueId>& values) {
      for (ValueId v : values)
        if (v != kNoValue) ++uses_[static_cast<size_t>(v)];
    };
    count(g.outputs);
    for (const Node& node : g.nodes)
      if (!node.dead) count(node.inputs);
    for (size_t v = 0; v < g.values.size(); ++v)
      if (uses_[v] > 0) bytes_ += bytes_of(static_cast<ValueId>(v));
  }

  Status run(bool keeps_quantized) {
    for (Node& node : g_.nodes) {
      if (node.dead || (keeps_quantized && node.op->is_folded_late) ||
          !budget_.may_hold(bytes_ + result_bytes(node)))
        continue;
      Result<std::optional<std::vector<Constant>>> folded = fold_node(g_, node, evaluate_, budget_);
      if (!folded) return folded.errors();
      if (*folded) replace(node, **folded);
    }
    g_.compact();
    return done();
  }

 private:
  int64_t bytes_of(ValueId v) const {
    const std::optional<Constant>& constant = g_.value(v).constant;
    return constant ? static_cast<int64_t>(constant->bytes().size()) : 0;
  }

  int64_t result_bytes(const Node& node) const {
    int64_t bytes = 0;
    for (ValueId v : node.outputs) {
      if (v == kNoValue || !is_static(g_.value(v).type.shape)) continue;
      bytes += static_count(g_.value(v).type.shape) * byte_size(g_.value(v).type.element);
    }
    return bytes;
  }

  void replace(Node& node, const std::vector<Constant>& results) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      Value& value = g_.value(node.outputs[i]);
      value.producer = -1;
      if (uses_[static_cast<size_t>(node.outputs[i])] == 0) continue;
      value.constant = results[i];
      bytes_ += bytes_of(node.outputs[i]);
    }
    // What nothing else reads goes at once: long chains hold two constants, not all of them.
    for (ValueId v : node.inputs) {
      if (v == kNoValue || --uses_[static_cast<size_t>(v)] > 0) continue;
      bytes_ -= bytes_of(v);
      g_.value(v).constant.reset();
    }
    node.dead = true;
  }

  Graph& g_;
  const Evaluator& evaluate_;
  FoldBudget& budget_;
  std::vector<int> uses_;  // of each value, by live nodes and as a result of the model
  int64_t bytes_ = 0;      // of the constants that are used
};

}  // namespace

Status fold_constants(Graph& graph, const Evaluator& evaluate, FoldBudget& budget, bool keeps_quantized) {
  return FoldConstants(graph, evaluate, budget).run(keeps_quantized);
}

}  // namespace mcc::graph
