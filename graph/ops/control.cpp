#include "graph/ops/control.h"

#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// ---- mcc.Choose ----

void infer_choose(InferContext& c) {
  const int results = (c.num_inputs() - 1) / 2;
  for (int i = 0; i < results; ++i) {
    const TensorType &yes = c.input(1 + i), &no = c.input(1 + results + i);
    if (!expect(c, yes.element == no.element && yes.shape.size() == no.shape.size(),
                "expected equal types and ranks, got ", to_text(yes), " and ", to_text(no)))
      return;
    TensorType type = yes;
    for (size_t d = 0; d < type.shape.size(); ++d)
      if (!tensor::structurally_equal(yes.shape[d], no.shape[d])) type.shape[d] = c.own_dim(i, d);
    c.set_output(i, std::move(type));
  }
}

void compute_choose(ComputeContext& c) {
  const int results = (c.num_inputs() - 1) / 2;
  for (int i = 0; i < results; ++i) {
    const TensorType& out = c.output_type(i);
    c.set_output(i, c.builder.compute("choose", out.element, out.shape, [&](Axes at) {
      const std::vector<Expr> condition(c.input_type(0).shape.size(), Expr(0));
      return select(c.at(0, condition), c.at(1 + i, to_vector(at)), c.at(1 + results + i, to_vector(at)));
    }));
  }
}

// ---- Loops ----

void infer_loop_begin(InferContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    TensorType type = c.input(i);
    // Those that iterations change are the node's own.
    for (size_t d = 0; d < type.shape.size(); ++d)
      type.shape[d] = c.own_dim(i, d);
    c.set_output(i, std::move(type));
  }
}

void infer_loop_end(InferContext& c) {
  const auto states = static_cast<int>(c.attributes().integer("states", 0));
  for (int i = 0; i + 2 < c.num_inputs(); ++i) {
    TensorType type = c.input(i + 2);
    // A dimension that is equal when it runs only is called what it is called before the loop.
    for (size_t d = 0; i < states && d < type.shape.size(); ++d)
      type.shape[d] = c.own_dim(i, d);
    if (i >= states) {
      for (size_t d = 0; d < type.shape.size(); ++d)
        if (c.depends_on_data(type.shape[d]))
          type.shape[d] = c.own_dim(i, d + 1);  // or the one that it is taken to be
      type.shape.insert(type.shape.begin(), c.own_dim(i, 0));
    }
    c.set_output(i, std::move(type));
  }
}

}  // namespace

std::optional<int> branch_of_operand(const Node& choose, size_t i) {
  if (i == 0) return std::nullopt;
  return i <= (choose.inputs.size() - 1) / 2 ? 0 : 1;
}

size_t states_of(const Node& loop_end) {
  return static_cast<size_t>(loop_end.attributes.integer("states", 0));
}

namespace {

NodeId other_end(const Graph& graph, const Node& node, Control wanted) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& other = graph.nodes[i];
    if (!other.dead && other.op->control == wanted &&
        other.attributes.integer("loop", -1) == node.attributes.integer("loop", -2))
      return static_cast<NodeId>(i);
  }
  MCC_UNREACHABLE("loop ", node.name, " has one end");
}

}  // namespace

NodeId end_of_loop(const Graph& graph, const Node& loop_begin) {
  return other_end(graph, loop_begin, Control::loop_end);
}
NodeId begin_of_loop(const Graph& graph, const Node& loop_end) {
  return other_end(graph, loop_end, Control::loop_begin);
}

std::span<const OpDef> control_ops() {
  static const OpDef ops[] = {
      [] {
        OpDef op = own_op("Choose", FusionClass::opaque, 1, infer_choose, compute_choose);
        op.control = Control::choose;
        return op;
      }(),
      [] {
        OpDef op = own_op("LoopBegin", FusionClass::host, 0, infer_loop_begin, nullptr);
        op.control = Control::loop_begin;
        return op;
      }(),
      [] {
        OpDef op = own_op("LoopEnd", FusionClass::host, 0, infer_loop_end, nullptr);
        op.control = Control::loop_end;
        op.constant_inputs = 0b1;
        return op;
      }(),
  };
  return ops;
}

}  // namespace mcc::graph
