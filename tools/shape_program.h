// Sizes that only a run knows, as quantities of the plan: numbers, or slots that the plan's shape code fills.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/plan_writer.h"
#include "graph/graph.h"

namespace mcc::tools {

class ShapeProgram {
 public:
  // Declares the dimensions of the graph's inputs as the plan's symbols. What follows from them alone is computed when they change, by code
  // of the model's own graph, which is there; what depends on data by pending code. value_of: the plan's value of one of the graph.
  ShapeProgram(codegen::PlanDesc& plan, const graph::Graph& graph, std::function<uint32_t(graph::ValueId)> value_of);

  // Of an expression over the graph's dimensions. Equal expressions have one slot, which is valid from the pending code on to the end of
  // the scope in which it was asked for first.
  codegen::Quantity quantity(const tensor::Expr& e);
  // The number of elements of a shape, times `factor`.
  codegen::Quantity product(const graph::Shape& shape, int64_t factor);

  // A dimension whose slot nodes of the plan set; a fresh one.
  codegen::Quantity declare(const tensor::Var& dim);
  // slot = from, as pending code.
  void assign(codegen::Quantity slot, codegen::Quantity from);
  void check_equal(const tensor::Expr& a, const tensor::Expr& b, const std::string& message);
  // Of a loop's iteration `number`, behind the first: the slot holds the same number still.
  void check_unchanged(codegen::Quantity number, codegen::Quantity slot, codegen::Quantity now, const std::string& message);
  // The block has room for so many bytes, and holds its first `kept` ones still, as pending code. `what`: for the message where there is
  // no memory.
  void grow(uint32_t block, codegen::Quantity bytes, const std::string& what, codegen::Quantity kept = 0);
  codegen::Quantity sum(codegen::Quantity a, codegen::Quantity b) { return emit(true, MCC_SHAPE_add, a, b); }
  codegen::Quantity multiply(codegen::Quantity a, codegen::Quantity b) { return emit(true, MCC_SHAPE_mul, a, b); }

  // What has to run before the next node; none is pending then.
  std::vector<codegen::PlanInstruction> take_pending();
  // Code in between runs once, several times or not at all: what is computed there is not known behind it.
  void open_scope() { known_.emplace_back(); }
  void close_scope() { known_.pop_back(); }
  // From here on the name stands for the expression; no dimension has it.
  void define(const tensor::Var& name, const tensor::Expr& e);
  // For 1 where the output is in the memory of the input, with the same shape, else 0.
  void define_same_memory(const tensor::Var& name, graph::ValueId input, graph::ValueId output);

 private:
  codegen::Quantity emit(bool is_of_data, mcc_shape_op op, codegen::Quantity a, codegen::Quantity b, codegen::Quantity c = 0);
  codegen::Quantity compute(const tensor::Expr& e);
  codegen::Quantity compute_data_dim(size_t dim);
  codegen::Quantity compute_binary(const tensor::Expr& e);
  codegen::Quantity held_within(codegen::Quantity value, const graph::DimRange& range);
  const codegen::Quantity* find(const std::string& text) const;

  codegen::PlanDesc& plan_;
  const graph::Graph& graph_;
  const std::function<uint32_t(graph::ValueId)> value_of_;
  std::vector<std::map<std::string, codegen::Quantity>> known_;  // by text; of each scope that is open
  std::vector<codegen::PlanInstruction> pending_;
};

}  // namespace mcc::tools
