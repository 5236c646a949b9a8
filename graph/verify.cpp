#include "graph/op.h"

namespace mcc::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  std::vector<std::string> run() {
    check_values();
    check_ids("graph inputs", graph_.inputs, false);
    check_ids("graph outputs", graph_.outputs, false);
    if (!errors_.empty()) return errors_;  // what follows relies on ids in range
    std::vector<bool> defined(graph_.values.size(), false);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      defined[v] = graph_.values[v].constant.has_value() && graph_.values[v].producer < 0;
    }
    for (ValueId v : graph_.inputs) {
      if (graph_.value(v).producer >= 0) error("graph input ", graph_.value(v).name, " has a producer");
      defined[static_cast<size_t>(v)] = true;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!graph_.nodes[n].dead) check_node(static_cast<NodeId>(n), defined);
    }
    for (ValueId v : graph_.outputs) {
      if (!defined[static_cast<size_t>(v)])
        error("graph output ", graph_.value(v).name, " is never computed");
    }
    return errors_;
  }

 private:
  template <class... Args>
  void error(const Args&... args) {
    errors_.push_back(text(args...));
  }

  bool check_ids(const std::string& where, const std::vector<ValueId>& ids, bool may_be_absent) {
    for (ValueId v : ids) {
      if (v == kNoValue && may_be_absent) continue;
      if (v < 0 || v >= static_cast<ValueId>(graph_.values.size())) {
        error(where, ": value ", v, " does not exist");
        return false;
      }
    }
    return true;
  }

  void check_values() {
    for (const Value& value : graph_.values) {
      if (value.constant && (value.constant->element() != value.type.element ||
                             !same_shape(value.constant->type().shape, value.type.shape))) {
        error("value ", value.name, " is ", to_text(value.type), ", its constant ",
              to_text(value.constant->type()));
      }
      if (value.producer < -1 || value.producer >= static_cast<NodeId>(graph_.nodes.size())) {
        error("value ", value.name, ": node ", value.producer, " does not exist");
      }
    }
  }

  void check_node(NodeId id, std::vector<bool>& defined) {
    const Node& node = graph_.node(id);
    if (!node.op) return error("node ", node.name, " has no operator");
    if (!check_ids("inputs of " + node.name, node.inputs, true) ||
        !check_ids("outputs of " + node.name, node.outputs, true)) {
      return;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v != kNoValue && !defined[static_cast<size_t>(v)] && !is_embedded(graph_, node, static_cast<int>(i))) {
        error("node ", node.name, " reads ", graph_.value(v).name, " before it is computed");
      }
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const Value& out = graph_.value(node.outputs[i]);
      if (out.producer != id || out.output_index != static_cast<int>(i)) {
        error("node ", node.name, ": output ", out.name, " names node ", out.producer, " as its producer");
      }
      if (defined[static_cast<size_t>(node.outputs[i])]) error("value ", out.name, " is computed twice");
      defined[static_cast<size_t>(node.outputs[i])] = true;
    }
    check_types(node);
  }

  void check_types(const Node& node) {
    auto types = infer_types(graph_, node);
    if (!types) return error(to_text(types.errors()));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const TensorType& got = graph_.value(node.outputs[i]).type;
      const TensorType& expected = (*types)[i];
      if (got.element != expected.element || !same_shape(got.shape, expected.shape)) {
        error("node ", node.name, ": output ", i, " is ", to_text(got), ", its operator gives ",
              to_text(expected));
      }
    }
  }

  const Graph& graph_;
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<std::string> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace mcc::graph
