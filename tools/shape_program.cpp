#include "tools/shape_program.h"

#include <algorithm>

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

ShapeProgram::ShapeProgram(codegen::PlanDesc& plan, const graph::Graph& graph)
    : plan_(plan), dims_(graph.dims) {
  for (size_t i = 0; i < dims_.size(); ++i)
    plan_.symbols.push_back({dims_[i].name(), graph.dim_ranges[i].min, graph.dim_ranges[i].max});
  plan_.slot_count = static_cast<uint32_t>(dims_.size());
}

Quantity ShapeProgram::quantity(const Expr& e) {
  int64_t value = 0;
  if (tensor::as_int(e, &value)) return value;
  if (tensor::thread_count().same_as(e)) return emit(MCC_SHAPE_threads, 0, 0);
  const auto [known, is_new] = known_.try_emplace(tensor::to_text(e), 0);
  if (is_new) known->second = compute(e);
  return known->second;
}

void ShapeProgram::define(const tensor::Var& name, const Expr& e) { known_[tensor::to_text(name)] = quantity(e); }

Quantity ShapeProgram::emit(mcc_shape_op op, Quantity a, Quantity b, Quantity c) {
  const uint32_t slot = plan_.slot_count++;
  plan_.graphs[0].code.push_back({op, slot, a, b, c, ""});
  return codegen::slot_quantity(slot);
}

Quantity ShapeProgram::compute(const Expr& e) {
  const auto dim =
      std::find_if(dims_.begin(), dims_.end(), [&](const tensor::Var& d) { return d.same_as(e); });
  if (dim != dims_.end()) return codegen::slot_quantity(static_cast<uint32_t>(dim - dims_.begin()));
  if (const auto* select = e.as<tensor::Select>()) {
    const Quantity condition = quantity(select->condition), a = quantity(select->on_true),
                   b = quantity(select->on_false);
    return emit(MCC_SHAPE_select, condition, a, b);
  }
  if (const auto* cast = e.as<tensor::Cast>()) return quantity(cast->value);
  const auto* binary = e.as<tensor::Binary>();
  MCC_CHECK(binary, "a size that is no arithmetic on dimensions: ", tensor::to_text(e));
  const Quantity a = quantity(binary->a), b = quantity(binary->b);
  if (binary->op == BinaryOp::ne) return emit(MCC_SHAPE_not, emit(MCC_SHAPE_equal, a, b), 0);
  const mcc_shape_op op = operation_of(binary->op);
  MCC_CHECK(op != MCC_SHAPE_OP_COUNT, "a size by ", tensor::to_text(binary->op), ": ", tensor::to_text(e));
  const bool is_turned = binary->op == BinaryOp::gt || binary->op == BinaryOp::ge;
  return is_turned ? emit(op, b, a) : emit(op, a, b);
}

}  // namespace mcc::tools
