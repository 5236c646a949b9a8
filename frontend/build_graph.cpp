#include "frontend/graph_builder.h"

#include <algorithm>
#include <set>

#include "frontend/contrib/expansion.h"
#include "frontend/model_prepare.h"
#include "graph/elements.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::frontend {

using graph::Constant;
using graph::Graph;
using graph::kNoValue;
using graph::TensorType;
using graph::ValueId;
using tensor::Expr;

namespace {

// All that a graph's nodes, those of graphs inside of it, and its outputs name.
void collect_used_names(const onnx::GraphProto& graph, std::set<std::string>& names) {
  for (const auto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) collect_used_names(attribute.g(), names);
      for (const auto& inner : attribute.graphs())
        collect_used_names(inner, names);
    }
  }
  for (const auto& output : graph.output())
    names.insert(output.name());
}

constexpr int64_t kMostBytes = int64_t{1} << 40;

// For each node, whether an output of the graph depends on it.
std::vector<bool> live_nodes(const onnx::GraphProto& graph) {
  std::set<std::string> needed;
  for (const auto& output : graph.output())
    needed.insert(output.name());
  std::vector<bool> live(static_cast<size_t>(graph.node_size()));
  for (int i = graph.node_size() - 1; i >= 0; --i) {
    const auto& node = graph.node(i);
    const bool used = std::any_of(node.output().begin(), node.output().end(),
                                  [&](const std::string& name) { return needed.count(name) != 0; });
    if (!used) continue;
    live[static_cast<size_t>(i)] = true;
    needed.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) collect_used_names(attribute.g(), needed);
      for (const auto& inner : attribute.graphs())
        collect_used_names(inner, needed);
    }
  }
  return live;
}

const char* kind_of_type(const onnx::TypeProto& type) {
  if (type.has_tensor_type()) return "a tensor";
  if (type.has_sequence_type()) return "a sequence";
  if (type.has_map_type()) return "a map";
  if (type.has_optional_type()) return "an optional value";
  if (type.has_sparse_tensor_type()) return "a sparse tensor";
  return "not a tensor";
}

}  // namespace

const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const std::string& name) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

bool fits_memory(const Graph& graph, const TensorType& type) {
  for (const tensor::Expr& dim : type.shape)
    if (tensor::is_int(dim, 0)) return true;
  // That is for the run to say.
  if (graph.depends_on_data(type.shape)) return true;
  const bool have_bounds = std::all_of(graph.dim_ranges.begin(), graph.dim_ranges.end(), [](const graph::DimRange& r) { return r.has_bound(); });
  std::optional<int64_t> count = graph::largest_count(graph, type.shape);
  if (!count && !have_bounds) count = graph::least_count(graph, type.shape);
  return count && *count <= kMostBytes / byte_size(type.element);
}

const char* kind_of_entry(const Entry& entry) {
  if (entry.kind == Entry::value) return "a tensor";
  if (entry.kind == Entry::absent) return "an optional value that holds none";
  if (entry.kind != Entry::labelled) return "a sequence";
  return "a sequence of maps";
}

std::string where_of(const onnx::NodeProto& node, const Origin& origin) {
  return origin.where.empty() ? node_label(node) : origin.where;
}

std::string name_of(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() ? node.output(0) : node.op_type();
}

Graph Builder::build() {
  const onnx::GraphProto& graph = model_.graph();
  graph_.name = graph.name();
  appended_ = appended_dimensions(graph);
  Scope scope;
  for (const auto& input : graph.input())
    add_input(input, scope);
  learn_sizes();
  add_initializers(graph, scope);
  add_nodes(graph, scope, {});
  for (const auto& output : graph.output())
    add_output(output, scope);
  add_conditional_equalities();
  add_size_checks();
  graph::raise_typical_sizes(graph_);
  return std::move(graph_);
}

void Builder::learn_sizes() {
  for (const CheckedSize& known : learnt_) {
    const Result<Expr> size = tensor::parse_expr(known.size, graph_.dims);
    MCC_CHECK(size.ok(), known.size, ": ", to_text(size.errors()));
    graph_.nonnegative.push_back(*size);
  }
}

