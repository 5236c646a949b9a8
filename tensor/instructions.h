// Hardware instructions as data: what each computes, in tensor IR, and what the machine must have. tensorize matches a loop
// nest against the semantics; code generation knows the name.
#pragma once

#include <string>
#include <vector>

#include "tensor/stmt.h"

namespace mcc::tensor {

struct Instruction {
  std::string name;
  std::string feature;  // LLVM's name of what the target must have
  // One block under constant loops, outermost first: an update of the last parameter from the others. Addresses count, not
  // shapes: an operand of the matched nest has the same strides along the loops, and any base.
  Func semantics;
};

// In a fixed order.
const std::vector<Instruction>& all_instructions();
const Instruction* find_instruction(const std::string& name);

}  // namespace mcc::tensor
