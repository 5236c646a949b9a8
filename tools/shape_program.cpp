#include "tools/shape_program.h"

#include <algorithm>
#include <utility>

#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::tools {

using codegen::Quantity;
using tensor::BinaryOp;
using tensor::Expr;

namespace {

// The shape operation of an integer or logical one, if it has its own.
mcc_shape_op operation_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return MCC_SHAPE_add;
    case BinaryOp::sub:
      return MCC_SHAPE_sub;
    case BinaryOp::mul:
      return MCC_SHAPE_mul;
    case BinaryOp::floor_div:
      return MCC_SHAPE_floordiv;
    case BinaryOp::floor_mod:
      return MCC_SHAPE_mod;
    case BinaryOp::min:
      return MCC_SHAPE_min;
    case BinaryOp::max:
      return MCC_SHAPE_max;
    case BinaryOp::eq:
      return MCC_SHAPE_equal;
    case BinaryOp::lt:
    case BinaryOp::gt:
      return MCC_SHAPE_less;
    case BinaryOp::le:
    case BinaryOp::ge:
      return MCC_SHAPE_less_equal;
    case BinaryOp::logical_and:
      return MCC_SHAPE_and;
    case BinaryOp::logical_or:
      return MCC_SHAPE_or;
    case BinaryOp::ne:
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      return MCC_SHAPE_OP_COUNT;
  }
  MCC_UNREACHABLE("unknown operation");
}

}  // namespace

ShapeProgram::ShapeProgram(codegen::PlanDesc& plan, const graph::Graph& graph, std::function<uint32_t(graph::ValueId)> value_of)
    : plan_(plan), graph_(graph), value_of_(std::move(value_of)), known_(1) {
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    if (graph.dim_sources[i].kind != graph::DimSource::Kind::input) continue;
    known_[0][tensor::to_text(graph.dims[i])] = codegen::slot_quantity(plan_.slot_count++);
    plan_.symbols.push_back({graph.dims[i].name(), graph.dim_ranges[i].min, graph.dim_ranges[i].max});
  }
}

const Quantity* ShapeProgram::find(const std::string& text) const {
  for (auto scope = known_.rbegin(); scope != known_.rend(); ++scope)
    if (const auto found = scope->find(text); found != scope->end()) return &found->second;
  return nullptr;
}

Quantity ShapeProgram::quantity(const Expr& e) {
  int64_t value = 0;
  if (tensor::as_int(e, &value) && value >= 0) return value;
  if (tensor::thread_count().same_as(e)) return emit(false, MCC_SHAPE_threads, 0, 0);
  const std::string text = tensor::to_text(e);
  if (const Quantity* known = find(text)) return *known;
  const Quantity computed = compute(e);
  // What inputs decide is computed before everything else.
  (graph_.depends_on_data(e) ? known_.back() : known_.front())[text] = computed;
  return computed;
}

void ShapeProgram::define(const tensor::Var& name, const Expr& e) { known_.front()[tensor::to_text(name)] = quantity(e); }

void ShapeProgram::define_same_memory(const tensor::Var& name, graph::ValueId input, graph::ValueId output) {
  // The output's size is computed before.
  for (const Expr& extent : graph_.value(output).type.shape)
    quantity(extent);
  auto place_in = [](const std::vector<graph::ValueId>& list, graph::ValueId v) {
    return std::find(list.begin(), list.end(), v) - list.begin();
  };
  known_.front()[tensor::to_text(name)] =
      emit(false, MCC_SHAPE_same, place_in(graph_.inputs, input), place_in(graph_.outputs, output));
}

Quantity ShapeProgram::product(const graph::Shape& shape, int64_t factor) {
  Expr count = factor;
  for (const Expr& d : shape)
    count = count * d;
  return quantity(tensor::simplify(count));
}

Quantity ShapeProgram::declare(const tensor::Var& dim) {
  return known_.back()[tensor::to_text(dim)] = codegen::slot_quantity(plan_.slot_count++);
}

void ShapeProgram::assign(Quantity slot, Quantity from) {
  pending_.push_back({MCC_SHAPE_move, static_cast<uint32_t>(MCC_SLOT_OF_QUANTITY(slot)), from, 0, 0, ""});
}

void ShapeProgram::check_equal(const Expr& a, const Expr& b, const std::string& message) {
  const bool is_of_data = graph_.depends_on_data(a) || graph_.depends_on_data(b);
  const Quantity x = quantity(a), y = quantity(b);
  const Quantity holds = emit(is_of_data, MCC_SHAPE_equal, x, y);
  (is_of_data ? pending_ : plan_.graphs[0].code).push_back({MCC_SHAPE_check, MCC_PLAN_NONE, holds, 0, 0, message});
}

