// Sizes that only a run knows, as quantities of the plan: numbers, or slots that the plan's shape code fills.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/plan_writer.h"
#include "graph/graph.h"

namespace mcc::tools {

class ShapeProgram {
 public:
  // Declares the graph's symbolic dimensions as the plan's symbols; code goes to the model's own graph, which is there.
  ShapeProgram(codegen::PlanDesc& plan, const graph::Graph& graph);

  // Of an expression over the graph's dimensions. Equal expressions have one slot.
  codegen::Quantity quantity(const tensor::Expr& e);
  // From here on the name stands for the expression; no dimension has it.
  void define(const tensor::Var& name, const tensor::Expr& e);

 private:
  codegen::Quantity emit(mcc_shape_op op, codegen::Quantity a, codegen::Quantity b, codegen::Quantity c = 0);
  codegen::Quantity compute(const tensor::Expr& e);

  codegen::PlanDesc& plan_;
  std::vector<tensor::Var> dims_;
  std::map<std::string, codegen::Quantity> known_;  // by text
};

}  // namespace mcc::tools
