#include "graph/op.h"

#include <map>

#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::graph {

// ---- Contexts ----

const Constant* InferContext::constant(int i) const {
  if (!has_input(i)) return nullptr;
  const auto& constant = graph_.value(node_.inputs[static_cast<size_t>(i)]).constant;
  return constant ? &*constant : nullptr;
}

namespace {

std::optional<std::vector<Expr>> known_elements(const Graph& graph, const Node& node, int i) {
  const Value& value = graph.value(node.inputs[static_cast<size_t>(i)]);
  if (!value.constant) return value.elements.empty() ? std::nullopt : std::optional(value.elements);
  std::vector<Expr> result;
  for (int64_t element : value.constant->to_ints())
    result.emplace_back(element);
  return result;
}

}  // namespace

std::optional<std::vector<Expr>> InferContext::elements(int i) const {
  if (!has_input(i) || !is_int(input(i).element)) return std::nullopt;
  std::optional<std::vector<Expr>> known = known_elements(graph_, node_, i);
  if (!known) wanted_.elements.push_back(i);
  return known;
}

bool InferContext::are_equal(const Expr& a, const Expr& b) {
  if (graph_.are_equal(a, b)) return true;
  int64_t x = 0, y = 0;
  if (!as_int(a, &x) || !as_int(b, &y)) wanted_.equalities.push_back({a, b, ""});
  return false;
}

std::optional<bool> InferContext::is_known_to_be(const Expr& extent, int64_t number) const {
  if (graph_.are_equal(extent, number)) return true;
  const tensor::Interval range = graph_.facts().bounds(extent);
  if ((range.low && *range.low > number) || (range.high && *range.high < number)) return false;
  return range.low && range.high && *range.low == *range.high ? std::optional(true) : std::nullopt;
}

std::vector<Expr> ComputeContext::elements(int i) const {
  std::optional<std::vector<Expr>> known = known_elements(graph_, node_, i);
  MCC_CHECK(known, node_.name, ": the elements of input ", i, " are not known");
  return *known;
}

Expr InferContext::own_dim(int output, size_t axis) const {
  const Shape& shape = graph_.value(node_.outputs[static_cast<size_t>(output)]).type.shape;
  MCC_CHECK(axis < shape.size(), node_.name, ": its output ", output, " has no dimension ", axis);
  return shape[axis];
}

void InferContext::set_output(int i, TensorType type) {
  if (!has_output(i)) return;
  if (outputs_.size() <= static_cast<size_t>(i)) outputs_.resize(static_cast<size_t>(i) + 1);
  int64_t value = 0;
  for (Expr& d : type.shape) {
    d = as_int(d, &value) ? d : graph_.with_named(graph_.facts().simplify(d));
    if (as_int(d, &value) && value < 0) {
      invalid(text("output ", i, " would have a negative dimension: ", to_text(type)));
      return;
    }
  }
  outputs_[static_cast<size_t>(i)] = std::move(type);
}

void InferContext::unsupported(std::string message) {
  errors_.push_back({ErrorKind::unsupported, "", std::move(message), ""});
}

void InferContext::invalid(std::string message) {
  errors_.push_back({ErrorKind::bad_input, "", std::move(message), ""});
}

const Constant* ComputeContext::constant(int i) const {
  if (!has_input(i)) return nullptr;
  const auto& constant = graph_.value(node_.inputs[static_cast<size_t>(i)]).constant;
  return constant ? &*constant : nullptr;
}

Expr ComputeContext::at(int i, std::vector<Expr> indices) const {
  const tensor::Buffer& buffer = inputs_[static_cast<size_t>(i)];
  if (buffer.defined()) return tensor::load(buffer, std::move(indices));
  const Constant* value = constant(i);
  if (!value) {
    const std::vector<Expr> known = elements(i);
    MCC_CHECK(known.size() == 1, node_.name, ": input ", i, " has no buffer");
    return cast(input_type(i).element, known[0]);
  }
  MCC_CHECK(value->count() == 1, node_.name, ": input ", i, " has no buffer");
  if (is_float(value->element())) return tensor::constant(value->element(), value->number_at(0));
  return tensor::constant_int({value->element(), 1}, value->int_at(0));
}

void ComputeContext::set_output(int i, tensor::Buffer buffer) {
  if (outputs_.size() <= static_cast<size_t>(i)) outputs_.resize(static_cast<size_t>(i) + 1);
  const TensorType& type = output_type(i);
  MCC_CHECK(buffer.element() == type.element && buffer.rank() == static_cast<int>(type.shape.size()),
            node_.name, ": output ", i, " is computed as ",
            to_text(TensorType{buffer.element(), buffer.shape()}), ", its type is ", to_text(type));
  outputs_[static_cast<size_t>(i)] = std::move(buffer);
}

