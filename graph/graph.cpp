#include "graph/graph.h"

#include <algorithm>
#include <queue>
#include <set>

#include "graph/op.h"
#include "graph/ops/control.h"
#include "tensor/simplify.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::graph {

// ---- Types ----

std::string to_text(const TensorType& type) {
  std::vector<std::string> dims;
  for (const Expr& d : type.shape)
    dims.push_back(tensor::to_text(d));
  return text(to_text(type.element), list_text(dims));
}

bool is_static(const Shape& shape) {
  int64_t value = 0;
  return std::all_of(shape.begin(), shape.end(), [&](const Expr& d) { return as_int(d, &value); });
}

std::vector<int64_t> static_shape(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Expr& d : shape) {
    int64_t value = 0;
    MCC_CHECK(as_int(d, &value), "dimension ", tensor::to_text(d), " is not static");
    dims.push_back(value);
  }
  return dims;
}

int64_t static_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t d : static_shape(shape)) {
    MCC_CHECK(!__builtin_mul_overflow(count, d, &count), "the number of elements overflows");
  }
  return count;
}

Shape make_shape(std::span<const int64_t> dims) { return {dims.begin(), dims.end()}; }

bool same_shape(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Expr& x, const Expr& y) { return tensor::structurally_equal(x, y); });
}

// ---- Graph ----

ValueId Graph::add_value(std::string value_name, TensorType type) {
  values.push_back({std::move(value_name), std::move(type), std::nullopt, -1, 0});
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string value_name, Constant constant) {
  ValueId id = add_value(std::move(value_name), constant.type());
  value(id).constant = std::move(constant);
  return id;
}

NodeId Graph::add_node(const OpDef& op, std::string node_name, std::vector<ValueId> node_inputs,
                       Attributes attributes, std::vector<TensorType> output_types) {
  auto id = static_cast<NodeId>(nodes.size());
  Node node;
  node.op = &op;
  node.inputs = std::move(node_inputs);
  node.attributes = std::move(attributes);
  for (size_t i = 0; i < output_types.size(); ++i) {
    std::string value_name = i == 0 ? node_name : text(node_name, ".", i);
    ValueId out = add_value(std::move(value_name), std::move(output_types[i]));
    value(out).producer = id;
    value(out).output_index = static_cast<int>(i);
    node.outputs.push_back(out);
  }
  node.name = std::move(node_name);
  nodes.push_back(std::move(node));
  return id;
}

tensor::Var Graph::dim(const std::string& dim_name, const DimRange& range) {
  for (const tensor::Var& known : dims)
    if (known.name() == dim_name) return known;
  dims.emplace_back(dim_name);
  dim_ranges.push_back(range);
  dim_sources.emplace_back();
  return dims.back();
}

tensor::Var Graph::add_data_dim(const std::string& dim_name, const DimRange& range, DimSource source) {
  std::set<std::string> names;
  for (const tensor::Var& known : dims)
    names.insert(known.name());
  std::string unique = dim_name;
  for (int k = 1; names.contains(unique); ++k)
    unique = text(dim_name, "#", k);
  dims.emplace_back(unique);
  dim_ranges.push_back(range);
  // One that a node sets stays what it is called, also where there is one number that it can be: not all types that it is in are made again.
  if (source.kind == DimSource::Kind::node && range.min == range.max) ++dim_ranges.back().max;
  dim_sources.push_back(std::move(source));
  return dims.back();
}

bool Graph::has_data_dims() const {
  return std::any_of(dim_sources.begin(), dim_sources.end(), [](const DimSource& s) { return s.kind != DimSource::Kind::input; });
}

bool Graph::depends_on_data(const Expr& e) const {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dim_sources[i].kind != DimSource::Kind::input && tensor::uses_var(e, dims[i])) return true;
  return false;
}

bool Graph::depends_on_data(const Shape& shape) const {
  return std::any_of(shape.begin(), shape.end(), [&](const Expr& d) { return depends_on_data(d); });
}

Expr Graph::with_named(const Expr& e) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    const DimSource& source = dim_sources[i];
    if (source.kind == DimSource::Kind::expression && tensor::structurally_equal(source.expression, e)) return dims[i];
  }
  return e;
}

bool Graph::is_condition(size_t i) const {
  const DimSource& source = dim_sources[i];
  return source.kind == DimSource::Kind::element && value(source.value).type.element == ElementType::boolean;
}

Expr in_branch(Expr e) {
  while (const auto* choice = e.as<tensor::Select>())
    e = Expr(choice->on_true);
  return e;
}

bool Graph::are_equal(const Expr& a, const Expr& b) const {
  if (tensor::structurally_equal(a, b) || tensor::is_int(tensor::simplify(a - b), 0)) return true;
  return std::any_of(equalities.begin(), equalities.end(), [&](const DimEquality& e) {
    const Expr of_branch = in_branch(e.a);
    return (tensor::structurally_equal(of_branch, a) && tensor::structurally_equal(e.b, b)) ||
           (tensor::structurally_equal(of_branch, b) && tensor::structurally_equal(e.b, a));
  });
}