void Builder::add_size_checks() {
  // What stands in a branch need not fit the sizes with which the branch is not taken.
  if (std::any_of(graph_.nodes.begin(), graph_.nodes.end(),
                  [](const graph::Node& n) { return n.op->control != graph::Control::none; }))
    return;
  const tensor::Analyzer facts = graph_.facts_of_dims();
  std::set<std::string> seen;
  const auto check = [&](const Expr& size, const auto& where) {
    const std::string its_text = tensor::to_text(size);
    if (!seen.insert(its_text).second || graph_.depends_on_data(size) || facts.can_prove(size >= 0)) return;
    graph_.equalities.push_back({size, tensor::max(size, 0), where(its_text)});
    checked_.push_back({its_text, graph_.equalities.back().where});
  };
  for (size_t i = 0; i < learnt_.size(); ++i)
    check(graph_.nonnegative[i], [&](const std::string&) { return learnt_[i].where; });
  for (const graph::Node& node : graph_.nodes)
    for (const graph::ValueId id : node.outputs) {
      if (id == graph::kNoValue) continue;
      const graph::Shape& shape = graph_.value(id).type.shape;
      for (size_t d = 0; d < shape.size(); ++d)
        check(shape[d], [&](const std::string& size) {
          return text("node '", node.name, "' (", node.op->name, "): dimension ", d, " of its output, ", size,
                      ", would be negative: an input is too small for it");
        });
    }
}

std::vector<Builder::CheckedSize> Builder::sizes_worth_learning(const Graph& graph) const {
  std::set<std::string> held;  // at 0, somewhere
  const auto look = [&](const Expr& e) {
    const auto* larger = e.as<tensor::Binary>();
    if (!larger || larger->op != tensor::BinaryOp::max) return;
    if (tensor::structurally_equal(larger->a, 0)) held.insert(tensor::to_text(larger->b));
    if (tensor::structurally_equal(larger->b, 0)) held.insert(tensor::to_text(larger->a));
  };
  for (const graph::Value& value : graph.values)
    for (const auto* expressions : {&value.type.shape, &value.elements})
      for (const Expr& e : *expressions)
        tensor::for_each_expr(tensor::Evaluate::make(e), look);
  std::vector<CheckedSize> result;
  std::copy_if(checked_.begin(), checked_.end(), std::back_inserter(result),
               [&](const CheckedSize& c) { return held.contains(c.size); });
  return result;
}

void Builder::report(ErrorKind kind, std::string where, std::string message, std::string hint) {
  problems_.push_back({kind, std::move(where), std::move(message), std::move(hint)});
}

void Builder::report_operand(const std::string& operand, const Entry& entry, const std::string& where) {
  report(ErrorKind::unsupported, where, text("operand '", operand, "' is ", kind_of_entry(entry), "; only tensors of numbers are supported"));
}

void Builder::report_open(const std::string& where, const tensor::Expr& extent) {
  report(ErrorKind::unsupported, where, text("takes its operand apart along a dimension of ", tensor::to_text(extent), ", which needs a value known at compile time"),
         "give the dimension a value instead of a range");
}

void Builder::report_all(const Diagnostics& problems, const std::string& where) {
  for (Diagnostic problem : problems) {
    problem.where = where;
    problems_.push_back(std::move(problem));
  }
}

std::optional<TensorType> Builder::input_type(const onnx::ValueInfoProto& input) {
  const auto& declared = input.type().tensor_type();
  std::optional<ElementType> element = element_of_onnx(declared.elem_type());
  if (!element || !declared.has_shape()) return std::nullopt;
  TensorType type{*element, {}};
  for (int i = 0; i < declared.shape().dim_size(); ++i) {
    const auto& dim = declared.shape().dim(i);
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      type.shape.emplace_back(dim.dim_value());
    } else {
      std::optional<graph::DimRange> range =
          given_range(options_, input.name(), static_cast<size_t>(i), dim.dim_param());
      if (!range)
        range = other_range(options_, static_cast<size_t>(i), declared.shape(),
                            appended_.contains(dim.dim_param()));
      if (!range) return std::nullopt;
      type.shape.push_back(graph_.dim(dim.dim_param(), *range));
    }
  }
  return type;
}

