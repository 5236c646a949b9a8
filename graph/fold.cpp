#include "graph/fold.h"

#include <algorithm>
#include <map>

#include "support/saturating.h"
#include "tensor/interpret.h"
#include "tensor/workload.h"

namespace mcc::graph {

namespace {

// Memory for a tensor, aligned as kernels may expect it.
struct Block {
  explicit Block(size_t size) : storage(size + kAlignment) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    offset = (kAlignment - address % kAlignment) % kAlignment;
    used = size;
  }
  std::byte* data() { return storage.data() + offset; }
  std::span<const std::byte> bytes() const { return std::span(storage).subspan(offset, used); }

  static constexpr size_t kAlignment = 64;
  std::vector<std::byte> storage;
  size_t offset = 0, used = 0;
};

// Beside what grows with the model's weights: a table of positions, a mask.
constexpr int64_t kFreeBytes = int64_t{256} << 20, kFreeIterations = int64_t{1} << 32;
// Bytes that unpack to 32 bits are four times as many, by way of integers twice that.
constexpr int64_t kBytesOfByte = 16;
// Products of weights with each other: adapters of low rank that were not put into them.
constexpr int64_t kIterationsOfByte = 256;
constexpr int64_t kFewBytes = int64_t{64} << 20, kMostGrowth = 16;

int64_t bytes_of(const TensorType& type) {
  return saturating_mul(static_count(type.shape), byte_size(type.element));
}

}  // namespace

FoldBudget::FoldBudget(int64_t weight_bytes)
    : bytes_(std::max(kFreeBytes, saturating_mul(kBytesOfByte, weight_bytes))),
      iterations_(saturating_add(kFreeIterations, saturating_mul(kIterationsOfByte, weight_bytes))) {}

FoldBudget::FoldBudget(const Graph& graph) : FoldBudget(constant_bytes(graph)) {}

bool FoldBudget::may_grow(int64_t from_bytes, int64_t to_bytes) {
  return to_bytes <= std::max(kFewBytes, saturating_mul(kMostGrowth, from_bytes));
}

bool FoldBudget::take(int64_t iterations) {
  if (iterations > iterations_) return false;
  iterations_ -= iterations;
  return true;
}

int64_t constant_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& value : graph.values) {
    if (value.constant) bytes = saturating_add(bytes, static_cast<int64_t>(value.constant->bytes().size()));
  }
  return bytes;
}

Evaluator interpreter_evaluator(int64_t max_steps) {
  return [max_steps](const tensor::Func& f, std::span<const Constant> inputs,
                     const std::vector<TensorType>& outputs) -> Result<std::vector<Constant>> {
    MCC_CHECK(f.params.size() == inputs.size() + outputs.size(), f.name, ": ", f.params.size(),
              " parameters, ", inputs.size(), " inputs, ", outputs.size(), " outputs");
    std::vector<std::shared_ptr<Block>> results;
    std::vector<std::byte*> buffers;
    // The interpreter writes only to outputs and intermediates.
    for (const Constant& input : inputs)
      buffers.push_back(const_cast<std::byte*>(input.bytes().data()));
    for (const TensorType& type : outputs) {
      const auto size = static_cast<size_t>(static_count(type.shape) * byte_size(type.element));
      results.push_back(std::make_shared<Block>(size));
      buffers.push_back(results.back()->data());
    }
    tensor::InterpretOptions options;
    options.max_steps = max_steps;
    Status status = tensor::interpret(f, buffers, {}, options);
    if (!status.ok()) return status.errors();
    std::vector<Constant> constants;
    for (size_t i = 0; i < outputs.size(); ++i) {
      constants.emplace_back(outputs[i].element, static_shape(outputs[i].shape), results[i]->bytes(),
                             results[i]);
    }
    return constants;
  };
}

namespace {

// func: the node's.
Result<std::vector<Constant>> evaluate_func(const Graph& graph, const Node& node, const tensor::Func& func,
                                            std::span<const Constant> inputs, const Evaluator& evaluate) {
  std::vector<Constant> arguments;
  std::vector<ValueId> passed;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue || is_embedded(graph, node, static_cast<int>(i))) continue;
    if (std::find(passed.begin(), passed.end(), id) != passed.end()) continue;
    passed.push_back(id);
    arguments.push_back(inputs[i]);
  }
  std::vector<TensorType> types;
  for (ValueId id : node.outputs)
    if (id != kNoValue) types.push_back(graph.value(id).type);
  Result<std::vector<Constant>> computed = evaluate(func, arguments, types);
  if (!computed.ok()) return computed.errors();
  std::vector<Constant> outputs(node.outputs.size());
  for (size_t i = 0, next = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNoValue) outputs[i] = (*computed)[next++];
  return outputs;
}

}  // namespace

