// Operators on strings (graph/ops/mcc_text.h) as nodes of the plan, with their attributes as the runtime reads them.
#pragma once

#include <string>
#include <vector>

#include "codegen/plan_writer.h"
#include "graph/op.h"

namespace mcc::tools {

// The node that makes the model's strings known, and forgets those of the run before.
codegen::PlanNode text_table(const std::vector<std::string>& texts);

// Of an operator for which graph::is_text_op holds; without arguments.
codegen::PlanNode text_node(const graph::Node& node);

}  // namespace mcc::tools