void Builder::add_input(const onnx::ValueInfoProto& input, Scope& scope) {
  const std::string where = text("input '", input.name(), "'");
  Entry& entry = scope.names[input.name()];
  if (is_tensor_sequence(held_type(input.type())))
    return;  // divide_inputs() has said that its length is not known
  if (!input.type().has_tensor_type())
    return report(ErrorKind::unsupported, where,
                  text("is ", kind_of_type(input.type()), "; only tensors are supported"));
  const int onnx_type = input.type().tensor_type().elem_type();
  if (onnx_type == onnx::TensorProto::STRING && !options_.has_strings)
    return report(ErrorKind::unsupported, where,
                  "is a tensor of strings; only models for CPUs have such inputs");
  std::optional<ElementType> element = element_of_onnx(onnx_type);
  if (!element) {
    return report(ErrorKind::unsupported, where,
                  text("element type ", onnx_type_name(onnx_type), " is not supported"));
  }
  if (auto fixed = options_.constants.find(input.name()); fixed != options_.constants.end()) {
    if (fixed->second.element() != *element) {
      return report(ErrorKind::usage, where,
                    text("is ", to_text(*element), ", but the value given for it is ",
                         to_text(fixed->second.element())));
    }
    return add_constant(input.name(), fixed->second, scope);
  }
  std::optional<TensorType> type = input_type(input);
  if (!type) return;  // bind_shapes() has said which dimension lacks a value
  if (!fits_memory(graph_, *type))
    return report(ErrorKind::unsupported, where, text(to_text(*type), " is too large"));
  if (*element == ElementType::string) {
    entry = add_text_input(input.name(), *type);
    return;
  }
  entry = {Entry::value, graph_.add_value(input.name(), *type)};
  graph_.inputs.push_back(entry.id);
}

void Builder::add_output(const onnx::ValueInfoProto& output, const Scope& scope) {
  const Entry entry = scope.find(output.name());
  if (entry.kind == Entry::labelled) return add_labelled_output(output, entry);
  if (output.type().has_optional_type()) {
    imported_.output_containers[output.name()].is_optional = true;
    imported_.output_containers[output.name()].holds = entry.kind != Entry::absent;
  }
  const onnx::TypeProto& declared = held_type(output.type());
  if (entry.kind == Entry::sequence) return add_sequence_output(output.name(), declared, entry);
  if (entry.kind == Entry::absent && output.type().has_optional_type()) return;
  if (!is_reported(entry) && (entry.kind == Entry::absent || declared.has_sequence_type())) {
    return report(
        ErrorKind::bad_input, text("output '", output.name(), "'"),
        text("is declared ", kind_of_type(output.type()), ", but the model computes ", kind_of_entry(entry)));
  }
  add_tensor_output(output.name(), declared.tensor_type().elem_type(), entry);
}

void Builder::add_tensor_output(const std::string& name, int declared, const Entry& entry) {
  const std::string where = text("output '", name, "'");
  if (entry.kind != Entry::value) {
    if (problems_.empty())
      report(ErrorKind::unsupported, where, "follows from something that is not supported");
    return;
  }
  const int computed = onnx_type(entry.id).tensor_type().elem_type();
  if (declared != onnx::TensorProto::UNDEFINED && declared != computed && !tainted_.count(entry.id)) {
    report(ErrorKind::bad_input, where,
           text("is declared ", onnx_type_name(declared), ", but the model computes ",
                onnx_type_name(computed)));
  }
  if (is_text(entry)) return add_text_output(name, entry);
  graph_.outputs.push_back(under_name(entry, name).id);
}

void Builder::add_sequence_output(const std::string& name, const onnx::TypeProto& declared,
                                  const Entry& sequence) {
  if (!is_tensor_sequence(declared))
    return report(
        ErrorKind::bad_input, text("output '", name, "'"),
        text("is declared ", kind_of_type(declared), ", but the model computes a sequence of tensors"));
  const auto length = static_cast<int64_t>(sequence.items->size());
  imported_.output_containers[name].length = length;
  for (int64_t i = 0; i < length; ++i) {
    const std::string item = item_name(name, i);
    const auto& others = model_.graph().output();
    if (std::any_of(others.begin(), others.end(), [&](const auto& other) { return other.name() == item; })) {
      report(ErrorKind::unsupported, text("output '", name, "'"),
             text("is a sequence, and the name of its tensor '", item, "' is taken"),
             "rename what has that name");
    }
    add_tensor_output(item, declared.sequence_type().elem_type().tensor_type().elem_type(),
                      (*sequence.items)[static_cast<size_t>(i)]);
  }
}

// What has another name is copied: an input, or another result, that a branch or a loop hands through.
Entry Builder::under_name(const Entry& v, const std::string& name) {
  if (graph_.value(v.id).name == name) return v;
  const Entry copy = make("Identity", {v}, {}, {text("output '", name, "'"), name});
  graph_.value(copy.id).name = name;
  if (tainted_.contains(v.id)) tainted_.insert(copy.id);
  return copy;
}

void Builder::add_constant(const std::string& name, Result<Constant> constant, Scope& scope) {
  if (!constant.ok()) {
    problems_.insert(problems_.end(), constant.errors().begin(), constant.errors().end());
    scope.names[name] = {};
    return;
  }
  const bool is_text = constant->element() == ElementType::string;
  scope.names[name] = {
      Entry::value, is_text ? add_texts(name, *constant) : graph_.add_constant(name, std::move(*constant))};
}

