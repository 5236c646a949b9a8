// A schedule for a GPU on a CPU.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks. Bound loops become serial, shared buffers global: the same function of its parameters,
// whatever machine the schedule was made for.
Func unbind_loops(const Func& f);

}  // namespace mcc::tensor