Result<std::vector<Constant>> evaluate_node(const Graph& graph, const Node& node,
                                            std::span<const Constant> inputs, const Evaluator& evaluate) {
  return evaluate_func(graph, node, build_node_func(graph, node), inputs, evaluate);
}

Result<std::optional<std::vector<Constant>>> fold_node(const Graph& graph, const Node& node,
                                                       const Evaluator& evaluate, FoldBudget& budget) {
  using Folded = std::optional<std::vector<Constant>>;
  if (node.op->fold && node.outputs.size() == 1) {
    if (std::optional<Constant> constant = node.op->fold(graph, node)) return Folded{std::vector{*constant}};
  }
  if (!node.op->compute) return Folded{};
  std::vector<Constant> inputs(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const Value& value = graph.value(node.inputs[i]);
    if (!value.constant) return Folded{};
    inputs[i] = *value.constant;
  }
  int64_t from = 0, to = 0;
  for (const Constant& input : inputs)
    from = saturating_add(from, static_cast<int64_t>(input.bytes().size()));
  for (ValueId id : node.outputs) {
    if (id == kNoValue) continue;
    if (!is_static(graph.value(id).type.shape) || !graph.value(id).elements.empty()) return Folded{};
    to = saturating_add(to, bytes_of(graph.value(id).type));
  }
  if (!FoldBudget::may_grow(from, to)) return Folded{};
  const tensor::Func func = build_node_func(graph, node);
  if (!budget.take(tensor::work_of(func).iterations)) return Folded{};
  Result<std::vector<Constant>> outputs = evaluate_func(graph, node, func, inputs, evaluate);
  if (!outputs.ok()) return outputs.errors();
  return Folded{std::move(*outputs)};
}

Result<std::vector<Constant>> run_graph(const Graph& graph, std::span<const Constant> inputs,
                                        const Evaluator& evaluate, const NodeObserver& observe,
                                        const Draws& draws) {
  MCC_CHECK(inputs.size() == graph.inputs.size(), "expected ", graph.inputs.size(), " inputs, got ",
            inputs.size());
  for (size_t i = 0; i < graph.dims.size(); ++i)
    if (graph.dim_sources[i].kind != DimSource::Kind::input)
      return Diagnostic{ErrorKind::unsupported, text("dimension '", graph.dims[i].name(), "'"), "data decides it, and the interpreter runs known sizes alone", ""};
  std::map<ValueId, Constant> values;
  for (size_t i = 0; i < inputs.size(); ++i)
    values[graph.inputs[i]] = inputs[i];
  auto value_of = [&](ValueId id) -> const Constant& {
    const Value& value = graph.value(id);
    return value.constant ? *value.constant : values.at(id);
  };
  for (const Node& node : graph.nodes) {
    if (node.dead) continue;
    if (is_draw(*node.op)) {
      values[node.outputs[0]] = draw(node, draws);
      continue;
    }
    if (!node.op->compute) {
      return Diagnostic{ErrorKind::unsupported, node.name,
                        text("operator ", node.op->name, " has no definition that the interpreter can run"),
                        ""};
    }
    std::vector<Constant> arguments;
    for (ValueId id : node.inputs)
      arguments.push_back(id == kNoValue ? Constant() : value_of(id));
    Result<std::vector<Constant>> outputs = evaluate_node(graph, node, arguments, evaluate);
    if (!outputs.ok()) {
      Diagnostics errors = outputs.errors();
      for (Diagnostic& error : errors)
        error.where = text(node.name, " (", node.op->name, ")", error.where.empty() ? "" : ": ", error.where);
      return errors;
    }
    if (observe) observe(node, *outputs);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNoValue) values[node.outputs[i]] = (*outputs)[i];
  }
  std::vector<Constant> results;
  for (ValueId id : graph.outputs)
    results.push_back(value_of(id));
  return results;
}

}  // namespace mcc::graph
