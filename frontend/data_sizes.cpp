// Sizes that data decides: elements of tensors that nodes take for sizes and positions, as symbolic dimensions of the graph.
#include <algorithm>

#include "frontend/graph_builder.h"
#include "graph/elements.h"
#include "tensor/text.h"

namespace mcc::frontend {

using graph::DimRange;
using graph::DimSource;
using graph::Node;
using graph::TensorType;
using graph::ValueId;
using tensor::Expr;
using tensor::VarMap;

namespace {

// Numbers beyond are held at these: they are for "to the end", and sums and products of them stay far from overflow.
constexpr int64_t kFar = int64_t{1} << 40;
// Elements of a tensor of sizes, of which there is one for each dimension.
constexpr int64_t kMostSizes = 64;
// That a size is followed through to what it is computed of.
constexpr size_t kMostNodes = 256;

bool has_few_integers(const TensorType& type) {
  return (is_int(type.element) || type.element == ElementType::boolean) && graph::is_static(type.shape) &&
         graph::static_count(type.shape) <= kMostSizes;
}

// Whether kernels may have it as the extent of a loop: sums and products of sizes.
bool is_plain_size(const graph::Graph& graph, const Expr& e) {
  int64_t value = 0;
  if (tensor::as_int(e, &value)) return true;
  for (size_t i = 0; i < graph.dims.size(); ++i)
    if (graph.dims[i].same_as(e)) return graph.dim_ranges[i].min >= 0;
  const auto* binary = e.as<tensor::Binary>();
  const bool is_sum = binary && (binary->op == tensor::BinaryOp::add || binary->op == tensor::BinaryOp::mul);
  return is_sum && is_plain_size(graph, binary->a) && is_plain_size(graph, binary->b);
}

}  // namespace

ValueId Builder::as_sizes(ValueId v) {
  const graph::Value& value = graph_.value(v);
  if (value.constant || !value.elements.empty()) return v;
  const auto [known, is_new] = sizes_.try_emplace(v, v);
  if (!is_new) return known->second;
  const TensorType type = value.type;
  if (!has_few_integers(type)) return v;
  const std::string name = value.name;
  UnknownElements unknown;
  std::vector<Expr> elements = known_elements(v, unknown);
  elements.resize(static_cast<size_t>(graph::static_count(type.shape)));
  const VarMap dims = dims_of(unknown, elements);
  const DimRange range = type.element == ElementType::boolean ? DimRange{0, 1} : DimRange{-kFar, kFar};
  for (size_t i = 0; i < elements.size(); ++i) {
    if (int64_t number = 0; elements[i].defined() && tensor::as_int(elements[i], &number)) {
      elements[i] = std::clamp(number, range.min, range.max);
    } else if (elements[i].defined()) {
      elements[i] = graph_.facts().simplify(tensor::substitute(elements[i], dims));
    } else {
      const std::string its_name = elements.size() == 1 ? name : text(name, "[", i, "]");
      elements[i] =
          graph_.add_data_dim(its_name, range, {DimSource::Kind::element, v, static_cast<int64_t>(i), {}});
    }
  }
  const ValueId sizes = graph_.add_value(text(name, ".sizes"), type);
  graph_.value(sizes).elements = std::move(elements);
  return sizes_[v] = sizes;
}

std::vector<Expr> Builder::known_elements(ValueId v, UnknownElements& unknown) {
  const graph::NodeId producer = graph_.value(v).producer;
  if (producer < 0 || unknown.of.size() >= kMostNodes) return {};
  const graph::Node& node = graph_.node(producer);
  const auto output = std::find(node.outputs.begin(), node.outputs.end(), v) - node.outputs.begin();
  return graph::known_elements(graph_, node, static_cast<size_t>(output),
                               [&](ValueId input) { return named_elements(input, unknown); });
}

std::vector<Expr> Builder::named_elements(ValueId v, UnknownElements& unknown) {
  const auto sizes = sizes_.find(v);
  const graph::Value& value = graph_.value(sizes == sizes_.end() ? v : sizes->second);
  if (!value.elements.empty()) return value.elements;
  if (value.constant) return graph::elements_of_constant(*value.constant);
  if (value.type.element == ElementType::boolean || !has_few_integers(value.type)) return {};
  if (const auto known = unknown.of.find(v); known != unknown.of.end()) return known->second;
  unknown.of[v];  // counts
  std::vector<Expr> elements = known_elements(v, unknown);
  elements.resize(static_cast<size_t>(graph::static_count(value.type.shape)));
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].defined()) continue;
    const tensor::Var var(text(value.name, "[", i, "]"));
    unknown.elements.push_back({var, v, i});
    elements[i] = var;
  }
  return unknown.of[v] = elements;
}

VarMap Builder::dims_of(const UnknownElements& unknown, const std::vector<Expr>& used_in) {
  VarMap dims;
  for (const UnknownElements::Element& element : unknown.elements) {
    const bool is_used = std::any_of(used_in.begin(), used_in.end(), [&](const Expr& e) {
      return e.defined() && tensor::uses_var(e, element.var);
    });
    if (is_used) dims[element.var.get()] = graph_.value(as_sizes(element.value)).elements[element.index];
  }
  return dims;
}

Result<std::vector<TensorType>> Builder::infer(Node& node, const std::string& where) {
  // Each round makes known what the operator asked for first; it asks for no more than its operands' elements and dimensions.
  constexpr int kMostRounds = 32;
  for (int round = 0;; ++round) {
    graph::InferContext::Wanted wanted;
    Result<std::vector<TensorType>> types = graph::infer_types(graph_, node, &wanted);
    if (types.ok() || round == kMostRounds) return types;
    bool is_new = false;
    for (int i : wanted.elements) {
      ValueId& operand = node.inputs[static_cast<size_t>(i)];
      const ValueId sizes = tainted_.contains(operand) ? operand : as_sizes(operand);
      is_new |= sizes != operand;
      operand = sizes;
    }
    for (graph::DimEquality equality : wanted.equalities) {
      equality.where = text(where, ": expected ", tensor::to_text(equality.a), " and ",
                            tensor::to_text(equality.b), " to be equal");
      graph_.equalities.push_back(std::move(equality));
      is_new = true;
    }
    if (!is_new) return types;
  }
}

Expr Builder::named_size(const Expr& size, const std::string& name) {
  if (!graph_.depends_on_data(size) || is_plain_size(graph_, size)) return size;
  const Expr known = graph_.with_named(size);
  if (!tensor::structurally_equal(known, size)) return known;
  const tensor::Interval bounds = graph_.facts().bounds(size);
  const DimRange range{std::max<int64_t>(bounds.low.value_or(0), 0),
                       std::clamp<int64_t>(bounds.high.value_or(kFar), 0, kFar)};
  return graph_.add_data_dim(name, {std::min(range.min, range.max), range.max},
                             {DimSource::Kind::expression, graph::kNoValue, 0, size});
}

void Builder::name_sizes(const onnx::NodeProto& node, std::vector<TensorType>& types) {
  for (size_t i = 0; i < types.size(); ++i)
    for (size_t d = 0; d < types[i].shape.size(); ++d)
      types[i].shape[d] = named_size(types[i].shape[d], text(node.output(static_cast<int>(i)), ".", d));
}

}  // namespace mcc::frontend
