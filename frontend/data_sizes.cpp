// Sizes that data decides: elements of tensors that nodes take for sizes and positions, as symbolic dimensions of the graph.
#include <algorithm>

#include "frontend/graph_builder.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::frontend {

using graph::DimRange;
using graph::DimSource;
using graph::Node;
using graph::TensorType;
using graph::ValueId;
using tensor::Expr;

namespace {

// Numbers beyond are held at these: they are for "to the end", and sums and products of them stay far from overflow.
constexpr int64_t kFar = int64_t{1} << 40;
// Elements of a tensor of sizes, of which there is one for each dimension.
constexpr int64_t kMostSizes = 64;

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
  const bool is_whole = is_int(value.type.element) || value.type.element == ElementType::boolean;
  if (!is_whole || !graph::is_static(value.type.shape) || graph::static_count(value.type.shape) > kMostSizes)
    return v;
  const int64_t count = graph::static_count(value.type.shape);
  const DimRange range = value.type.element == ElementType::boolean ? DimRange{0, 1} : DimRange{-kFar, kFar};
  std::vector<Expr> elements = elements_of_parts(v);
  for (int64_t i = static_cast<int64_t>(elements.size()); i < count; ++i) {
    const std::string name = count == 1 ? graph_.value(v).name : text(graph_.value(v).name, "[", i, "]");
    elements.push_back(graph_.add_data_dim(name, range, {DimSource::Kind::element, v, i, {}}));
  }
  const TensorType type = graph_.value(v).type;
  const ValueId sizes = graph_.add_value(text(graph_.value(v).name, ".sizes"), type);
  graph_.value(sizes).elements = std::move(elements);
  return known->second = sizes;
}

// Of a list that is put together of others: of those some may be known. Empty for what is no such list.
std::vector<Expr> Builder::elements_of_parts(ValueId v) {
  const graph::NodeId producer = graph_.value(v).producer;
  if (producer < 0 || graph_.value(v).type.shape.size() != 1 ||
      graph_.node(producer).op != graph::find_op("", "Concat"))
    return {};
  std::vector<Expr> elements;
  for (const ValueId part : std::vector<ValueId>(graph_.node(producer).inputs)) {
    const graph::Value& known = graph_.value(as_sizes(part));
    if (known.constant) {
      for (const int64_t element : known.constant->to_ints())
        elements.emplace_back(element);
    } else if (known.elements.empty() &&
               !(graph::is_static(known.type.shape) && graph::static_count(known.type.shape) == 0)) {
      return {};
    } else {
      elements.insert(elements.end(), known.elements.begin(), known.elements.end());
    }
  }
  return elements;
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
