// Conditions stand as far out as they can.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks. Terms of an If's condition that do not depend on a loop's variable (and load nothing)
// move out of the loop when the If is all that the loop holds; nested Ifs merge, and so do neighbours of equal condition.
Func hoist_conditions(const Func& f);

}  // namespace mcc::tensor
