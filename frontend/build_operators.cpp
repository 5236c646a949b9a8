// Nodes of a model -> nodes of the graph, as they are, by their definitions, or as what they compute of constants.
#include <algorithm>

#include "frontend/contrib/contrib.h"
#include "frontend/function_body.h"
#include "frontend/graph_builder.h"
#include "frontend/ml/ml.h"
#include "frontend/model_prepare.h"
#include "graph/elements.h"
#include "onnx/defs/schema.h"
#include "tensor/text.h"

namespace mcc::frontend {

using graph::Constant;
using graph::kNoValue;
using graph::Node;
using graph::TensorType;
using graph::ValueId;

namespace {

// Nodes over constants are computed at once when inputs and outputs together have at most so many elements. That
// covers the arithmetic on shapes; larger ones are left to the pass that folds with compiled code.
constexpr int64_t kFoldElements = 4096;
// Functions inside functions.
constexpr int kMaxExpansion = 16;

}  // namespace

void Builder::add_constant_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  if (node.attribute_size() != 1 || node.output_size() != 1) {
    report(ErrorKind::bad_input, where_of(node, origin), "expected one value and one output");
    return give_up(node, scope);
  }
  const onnx::AttributeProto& a = node.attribute(0);
  if (a.name() == "value") return add_tensor(node.output(0), a.t(), where_of(node, origin), scope);
  add_constant(node.output(0), constant_value(a, where_of(node, origin)), scope);
}

Result<Constant> Builder::constant_value(const onnx::AttributeProto& a, const std::string& where) {
  if (a.name() == "sparse_value") return reader_.read_sparse(a.sparse_tensor(), where);
  if (a.name() == "value_int") return Constant::of(ElementType::i64, {}, std::vector<int64_t>{a.i()});
  if (a.name() == "value_string") return Constant::strings({}, {a.s()});
  if (a.name() == "value_strings")
    return Constant::strings({a.strings_size()}, {a.strings().begin(), a.strings().end()});
  if (a.name() == "value_float") return Constant::of(ElementType::f32, {}, std::vector<float>{a.f()});
  if (a.name() == "value_ints")
    return Constant::ints(std::vector<int64_t>(a.ints().begin(), a.ints().end()));
  if (a.name() == "value_floats") {
    return Constant::of(ElementType::f32, {a.floats_size()},
                        std::vector<float>(a.floats().begin(), a.floats().end()));
  }
  return Diagnostic{ErrorKind::unsupported, where,
                    text("a constant given by ", a.name(), " is not supported"), ""};
}

namespace {

// Open dimensions, equal ones by equal names.
void name_dims(const graph::Shape& shape, onnx::TypeProto& type) {
  for (int i = 0; i < type.tensor_type().shape().dim_size(); ++i) {
    auto& dim = *type.mutable_tensor_type()->mutable_shape()->mutable_dim(i);
    if (!dim.has_dim_value()) dim.set_dim_param(tensor::to_text(shape[static_cast<size_t>(i)]));
  }
}

}  // namespace

bool Builder::expand_function(const onnx::NodeProto& node, const std::string& domain, Scope& scope,
                     const Origin& origin) {
  if (origin.depth >= kMaxExpansion) return false;
  const bool is_contrib = domain == kContribDomain && contrib_schema(domain, node.op_type());
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), opset_of(domain), domain);
  const bool is_ml = schema && has_ml_expansion(domain, node.op_type());
  const bool has_body = schema && (schema->HasFunction() || schema->HasContextDependentFunction());
  if (!is_contrib && !is_ml && !has_body) return false;
  std::vector<onnx::TypeProto> types;
  bool taint = false;
  for (const std::string& input : node.input()) {
    const Entry entry = scope.find(input);
    const bool is_other = entry.kind == Entry::labelled || (entry.kind == Entry::sequence && (is_contrib || is_ml));
    if (is_other) report_operand(input, entry, where_of(node, origin));
    if (entry.kind == Entry::unknown || is_other) {
      give_up(node, scope);
      return true;
    }
    taint |= entry.kind == Entry::value && tainted_.count(entry.id) != 0;
    types.push_back(onnx_type(entry));
    if ((is_contrib || is_ml) && entry.kind == Entry::value) name_dims(graph_.value(entry.id).type.shape, types.back());
  }
  onnx::FunctionProto body;
  if (is_contrib || is_ml) {
    const TensorSource source = [&](const onnx::TensorProto& tensor) { return reader_.read(tensor, where_of(node, origin)); };
    Result<onnx::FunctionProto> expansion = is_ml ? expand_ml(*schema, node, types, source) : expand_contrib(node, types);
    if (!expansion.ok()) {
      // What follows from something reported already is not a fault of its own.
      if (!taint) report_all(expansion.errors(), where_of(node, origin));
      give_up(node, scope);
      return true;
    }
    body = std::move(*expansion);
  } else {
    body = function_body(*schema, node, opset_of(domain), types);
  }
  if (body.node_size() == 0) return false;

  Scope inner;
  for (int i = 0; i < body.input_size(); ++i)
    inner.names[body.input(i)] =
        i < node.input_size() ? scope.find(node.input(i)) : Entry{Entry::absent};
  const Origin deeper = part_of(node, origin);
  const size_t first = graph_.values.size();
  for (const auto& step : body.node())
    add_node(step, inner, deeper);
  for (int i = 0; i < node.output_size() && i < body.output_size(); ++i)
    take_over(node.output(i), inner.find(body.output(i)), first, scope);
  return true;
}

