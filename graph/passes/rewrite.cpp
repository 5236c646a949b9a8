#include "graph/passes/rewrite.h"

#include "graph/elements.h"

#include <algorithm>

namespace mcc::graph {

ValueId emit(Graph& graph, std::string_view domain, std::string_view op, std::string name,
             std::vector<ValueId> inputs, Attributes attributes, int num_outputs) {
  const OpDef* def = find_op(domain, op);
  MCC_CHECK(def, "no operator ", domain, " ", op);
  NodeId id = graph.add_node(*def, std::move(name), std::move(inputs), std::move(attributes),
                             std::vector<TensorType>(static_cast<size_t>(num_outputs)));
  Result<std::vector<TensorType>> types = infer_types(graph, graph.node(id));
  MCC_CHECK(types.ok(), op, ": ", to_text(types.errors()));
  for (size_t i = 0; i < types->size(); ++i)
    graph.value(graph.node(id).outputs[i]).type = (*types)[i];
  return graph.node(id).outputs[0];
}

ValueId converted(Graph& graph, const std::string& name, ValueId v, ElementType to) {
  if (graph.value(v).type.element == to) return v;
  Attributes a;
  a.set("to", std::string(mcc::to_text(to)));
  return emit(graph, "mcc", "Narrow", name, {v}, a);
}

ValueId known_elements(Graph& graph, const std::string& name, ElementType type,
                       const std::vector<Expr>& elements, int rank) {
  Node of;
  of.name = name;
  const Shape shape = rank == 0 ? Shape() : Shape{Expr(static_cast<int64_t>(elements.size()))};
  of.outputs = {graph.add_value(name, {type, shape})};
  set_elements(graph, of, {elements});
  return of.outputs[0];
}

ValueId reshaped(Graph& graph, const std::string& name, ValueId v, Shape shape) {
  Attributes a;
  if (std::any_of(shape.begin(), shape.end(), [](const Expr& d) { return tensor::is_int(d, 0); }))
    a.set("allowzero", int64_t{1});
  return emit(graph, "", "Reshape", name,
              {v, known_elements(graph, name + ".shape", ElementType::i64, shape)}, a);
}

ValueId reshaped(Graph& graph, const std::string& name, ValueId v, const std::vector<int64_t>& dims) {
  return reshaped(graph, name, v, Shape(dims.begin(), dims.end()));
}

NodeId single_user(const Graph& graph, const std::vector<std::vector<NodeId>>& users, ValueId value) {
  const auto& list = users[static_cast<size_t>(value)];
  return list.size() == 1 && !graph.is_output(value) ? list[0] : -1;
}

std::optional<double> uniform_value(const Graph& graph, ValueId value) {
  if (value == kNoValue || !graph.value(value).constant) return std::nullopt;
  const Constant& c = *graph.value(value).constant;
  if (c.count() == 0 || c.element() == ElementType::string) return std::nullopt;
  double first = c.number_at(0);
  for (int64_t i = 1; i < c.count(); ++i) {
    if (c.number_at(i) != first) return std::nullopt;
  }
  return first;
}

bool is_op(const Node& node, std::string_view name) {
  return !node.dead && node.op->name == name && (node.op->domain.empty() || node.op->domain == "mcc");
}

ValueId first_result(const Node& node) {
  return *std::find_if(node.outputs.begin(), node.outputs.end(), [](ValueId v) { return v != kNoValue; });
}

size_t moved_inputs(const Node& n) {
  if (n.op->updates_first_input) return 2;
  if (!n.op->domain.empty()) return n.op->layout == LayoutRole::to_space ? 1 : 0;
  if (n.op->name == "Concat") return n.inputs.size();
  const bool chooses = n.op->name == "MaxPool" && n.outputs.size() == 1;
  const bool is_nearest = n.op->name == "Resize" && n.attributes.text("mode", "nearest") == "nearest" &&
                          n.attributes.text("coordinate_transformation_mode", "") != "tf_crop_and_resize";
  const bool moves = n.op->is_view || n.op->name == "Transpose" || n.op->name == "Slice" || n.op->name == "Split" ||
                     n.op->name == "DepthToSpace";
  return moves || chooses || is_nearest ? 1 : 0;
}

bool is_explicit(const Node& node) {
  const std::string mode = node.attributes.text("auto_pad", "NOTSET");
  return mode == "NOTSET" || mode.empty();
}

ValueId first_columns(Graph& graph, const std::string& name, ValueId v, int64_t columns) {
  auto ints = [&](int64_t value) { return graph.add_constant(name + ".bound", Constant::ints({value})); };
  return emit(graph, "", "Slice", name, {v, ints(0), ints(columns), ints(-1)});
}

void take_place(Graph& graph, ValueId old, ValueId with) {
  NodeId maker = graph.value(with).producer;
  graph.node(maker).outputs[0] = old;
  graph.value(old).producer = maker;
  graph.value(old).output_index = 0;
}

std::vector<int64_t> permutation_of(const Graph& graph, const Node& node) {
  std::vector<int64_t> reversed(graph.value(node.inputs[0]).type.shape.size());
  for (size_t i = 0; i < reversed.size(); ++i)
    reversed[i] = static_cast<int64_t>(reversed.size() - 1 - i);
  return node.attributes.integers("perm", reversed);
}

std::vector<bool> known_values(const Graph& graph) {
  std::vector<bool> is_known(graph.values.size(), false);
  for (size_t v = 0; v < graph.values.size(); ++v)
    is_known[v] = graph.values[v].constant.has_value();
  for (const Node& node : graph.nodes) {
    if (node.dead) continue;
    bool known = std::all_of(node.inputs.begin(), node.inputs.end(),
                             [&](ValueId v) { return v == kNoValue || is_known[static_cast<size_t>(v)]; });
    for (ValueId out : node.outputs) {
      if (out != kNoValue) is_known[static_cast<size_t>(out)] = known;
    }
  }
  return is_known;
}

void add_origins(Node& node, const Node& of) {
  for (const std::string& origin : of.origins) {
    if (std::find(node.origins.begin(), node.origins.end(), origin) == node.origins.end()) node.origins.push_back(origin);
  }
}

void absorb(Graph& graph, NodeId dead, NodeId into) {
  graph.node(dead).dead = true;
  add_origins(graph.node(into), graph.node(dead));
}

}  // namespace mcc::graph