// ---- Types of a node ----

namespace {

// The operator with its node's name, for messages.
std::string place(const Node& node) {
  return node.name.empty() ? std::string(node.op->name) : text(node.name, " (", node.op->name, ")");
}

Diagnostics check_inputs(const Graph& graph, const Node& node) {
  Diagnostics errors;
  for (int i = 0; i < node.op->required_inputs; ++i) {
    if (static_cast<size_t>(i) >= node.inputs.size() || node.inputs[static_cast<size_t>(i)] == kNoValue) {
      errors.push_back({ErrorKind::bad_input, place(node), text("input ", i, " is missing"), ""});
    }
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || node.op->fusion == FusionClass::host) continue;
    if (graph.value(node.inputs[i]).type.element == ElementType::string) {
      errors.push_back(
          {ErrorKind::unsupported, place(node), text("input ", i, " is a tensor of strings"), ""});
    }
  }
  return errors;
}

}  // namespace

Result<std::vector<TensorType>> infer_types(const Graph& graph, const Node& node, InferContext::Wanted* wanted) {
  if (Diagnostics errors = check_inputs(graph, node); !errors.empty()) return errors;
  InferContext context(graph, node);
  node.op->infer(context);
  if (!context.errors().empty()) {
    Diagnostics errors = context.errors();
    for (Diagnostic& d : errors)
      d.where = place(node);
    if (wanted) *wanted = context.wanted();
    return errors;
  }
  std::vector<TensorType> types(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    MCC_CHECK(i < context.outputs().size() && context.outputs()[i], place(node), ": no type for output ", i);
    types[i] = *context.outputs()[i];
  }
  return types;
}

bool is_embedded(const Graph& graph, const Node& node, int i) {
  auto position = static_cast<size_t>(i);
  if (i >= 32 || position >= node.inputs.size() || node.inputs[position] == kNoValue) return false;
  const Value& value = graph.value(node.inputs[position]);
  if (!value.constant && value.elements.empty()) return false;
  uint32_t bit = uint32_t{1} << i;
  return (node.op->constant_inputs & bit) != 0 ||
         ((node.op->scalar_inputs & bit) != 0 && (value.constant ? value.constant->count() == 1 : value.elements.size() == 1));
}

// ---- Look-up ----

const OpDef* find_op(std::string_view domain, std::string_view name) {
  using Key = std::pair<std::string_view, std::string_view>;
  static const std::map<Key, const OpDef*> index = [] {
    std::map<Key, const OpDef*> result;
    for (const OpDef* op : all_ops()) {
      bool is_new = result.emplace(Key(op->domain, op->name), op).second;
      MCC_CHECK(is_new, "operator ", op->name, " is listed twice");
    }
    return result;
  }();
  auto found = index.find({domain == "ai.onnx" ? "" : domain, name});
  return found == index.end() ? nullptr : found->second;
}

// ---- Functions ----

namespace {

bool uses_dim(const tensor::Func& f, const tensor::Var& dim) {
  auto in_shape = [&](const tensor::Buffer& b) {
    for (const Expr& d : b.shape()) {
      if (tensor::uses_var(d, dim)) return true;
    }
    return false;
  };
  for (const tensor::Buffer& b : f.params) {
    if (in_shape(b)) return true;
  }
  for (const tensor::Buffer& b : f.allocs) {
    if (in_shape(b)) return true;
  }
  return tensor::uses_var(f.body, dim);
}

}  // namespace

void set_dims(const Graph& graph, tensor::Func& func) {
  for (const tensor::Var& dim : graph.dims) {
    if (uses_dim(func, dim)) func.dims.push_back(dim);
  }
}

tensor::Func build_node_func(const Graph& graph, const Node& node) {
  MCC_CHECK(node.op->compute, "operator ", node.op->name, " has no compute definition");
  tensor::FuncBuilder builder{std::string(node.op->name)};
  std::map<ValueId, tensor::Buffer> buffers;
  std::vector<tensor::Buffer> inputs(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || is_embedded(graph, node, static_cast<int>(i))) continue;
    auto [entry, is_new] = buffers.try_emplace(node.inputs[i]);
    if (is_new) {
      const TensorType& type = graph.value(node.inputs[i]).type;
      entry->second = builder.input(text("x", i), type.element, type.shape);
    }
    inputs[i] = entry->second;
  }
  ComputeContext context(builder, graph, node, std::move(inputs));
  node.op->compute(context);
  std::vector<tensor::Buffer> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    MCC_CHECK(i < context.outputs().size() && context.outputs()[i].defined(), place(node), ": output ", i,
              " is not computed");
    outputs.push_back(context.outputs()[i]);
  }
  tensor::Func f = builder.finish(outputs);
  set_dims(graph, f);
  return f;
}

}  // namespace mcc::graph