int Builder::opset_of(const std::string& domain) const {
  for (const auto& import : model_.opset_import())
    if (import.domain() == domain) return static_cast<int>(import.version());
  return kOpset;
}

bool Builder::translate_attributes(const onnx::NodeProto& from, const std::string& where, graph::Attributes& to) {
  for (const auto& a : from.attribute()) {
    switch (a.type()) {
      case onnx::AttributeProto::FLOAT:
        to.set(a.name(), static_cast<double>(a.f()));
        continue;
      case onnx::AttributeProto::INT:
        to.set(a.name(), static_cast<int64_t>(a.i()));
        continue;
      case onnx::AttributeProto::STRING:
        to.set(a.name(), a.s());
        continue;
      case onnx::AttributeProto::FLOATS:
        to.set(a.name(), std::vector<double>(a.floats().begin(), a.floats().end()));
        continue;
      case onnx::AttributeProto::INTS:
        to.set(a.name(), std::vector<int64_t>(a.ints().begin(), a.ints().end()));
        continue;
      case onnx::AttributeProto::STRINGS:
        to.set(a.name(), std::vector<std::string>(a.strings().begin(), a.strings().end()));
        continue;
      case onnx::AttributeProto::TENSOR: {
        Result<Constant> constant = reader_.read(a.t(), where);
        if (!constant.ok()) {
          problems_.insert(problems_.end(), constant.errors().begin(), constant.errors().end());
          return false;
        }
        to.set(a.name(), std::move(*constant));
        continue;
      }
      default:
        break;
    }
    report(ErrorKind::unsupported, where,
           text("attribute ", a.name(), " is of a kind that is not supported"));
    return false;
  }
  return true;
}

