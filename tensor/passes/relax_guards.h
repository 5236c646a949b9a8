// Guards of elements that nobody reads go.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks, after place_allocations. Where every access of an allocated buffer stands under
// "index <= u" for the same dimension and u, the elements beyond u are never read, and stores may fill them: in the last
// tile of a product 100 columns wide, all 16 lanes of the accumulators are computed, and only the store of the result is
// masked. The guard of such a store goes when its loads are in bounds without it; else, when it depends on a vectorized
// loop, it moves to the value: select(guard, value, 0), or for an update, which reads the element anyway,
// select(guard, value, old). What is filled up to its end so (panels of a packed operand) needs no guards either where it is
// read for elements that nobody reads. In a GPU's shared memory a guard moves to the value always: what is beyond is zero,
// and the sums of the threads there need no guards.
Func relax_guards(const Func& f);

}  // namespace mcc::tensor
