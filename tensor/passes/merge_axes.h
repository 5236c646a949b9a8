// The fewest loops and dimensions that say the same.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires an unscheduled function as FuncBuilder makes it (each block under its own loops, one for each axis); others
// come back as they are. Guarantees the same function of the same memory, in which
//   - dimensions and axes of extent 1 are gone, and
//   - neighbouring dimensions that every block walks together, in order and in full, are one dimension, as are the
//     axes that walk them.
// Parameters change their shape, not their bytes. A pointwise function ends up with a single loop, a 1x1 convolution
// over [C/c, H*W, c] with a single pixel axis.
Func merge_axes(const Func& f);

}  // namespace mcc::tensor
