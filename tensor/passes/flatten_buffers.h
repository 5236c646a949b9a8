// Every buffer gets one dimension.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks. Buffers (parameters too: same names, same order) become one-dimensional, indices
// the row-major position, simplified under the loops around.
Func flatten_buffers(const Func& f);

}  // namespace mcc::tensor