namespace {

// Of the dimensions in an expression, and of those that they are computed from.
void add_sources(const Graph& g, const Expr& e, std::vector<ValueId>& to) {
  for (size_t i = 0; i < g.dims.size(); ++i) {
    const DimSource& source = g.dim_sources[i];
    if (source.kind == DimSource::Kind::input || !tensor::uses_var(e, g.dims[i])) continue;
    if (source.kind == DimSource::Kind::expression) {
      add_sources(g, source.expression, to);
    } else if (std::find(to.begin(), to.end(), source.value) == to.end()) {
      to.push_back(source.value);
    }
  }
}

}  // namespace

std::vector<ValueId> Graph::dim_operands(const Expr& e) const {
  std::vector<ValueId> result;
  add_sources(*this, e, result);
  return result;
}

std::vector<ValueId> Graph::dim_operands(const Node& of) const {
  std::vector<ValueId> result;
  if (of.op->control == Control::loop_end) result.push_back(node(begin_of_loop(*this, of)).outputs[0]);
  if (!has_data_dims()) return result;
  auto add_all = [&](const std::vector<Expr>& list) {
    for (const Expr& e : list)
      add_sources(*this, e, result);
  };
  for (ValueId v : of.outputs) {
    if (v == kNoValue) continue;
    add_all(value(v).type.shape);
    add_all(value(v).elements);
  }
  for (ValueId v : of.inputs)
    if (v != kNoValue) add_all(value(v).elements);
  // A node that sets a dimension of its own result needs it from nobody.
  std::erase_if(result, [&](ValueId v) { return std::find(of.outputs.begin(), of.outputs.end(), v) != of.outputs.end(); });
  return result;
}

tensor::Analyzer Graph::facts() const {
  tensor::Analyzer known = facts_of_dims();
  for (const Expr& size : nonnegative)
    known.assume(size >= 0);
  return known;
}

tensor::Analyzer Graph::facts_of_dims() const {
  tensor::Analyzer known;
  for (size_t i = 0; i < dims.size(); ++i)
    known.bind(dims[i], dim_ranges[i].min, dim_ranges[i].max - dim_ranges[i].min + 1);
  return known;
}

std::vector<std::vector<NodeId>> Graph::users() const {
  std::vector<std::vector<NodeId>> result(values.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].dead) continue;
    for (ValueId v : nodes[n].inputs) {
      if (v != kNoValue) result[static_cast<size_t>(v)].push_back(static_cast<NodeId>(n));
    }
  }
  return result;
}

bool Graph::is_output(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end() ||
         std::any_of(dim_sources.begin(), dim_sources.end(), [&](const DimSource& source) { return source.value == id; });
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& node : nodes) {
    if (!node.dead) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  }
  std::replace(outputs.begin(), outputs.end(), from, to);
  for (DimSource& source : dim_sources)
    if (source.value == from) source.value = to;
}

namespace {

// Live nodes such that every producer comes before its users; among those that are ready, the earliest first.
std::vector<NodeId> topological_order(const Graph& graph) {
  auto users = graph.users();
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].dead) continue;
    for (ValueId v : graph.dim_operands(graph.nodes[n]))
      users[static_cast<size_t>(v)].push_back(static_cast<NodeId>(n));
  }
  std::vector<int> missing(graph.nodes.size(), 0);
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  size_t live = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.dead) continue;
    ++live;
    std::vector<ValueId> needed = graph.dim_operands(node);
    needed.insert(needed.end(), node.inputs.begin(), node.inputs.end());
    for (ValueId v : needed) {
      if (v == kNoValue || graph.value(v).producer < 0) continue;
      MCC_CHECK(!graph.node(graph.value(v).producer).dead, "node ", node.name, " reads ", graph.value(v).name,
                ", whose producer was removed");
      ++missing[n];
    }
    if (missing[n] == 0) ready.push(static_cast<NodeId>(n));
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    NodeId n = ready.top();
    ready.pop();
    order.push_back(n);
    for (ValueId out : graph.node(n).outputs) {
      if (out == kNoValue) continue;
      for (NodeId user : users[static_cast<size_t>(out)]) {
        if (--missing[static_cast<size_t>(user)] == 0) ready.push(user);
      }
    }
  }
  MCC_CHECK(order.size() == live, "graph ", graph.name, " has a cycle");
  return order;
}

}  // namespace

