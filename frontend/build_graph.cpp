#include "frontend/build_graph.h"

#include <algorithm>
#include <set>

#include "frontend/contrib/contrib.h"
#include "frontend/function_body.h"
#include "frontend/model_prepare.h"
#include "graph/op.h"
#include "onnx/defs/schema.h"

namespace mcc::frontend {

namespace {

using graph::Constant;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::TensorType;
using graph::ValueId;

// Nodes over constants are computed at once when inputs and outputs together have at most so many elements. That
// covers the arithmetic on shapes; larger ones are left to the pass that folds with compiled code.
constexpr int64_t kFoldElements = 4096;
// Larger tensors are refused: no machine holds them, and sizes stay far from overflow.
constexpr int64_t kMostBytes = int64_t{1} << 40;
// Functions inside functions.
constexpr int kMaxExpansion = 16;

// What a name of the model stands for.
struct Entry {
  enum Kind {
    value,    // id
    absent,   // an optional operand that is left out
    unknown,  // the result of something unsupported whose type is not known either
  };
  Kind kind = unknown;
  ValueId id = kNoValue;
};

struct Scope {
  std::map<std::string, Entry> names;
  std::map<std::string, const onnx::TypeProto*> types;  // as ONNX inferred them
  const Scope* parent = nullptr;

  Entry find(const std::string& name) const {
    if (name.empty()) return {Entry::absent, kNoValue};
    for (const Scope* s = this; s; s = s->parent)
      if (auto found = s->names.find(name); found != s->names.end()) return found->second;
    return {};
  }
};

// How nodes are spoken of: a node of a function body stands for the node that was expanded.
struct Origin {
  std::string where;  // label of the model's node; empty: the node's own
  std::string name;
  int depth = 0;
};

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

const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const std::string& name) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

bool fits_memory(const TensorType& type) {
  int64_t bytes = byte_size(type.element);
  for (const tensor::Expr& dim : type.shape) {
    int64_t value = 1;
    if (tensor::as_int(dim, &value) && value == 0) return true;
    if (__builtin_mul_overflow(bytes, value, &bytes)) return false;
  }
  return bytes <= kMostBytes;
}

const char* kind_of_type(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) return "a sequence";
  if (type.has_map_type()) return "a map";
  if (type.has_optional_type()) return "an optional value";
  if (type.has_sparse_tensor_type()) return "a sparse tensor";
  return "not a tensor";
}

class Builder {
 public:
  Builder(const onnx::ModelProto& model, TensorReader& reader, const ImportOptions& options,
          const graph::Evaluator& fold, Diagnostics& problems)
      : model_(model), reader_(reader), options_(options), fold_(fold), problems_(problems) {}

  Graph build() {
    const onnx::GraphProto& graph = model_.graph();
    graph_.name = graph.name();
    Scope scope;
    for (const auto& input : graph.input())
      add_input(input, scope);
    add_body(graph, scope, {});
    for (const auto& output : graph.output())
      add_output(output, scope);
    return std::move(graph_);
  }

 private:
  void report(ErrorKind kind, std::string where, std::string message, std::string hint = "") {
    problems_.push_back({kind, std::move(where), std::move(message), std::move(hint)});
  }

  void report_all(const Diagnostics& problems, const std::string& where) {
    for (Diagnostic problem : problems) {
      problem.where = where;
      problems_.push_back(std::move(problem));
    }
  }

  static std::string where_of(const onnx::NodeProto& node, const Origin& origin) {
    return origin.where.empty() ? node_label(node) : origin.where;
  }