namespace {

void simplify_shapes(graph::Graph& graph) {
  const tensor::Analyzer facts = graph.facts();
  for (graph::Value& value : graph.values) {
    for (auto* expressions : {&value.type.shape, &value.elements})
      for (tensor::Expr& e : *expressions)
        if (int64_t known = 0; !tensor::as_int(e, &known)) e = facts.simplify(e);
  }
  std::erase_if(graph.equalities, [&](const graph::DimEquality& e) { return facts.can_prove(e.a == e.b); });
  for (graph::DimEquality& e : graph.equalities)
    for (tensor::Expr* side : {&e.a, &e.b})
      *side = facts.simplify(*side);
}

// Of a reshape that is possible for some sizes of a dimension without a bound alone (a height of which one row is left): the dimension
// has these sizes from then on. Nothing where there are no two sizes in a row for which it can be told, or more dimensions are involved.
std::optional<std::vector<TensorType>> infer_for_some_sizes(graph::Graph& graph, const Node& node) {
  constexpr int64_t kMostTried = 512, kLargestStep = int64_t{1} << 30;
  for (graph::DimRange& range : graph.dim_ranges) {
    if (range.has_bound()) continue;
    const graph::DimRange all = range;
    graph::Value& input = graph.value(node.inputs[0]);
    const graph::Shape shape = input.type.shape;
    const auto works = [&](int64_t least, int64_t most) {
      range = {least, most};
      const tensor::Analyzer facts = graph.facts();
      std::transform(shape.begin(), shape.end(), input.type.shape.begin(), [&](const tensor::Expr& d) { return facts.simplify(d); });
      return graph::infer_types(graph, node).ok();
    };
    int64_t least = all.min;
    while (least < kMostTried && !works(least, least + 1))
      ++least;
    if (least < kMostTried) {
      int64_t most = least + 1;
      for (int64_t step = kLargestStep; step > 0; step /= 2)
        if (most + step <= all.max && works(least, most + step)) most += step;
      works(least, most);
      simplify_shapes(graph);
      if (most == all.max) range.typical = std::max(all.typical, least);
      return *graph::infer_types(graph, node);
    }
    range = all;
    input.type.shape = shape;
  }
  return std::nullopt;
}

// Of a convolution whose input has a dimension without a value for its channels, of which the weights say how many there are: the
// dimension has that size from then on.
std::optional<std::vector<TensorType>> infer_for_channels(graph::Graph& graph, const Node& node) {
  const graph::Shape& in = graph.value(node.inputs[0]).type.shape;
  const graph::Shape& weights = graph.value(node.inputs[1]).type.shape;
  int64_t of_group = 0;
  if (in.size() < 3 || weights.size() != in.size() || !tensor::as_int(weights[1], &of_group))
    return std::nullopt;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    graph::DimRange& range = graph.dim_ranges[i];
    int64_t beside = 0;  // channels of known number
    const bool is_part = graph.dim_sources[i].kind == graph::DimSource::Kind::input &&
                         tensor::as_int(tensor::simplify(in[1] - graph.dims[i]), &beside);
    if (!is_part) continue;
    const int64_t size = of_group * node.attributes.integer("group", 1) - beside;
    if (size < range.min || size > range.max) return std::nullopt;
    range = {size, size};
    simplify_shapes(graph);
    Result<std::vector<TensorType>> types = graph::infer_types(graph, node);
    return types.ok() ? std::optional(std::move(*types)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void Builder::add_operator(const graph::OpDef& op, const onnx::NodeProto& from, Scope& scope, const Origin& origin) {
  const std::string where = where_of(from, origin);
  Node node;
  node.op = &op;
  node.name = origin.name.empty() ? name_of(from) : origin.name;
  node.origins = {node.name};
  bool taint = false;
  for (const std::string& input : from.input()) {
    const Entry entry = scope.find(input);
    const bool is_other = entry.kind == Entry::sequence || entry.kind == Entry::labelled;
    if (is_other) report_operand(input, entry, where);
    if (entry.kind == Entry::unknown || is_other) return give_up(from, scope);
    taint |= entry.kind == Entry::value && tainted_.count(entry.id) != 0;
    node.inputs.push_back(entry.kind == Entry::value ? entry.id : kNoValue);
  }
  while (!node.inputs.empty() && node.inputs.back() == kNoValue)
    node.inputs.pop_back();
  if (!translate_attributes(from, where, node.attributes)) return give_up(from, scope);
  spell_out_padding(node);
  // Only whether an output is there counts until the types are known.
  for (const std::string& output : from.output())
    node.outputs.push_back(output.empty() ? kNoValue : 0);

  Result<std::vector<TensorType>> types = graph::infer_types(graph_, node);
  if (!types.ok() && op.name == "Reshape") {
    if (auto some = infer_for_some_sizes(graph_, node)) types = std::move(*some);
  } else if (!types.ok() && op.name == "Conv") {
    if (auto some = infer_for_channels(graph_, node)) types = std::move(*some);
  }
  if (!types.ok()) types = infer(node, where);
  if (!types.ok()) {
    const bool may_be_divided = op.domain.empty() && types.errors()[0].kind == ErrorKind::unsupported;
    if (may_be_divided &&
        (add_data_shaped_node(from, scope, origin) || pad_for_same(node, from, scope, origin)))
      return;
    // What follows from something reported already is not a fault of its own.
    if (!taint) report_all(types.errors(), where);
    return give_up(from, scope);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue || fits_memory(graph_, (*types)[i])) continue;
    report(ErrorKind::unsupported, where, text("its output ", to_text((*types)[i]), " is too large"));
    return give_up(from, scope);
  }
  name_sizes(from, *types);
  // What is wrong with a node has been said of it as a whole, with its own numbers of operands.
  if (op.domain.empty() && divide_wide_node(from, scope, origin)) return;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    const std::string& name = from.output(static_cast<int>(i));
    node.outputs[i] = graph_.add_value(name, (*types)[i]);
    scope.names[name] = {Entry::value, node.outputs[i]};
    if (taint) tainted_.insert(node.outputs[i]);
  }
  pass_on_texts(from, scope, node);
  if (fold(node, where)) return;
  if (const auto elements = graph::elements_of(graph_, node)) return graph::set_elements(graph_, node, *elements);
  append(std::move(node));
}

void Builder::append(Node node) {
  if (node.op->control != graph::Control::none) pass_on_texts(node);
  const auto id = static_cast<graph::NodeId>(graph_.nodes.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    graph_.value(node.outputs[i]).producer = id;
    graph_.value(node.outputs[i]).output_index = static_cast<int>(i);
  }
  graph_.nodes.push_back(std::move(node));
}

bool Builder::is_small(const Node& node) const {
  int64_t elements = 0;
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (ValueId id : *ids) {
      if (id == kNoValue) continue;
      const graph::Shape& shape = graph_.value(id).type.shape;
      if (!graph::is_static(shape)) return false;
      elements += graph::static_count(shape);
    }
  }
  return elements <= kFoldElements;
}

bool Builder::fold(const Node& node, const std::string& where) {
  if ((!node.op->fold && !is_small(node)) || node.op->is_folded_late) return false;
  Result<std::optional<std::vector<Constant>>> folded = graph::fold_node(graph_, node, fold_, fold_budget_);
  if (!folded.ok()) {
    report_all(folded.errors(), where);
    return false;
  }
  if (!*folded) return false;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNoValue) graph_.value(node.outputs[i]).constant = std::move((**folded)[i]);
  return true;
}

}  // namespace mcc::frontend