void Builder::add_initializers(const onnx::GraphProto& graph, Scope& scope) {
  for (const auto& value : graph.value_info())
    scope.types[value.name()] = &value.type();
  for (const auto& output : graph.output())
    scope.types.emplace(output.name(), &output.type());
  for (const auto& tensor : graph.initializer())
    add_tensor(tensor.name(), tensor, text("initializer '", tensor.name(), "'"), scope);
  for (const auto& tensor : graph.sparse_initializer()) {
    const std::string& name = tensor.values().name();
    add_constant(name, reader_.read_sparse(tensor, text("initializer '", name, "'")), scope);
  }
}

void Builder::add_nodes(const onnx::GraphProto& graph, Scope& scope, const Origin& origin) {
  const std::vector<bool> live = live_nodes(graph);
  for (int i = 0; i < graph.node_size(); ++i)
    if (live[static_cast<size_t>(i)]) add_node(graph.node(i), scope, origin);
}

void Builder::add_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  if (node.domain() == kRefusedDomain) return give_up(node, scope);
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  if (domain.empty() && node.op_type() == "Constant") return add_constant_node(node, scope, origin);
  if (domain.empty() && node.op_type() == "If") return add_if(node, scope, origin);
  if (domain.empty() && node.op_type() == "Loop") return add_loop(node, scope, origin);
  if (domain.empty() && node.op_type() == "Scan") return add_scan(node, scope, origin);
  if (domain == kBatchedScanDomain) return add_batched_scan(node, scope, origin);
  if (domain == kLabelDomain) return add_labels(node, scope);
  if (moves_labels(node, scope)) return add_moved_labels(node, scope, origin);
  if (domain.empty() && is_sequence_node(node, scope)) return add_sequence_node(node, scope, origin);
  if (domain.empty() && add_text_node(node, scope, origin)) return;
  if (!expect_texts(node, scope, origin)) return give_up(node, scope);
  if (domain.empty() && add_random_node(node, scope, origin)) return;
  if (const graph::OpDef* op = graph::find_op(domain, node.op_type()))
    return add_operator(*op, node, scope, origin);
  if (domain.empty() && add_data_shaped_node(node, scope, origin)) return;
  if (expand_function(node, domain, scope, origin)) return;
  report_unsupported(node, origin);
  give_up(node, scope);
}

void Builder::report_unsupported(const onnx::NodeProto& node, const Origin& origin) {
  std::string op = node.domain().empty() || node.domain() == "ai.onnx"
                       ? node.op_type()
                       : text(node.domain(), ".", node.op_type());
  report(ErrorKind::unsupported, where_of(node, origin),
         origin.where.empty() ? text("operator ", op, " is not supported")
                              : text("operator ", op, ", which its definition uses, is not supported"));
}

void Builder::give_up(const onnx::NodeProto& node, Scope& scope) {
  for (const std::string& output : node.output()) {
    if (output.empty()) continue;
    scope.names[output] = {};
    auto inferred = scope.types.find(output);
    if (inferred == scope.types.end()) continue;
    std::optional<TensorType> type = static_type_of(*inferred->second);
    if (!type || !fits_memory(graph_, *type)) continue;
    const bool is_text = type->element == ElementType::string;
    if (is_text) type->element = ElementType::i64;
    const ValueId id = graph_.add_value(output, *type);
    graph_.value(id).is_text = is_text;
    tainted_.insert(id);
    scope.names[output] = {Entry::value, id};
  }
}

void Builder::take_over(const std::string& name, const Entry& entry, size_t first, Scope& scope) {
  if (name.empty()) return;
  scope.names[name] = entry;
  if (entry.kind == Entry::value && static_cast<size_t>(entry.id) >= first) graph_.value(entry.id).name = name;
}

void build_graph(const onnx::ModelProto& model, TensorReader& reader, const ImportOptions& options,
                 const graph::Evaluator& fold, ImportedModel& imported, Diagnostics& problems) {
  const ImportedModel before = imported;
  Builder builder(model, reader, options, fold, imported, problems, {});
  graph::Graph graph = builder.build();
  const std::vector<Builder::CheckedSize> sizes = builder.sizes_worth_learning(graph);
  if (problems.empty() && !sizes.empty()) {
    imported = before;
    graph = Builder(model, reader, options, fold, imported, problems, sizes).build();
  }
  imported.graph = std::move(graph);
}

}  // namespace mcc::frontend
