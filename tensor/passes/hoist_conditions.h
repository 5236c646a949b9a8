// Conditions stand as far out as they can.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks. Terms of an If's condition that do not depend on a loop's variable (and load nothing)
// move out of the loop (unless it is bound) when the If is all that the loop holds; nested Ifs merge where the inner condition loads
// nothing (what it loads may be out of reach where the outer one does not hold), and so do neighbours of equal condition.
// Where a loop holds a single store that is no update, comparisons in the Selects of its value move out as well: a copy with padding becomes
// rows of copies and rows of zeros.
Func hoist_conditions(const Func& f);

}  // namespace mcc::tensor