namespace {

// Drops the dimensions from data, and those of inputs that have turned out to be of one size, that nobody uses any more.
void drop_unused_dims(Graph& graph) {
  std::vector<bool> used(graph.dims.size(), false);
  std::vector<const Expr*> work;
  auto use_value = [&](ValueId v) {
    if (v == kNoValue) return;
    for (const auto* list : {&graph.value(v).type.shape, &graph.value(v).elements})
      for (const Expr& e : *list)
        work.push_back(&e);
  };
  for (const Node& node : graph.nodes) {
    if (node.dead) continue;
    for (const auto* ids : {&node.inputs, &node.outputs})
      std::for_each(ids->begin(), ids->end(), use_value);
  }
  std::for_each(graph.outputs.begin(), graph.outputs.end(), use_value);
  const auto use_all = [&] {
    while (!work.empty()) {
      const Expr e = *work.back();
      work.pop_back();
      for (size_t i = 0; i < graph.dims.size(); ++i) {
        if (used[i] || !tensor::uses_var(e, graph.dims[i])) continue;
        used[i] = true;
        if (graph.dim_sources[i].kind == DimSource::Kind::expression) work.push_back(&graph.dim_sources[i].expression);
        use_value(graph.dim_sources[i].value);
      }
    }
  };
  use_all();
  // What is in the condition of a branch alone stays with the equality as long as something makes it.
  const auto is_made = [&](const DimSource& source) {
    if (source.kind != DimSource::Kind::element) return false;
    const NodeId maker = graph.value(source.value).producer;
    return maker < 0 || !graph.node(maker).dead;
  };
  std::erase_if(graph.equalities, [&](const DimEquality& e) {
    const Expr compared = in_branch(e.a);
    for (size_t i = 0; i < graph.dims.size(); ++i) {
      const bool is_dropped = !used[i] && graph.dim_sources[i].kind != DimSource::Kind::input && !graph.is_condition(i);
      if (!is_dropped) continue;
      if (tensor::uses_var(compared, graph.dims[i]) || tensor::uses_var(e.b, graph.dims[i])) return true;
      if (tensor::uses_var(e.a, graph.dims[i]) && !is_made(graph.dim_sources[i])) return true;
    }
    return false;
  });
  // Conditions of those that stay are used by them alone.
  for (const DimEquality& e : graph.equalities) work.insert(work.end(), {&e.a, &e.b});
  use_all();
  size_t kept = 0;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    const bool is_of_input = graph.dim_sources[i].kind == DimSource::Kind::input &&
                             graph.dim_ranges[i].min < graph.dim_ranges[i].max;
    if (!used[i] && !is_of_input) continue;
    graph.dims[kept] = graph.dims[i];
    graph.dim_ranges[kept] = graph.dim_ranges[i];
    graph.dim_sources[kept++] = graph.dim_sources[i];
  }
  graph.dims.resize(kept, tensor::Var("none"));
  graph.dim_ranges.resize(kept);
  graph.dim_sources.resize(kept);
}

}  // namespace

void Graph::compact() {
  const bool has_fixed_dims =
      std::any_of(dim_ranges.begin(), dim_ranges.end(), [](const DimRange& r) { return r.min == r.max; });
  if (has_data_dims() || has_fixed_dims) drop_unused_dims(*this);
  std::vector<NodeId> order = topological_order(*this);
  std::vector<bool> used(values.size(), false);
  auto use_all = [&](const std::vector<ValueId>& ids) {
    for (ValueId v : ids) {
      if (v != kNoValue) used[static_cast<size_t>(v)] = true;
    }
  };
  use_all(inputs);
  use_all(outputs);
  for (const DimSource& source : dim_sources)
    use_all({source.value});
  for (NodeId n : order) {
    use_all(node(n).inputs);
    use_all(node(n).outputs);
  }
  std::vector<ValueId> renumbered(values.size(), kNoValue);
  std::vector<Value> kept_values;
  for (size_t v = 0; v < values.size(); ++v) {
    if (!used[v]) continue;
    renumbered[v] = static_cast<ValueId>(kept_values.size());
    kept_values.push_back(std::move(values[v]));
    kept_values.back().producer = -1;
  }
  auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& v : ids) {
      if (v != kNoValue) v = renumbered[static_cast<size_t>(v)];
    }
  };
  std::vector<Node> kept_nodes;
  for (NodeId n : order) {
    kept_nodes.push_back(std::move(node(n)));
    Node& kept = kept_nodes.back();
    renumber(kept.inputs);
    renumber(kept.outputs);
    for (size_t i = 0; i < kept.outputs.size(); ++i) {
      if (kept.outputs[i] == kNoValue) continue;
      Value& out = kept_values[static_cast<size_t>(kept.outputs[i])];
      out.producer = static_cast<NodeId>(kept_nodes.size() - 1);
      out.output_index = static_cast<int>(i);
    }
  }
  renumber(inputs);
  renumber(outputs);
  for (DimSource& source : dim_sources)
    if (source.value != kNoValue) source.value = renumbered[static_cast<size_t>(source.value)];
  values = std::move(kept_values);
  nodes = std::move(kept_nodes);
}

}  // namespace mcc::graph