void ShapeProgram::check_unchanged(Quantity number, Quantity slot, Quantity now, const std::string& message) {
  const Quantity holds = emit(true, MCC_SHAPE_or, emit(true, MCC_SHAPE_equal, number, 0), emit(true, MCC_SHAPE_equal, slot, now));
  pending_.push_back({MCC_SHAPE_check, MCC_PLAN_NONE, holds, 0, 0, message});
}

void ShapeProgram::grow(uint32_t block, Quantity bytes, const std::string& what, Quantity kept) {
  pending_.push_back({MCC_SHAPE_grow, MCC_PLAN_NONE, block, bytes, kept, what});
}

std::vector<codegen::PlanInstruction> ShapeProgram::take_pending() { return std::exchange(pending_, {}); }

Quantity ShapeProgram::emit(bool is_of_data, mcc_shape_op op, Quantity a, Quantity b, Quantity c) {
  const uint32_t slot = plan_.slot_count++;
  (is_of_data ? pending_ : plan_.graphs[0].code).push_back({op, slot, a, b, c, ""});
  return codegen::slot_quantity(slot);
}

Quantity ShapeProgram::held_within(Quantity value, const graph::DimRange& range) {
  return emit(true, MCC_SHAPE_min, emit(true, MCC_SHAPE_max, value, quantity(range.min)),
              quantity(range.max));
}

Quantity ShapeProgram::compute_data_dim(size_t dim) {
  const graph::DimSource& source = graph_.dim_sources[dim];
  const graph::DimRange& range = graph_.dim_ranges[dim];
  if (source.kind == graph::DimSource::Kind::element) {
    const uint32_t value = value_of_(source.value);
    return held_within(emit(true, MCC_SHAPE_load, value, source.element), range);
  }
  MCC_CHECK(source.kind == graph::DimSource::Kind::expression, "dimension ", graph_.dims[dim].name(), " before it is known");
  const Quantity size = quantity(source.expression);
  if (graph_.facts().can_prove(source.expression >= 0)) return size;
  const Quantity is_size = emit(true, MCC_SHAPE_less_equal, 0, size);
  pending_.push_back({MCC_SHAPE_check, MCC_PLAN_NONE, is_size, 0, 0, text("dimension ", graph_.dims[dim].name(), " would be negative")});
  return size;
}

Quantity ShapeProgram::compute(const Expr& e) {
  const bool is_of_data = graph_.depends_on_data(e);
  for (size_t i = 0; i < graph_.dims.size(); ++i)
    if (graph_.dims[i].same_as(e)) return compute_data_dim(i);
  if (const auto* select = e.as<tensor::Select>()) {
    const Quantity condition = quantity(select->condition), a = quantity(select->on_true),
                   b = quantity(select->on_false);
    return emit(is_of_data, MCC_SHAPE_select, condition, a, b);
  }
  if (const auto* cast = e.as<tensor::Cast>()) return quantity(cast->value);
  if (const auto* call = e.as<tensor::Call>(); call && call->function == tensor::Intrinsic::logical_not)
    return emit(is_of_data, MCC_SHAPE_not, quantity(call->args[0]), 0);
  // A negative number is no quantity: a slot holds it, as -1 - ~value, since the least of all has no opposite.
  int64_t value = 0;
  if (tensor::as_int(e, &value)) return emit(false, MCC_SHAPE_sub, emit(false, MCC_SHAPE_sub, 0, ~value), 1);
  return compute_binary(e);
}

Quantity ShapeProgram::compute_binary(const Expr& e) {
  const auto* binary = e.as<tensor::Binary>();
  MCC_CHECK(binary, "a size that is no arithmetic on dimensions: ", tensor::to_text(e));
  const bool is_of_data = graph_.depends_on_data(e);
  const Quantity a = quantity(binary->a), b = quantity(binary->b);
  if (binary->op == BinaryOp::ne) return emit(is_of_data, MCC_SHAPE_not, emit(is_of_data, MCC_SHAPE_equal, a, b), 0);
  const mcc_shape_op op = operation_of(binary->op);
  MCC_CHECK(op != MCC_SHAPE_OP_COUNT, "a size by ", tensor::to_text(binary->op), ": ", tensor::to_text(e));
  const bool is_turned = binary->op == BinaryOp::gt || binary->op == BinaryOp::ge;
  return is_turned ? emit(is_of_data, op, b, a) : emit(is_of_data, op, a, b);
}

}  // namespace mcc::tools