  void add_input(const onnx::ValueInfoProto& input, Scope& scope) {
    const std::string where = text("input '", input.name(), "'");
    Entry& entry = scope.names[input.name()];
    if (!input.type().has_tensor_type())
      return report(ErrorKind::unsupported, where,
                    text("is ", kind_of_type(input.type()), "; only tensors are supported"));
    const int onnx_type = input.type().tensor_type().elem_type();
    std::optional<ElementType> element = element_of_onnx(onnx_type);
    if (!element || *element == ElementType::string) {
      return report(ErrorKind::unsupported, where,
                    text("element type ", onnx_type_name(onnx_type), " is not supported"));
    }
    if (auto fixed = options_.constants.find(input.name()); fixed != options_.constants.end()) {
      if (fixed->second.element() != *element) {
        return report(ErrorKind::usage, where,
                      text("is ", to_text(*element), ", but the value given for it is ",
                           to_text(fixed->second.element())));
      }
      entry = {Entry::value, graph_.add_constant(input.name(), fixed->second)};
      return;
    }
    std::optional<TensorType> type = static_type_of(input.type());
    if (!type) return;  // bind_shapes() has said which dimension lacks a value
    if (!fits_memory(*type))
      return report(ErrorKind::unsupported, where, text(to_text(*type), " is too large"));
    entry = {Entry::value, graph_.add_value(input.name(), *type)};
    graph_.inputs.push_back(entry.id);
  }

  void add_output(const onnx::ValueInfoProto& output, const Scope& scope) {
    const Entry entry = scope.find(output.name());
    if (entry.kind != Entry::value) return;
    const TensorType& type = graph_.value(entry.id).type;
    const int declared = output.type().tensor_type().elem_type();
    if (output.type().has_tensor_type() && declared != onnx::TensorProto::UNDEFINED &&
        declared != onnx_of_element(type.element) && !tainted_.count(entry.id)) {
      report(ErrorKind::bad_input, text("output '", output.name(), "'"),
             text("is declared ", onnx_type_name(declared), ", but the model computes ",
                  onnx_type_name(onnx_of_element(type.element))));
    }
    graph_.outputs.push_back(entry.id);
  }

  void add_constant(const std::string& name, Result<Constant> constant, Scope& scope) {
    if (!constant.ok()) {
      problems_.insert(problems_.end(), constant.errors().begin(), constant.errors().end());
      scope.names[name] = {};
      return;
    }
    scope.names[name] = {Entry::value, graph_.add_constant(name, std::move(*constant))};
  }

  // Initializers and nodes of the main graph or of a branch.
  void add_body(const onnx::GraphProto& graph, Scope& scope, const Origin& origin) {
    for (const auto& value : graph.value_info())
      scope.types[value.name()] = &value.type();
    for (const auto& output : graph.output())
      scope.types.emplace(output.name(), &output.type());
    for (const auto& tensor : graph.initializer())
      add_constant(tensor.name(), reader_.read(tensor, text("initializer '", tensor.name(), "'")), scope);
    for (const auto& tensor : graph.sparse_initializer()) {
      const std::string& name = tensor.values().name();
      add_constant(name, reader_.read_sparse(tensor, text("initializer '", name, "'")), scope);
    }
    const std::vector<bool> live = live_nodes(graph);
    for (int i = 0; i < graph.node_size(); ++i)
      if (live[static_cast<size_t>(i)]) add_node(graph.node(i), scope, origin);
  }

