// A function that does one of several things, as its dimensions have it.
#pragma once

#include <vector>

#include "tensor/stmt.h"

namespace mcc::tensor {

struct Case {
  Expr condition;  // over the dimensions
  Func func;
};

// All are lowered, from functions of the same parameters. Where the condition of a case holds, a run does what that case does, else what
// `otherwise` does. Of GPUs launches of the others have no blocks. What launches hand on to each other takes memory where they run only. At most one condition holds.
Func join_cases(const Func& otherwise, const std::vector<Case>& cases);

// How many launches a lowered function has, each of those in loops once.
size_t count_launches(const Func& lowered);

}  // namespace mcc::tensor
