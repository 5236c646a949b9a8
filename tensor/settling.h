// Loops whose later iterations change nothing.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// The only statement of a serial loop where one iteration that leaves its elements as they are shows that all after it will, so that the
// loop may end there: integers that follow from what they were before, and from nothing else that changes meanwhile. A walk down a tree, at
// whose leaves it stays, is one. Null for other loops.
const Store* settling_store(const For& loop);

}  // namespace mcc::tensor