  void add_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
    if (node.domain() == kRefusedDomain) return give_up(node, scope);
    const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
    if (domain.empty() && node.op_type() == "Constant") return add_constant_node(node, scope, origin);
    if (domain.empty() && node.op_type() == "If") return add_if(node, scope, origin);
    if (const graph::OpDef* op = graph::find_op(domain, node.op_type()))
      return add_operator(*op, node, scope, origin);
    if (expand_function(node, domain, scope, origin)) return;
    report_unsupported(node, origin);
    give_up(node, scope);
  }

  void report_unsupported(const onnx::NodeProto& node, const Origin& origin) {
    std::string op = node.domain().empty() || node.domain() == "ai.onnx"
                         ? node.op_type()
                         : text(node.domain(), ".", node.op_type());
    report(ErrorKind::unsupported, where_of(node, origin),
           origin.where.empty() ? text("operator ", op, " is not supported")
                                : text("operator ", op, ", which its definition uses, is not supported"));
  }

  // The node's results are unknown; going on with the types that ONNX infers for them lets later nodes be looked at.
  void give_up(const onnx::NodeProto& node, Scope& scope) {
    for (const std::string& output : node.output()) {
      if (output.empty()) continue;
      scope.names[output] = {};
      auto inferred = scope.types.find(output);
      if (inferred == scope.types.end()) continue;
      std::optional<TensorType> type = static_type_of(*inferred->second);
      if (!type || !fits_memory(*type)) continue;
      const ValueId id = graph_.add_value(output, *type);
      tainted_.insert(id);
      scope.names[output] = {Entry::value, id};
    }
  }

  void add_constant_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
    if (node.attribute_size() != 1 || node.output_size() != 1) {
      report(ErrorKind::bad_input, where_of(node, origin), "expected one value and one output");
      return give_up(node, scope);
    }
    add_constant(node.output(0), constant_value(node.attribute(0), where_of(node, origin)), scope);
  }

  Result<Constant> constant_value(const onnx::AttributeProto& a, const std::string& where) {
    if (a.name() == "value") return reader_.read(a.t(), where);
    if (a.name() == "sparse_value") return reader_.read_sparse(a.sparse_tensor(), where);
    if (a.name() == "value_int") return Constant::of(ElementType::i64, {}, std::vector<int64_t>{a.i()});
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

  // The taken branch of an If with a known condition becomes part of the graph.
  void add_if(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
    const Entry condition = scope.find(node.input_size() ? node.input(0) : "");
    if (condition.kind != Entry::value || tainted_.count(condition.id)) return give_up(node, scope);
    const std::optional<Constant>& known = graph_.value(condition.id).constant;
    if (!known || known->count() != 1) {
      report(ErrorKind::unsupported, where_of(node, origin), "its condition is not known at compile time");
      return give_up(node, scope);
    }
    const onnx::AttributeProto* branch =
        find_attribute(node, known->int_at(0) ? "then_branch" : "else_branch");
    if (!branch || !branch->has_g() || branch->g().output_size() < node.output_size()) {
      report(ErrorKind::bad_input, where_of(node, origin), "a branch is missing or has too few outputs");
      return give_up(node, scope);
    }
    Scope inner;
    inner.parent = &scope;
    const size_t first = graph_.values.size();
    add_body(branch->g(), inner, origin);
    for (int i = 0; i < node.output_size(); ++i)
      take_over(node.output(i), inner.find(branch->g().output(i).name()), first, scope);
  }

  // A result of a body becomes that of the node which the body stands for. Values from `first` on are the body's own: they take
  // the name.
  void take_over(const std::string& name, const Entry& entry, size_t first, Scope& scope) {
    if (name.empty()) return;
    scope.names[name] = entry;
    if (entry.kind == Entry::value && static_cast<size_t>(entry.id) >= first) graph_.value(entry.id).name = name;
  }

  // Operators that are defined by others are built from those: some of ONNX's, all of onnxruntime's. False: it is none.
  bool expand_function(const onnx::NodeProto& node, const std::string& domain, Scope& scope,
                       const Origin& origin) {
    if (origin.depth >= kMaxExpansion) return false;
    const bool is_contrib = domain == kContribDomain && contrib_schema(domain, node.op_type());
    const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), opset_of(domain), domain);
    const bool has_body = schema && (schema->HasFunction() || schema->HasContextDependentFunction());
    if (!is_contrib && !has_body) return false;
    std::vector<onnx::TypeProto> types;
    bool taint = false;
    for (const std::string& input : node.input()) {
      const Entry entry = scope.find(input);
      if (entry.kind == Entry::unknown) {
        give_up(node, scope);
        return true;
      }
      taint |= entry.kind == Entry::value && tainted_.count(entry.id) != 0;
      types.push_back(entry.kind == Entry::value ? onnx_type_of(graph_.value(entry.id).type)
                                                 : onnx::TypeProto());
    }
    onnx::FunctionProto body;
    if (is_contrib) {
      Result<onnx::FunctionProto> expansion = expand_contrib(node, types);
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
          i < node.input_size() ? scope.find(node.input(i)) : Entry{Entry::absent, kNoValue};
    const Origin deeper{where_of(node, origin), origin.name.empty() ? name_of(node) : origin.name,
                        origin.depth + 1};
    const size_t first = graph_.values.size();
    for (const auto& step : body.node())
      add_node(step, inner, deeper);
    for (int i = 0; i < node.output_size() && i < body.output_size(); ++i)
      take_over(node.output(i), inner.find(body.output(i)), first, scope);
    return true;
  }

  int opset_of(const std::string& domain) const {
    for (const auto& import : model_.opset_import())
      if (import.domain() == domain) return static_cast<int>(import.version());
    return kOpset;
  }

  static std::string name_of(const onnx::NodeProto& node) {
    if (!node.name().empty()) return node.name();
    return node.output_size() ? node.output(0) : node.op_type();
  }

  bool translate_attributes(const onnx::NodeProto& from, const std::string& where, graph::Attributes& to) {
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

  void add_operator(const graph::OpDef& op, const onnx::NodeProto& from, Scope& scope, const Origin& origin) {
    const std::string where = where_of(from, origin);
    Node node;
    node.op = &op;
    node.name = origin.name.empty() ? name_of(from) : origin.name;
    node.origins = {node.name};
    bool taint = false;
    for (const std::string& input : from.input()) {
      const Entry entry = scope.find(input);
      if (entry.kind == Entry::unknown) return give_up(from, scope);
      taint |= entry.kind == Entry::value && tainted_.count(entry.id) != 0;
      node.inputs.push_back(entry.kind == Entry::value ? entry.id : kNoValue);
    }
    while (!node.inputs.empty() && node.inputs.back() == kNoValue)
      node.inputs.pop_back();
    if (!translate_attributes(from, where, node.attributes)) return give_up(from, scope);
    // Only whether an output is there counts until the types are known.
    for (const std::string& output : from.output())
      node.outputs.push_back(output.empty() ? kNoValue : 0);

    Result<std::vector<TensorType>> types = graph::infer_types(graph_, node);
    if (!types.ok()) {
      // What follows from something reported already is not a fault of its own.
      if (!taint) report_all(types.errors(), where);
      return give_up(from, scope);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue || fits_memory((*types)[i])) continue;
      report(ErrorKind::unsupported, where, text("its output ", to_text((*types)[i]), " is too large"));
      return give_up(from, scope);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const std::string& name = from.output(static_cast<int>(i));
      node.outputs[i] = graph_.add_value(name, (*types)[i]);
      scope.names[name] = {Entry::value, node.outputs[i]};
      if (taint) tainted_.insert(node.outputs[i]);
    }
    if (fold(node, where)) return;
    append(std::move(node));
  }

  void append(Node node) {
    const auto id = static_cast<graph::NodeId>(graph_.nodes.size());
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      graph_.value(node.outputs[i]).producer = id;
      graph_.value(node.outputs[i]).output_index = static_cast<int>(i);
    }
    graph_.nodes.push_back(std::move(node));
  }

  bool is_small(const Node& node) const {
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

  // Whether the node's outputs are known now.
  bool fold(const Node& node, const std::string& where) {
    if ((!node.op->fold && !is_small(node)) || node.op->is_folded_late) return false;
    Result<std::optional<std::vector<Constant>>> folded = graph::fold_node(graph_, node, fold_);
    if (!folded.ok()) {
      report_all(folded.errors(), where);
      return false;
    }
    if (!*folded) return false;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNoValue) graph_.value(node.outputs[i]).constant = std::move((**folded)[i]);
    return true;
  }

  const onnx::ModelProto& model_;
  TensorReader& reader_;
  const ImportOptions& options_;
  const graph::Evaluator& fold_;
  Diagnostics& problems_;
  Graph graph_;
  std::set<ValueId> tainted_;  // results of unsupported nodes, and what depends on them
};

}  // namespace

graph::Graph build_graph(const onnx::ModelProto& model, TensorReader& reader, const ImportOptions& options,
                         const graph::Evaluator& fold, Diagnostics& problems) {
  return Builder(model, reader, options, fold, problems).build();
}

}  // namespace mcc::frontend
