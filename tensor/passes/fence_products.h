// What threads write to shared memory reaches the products that warpgroups make beside them.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// In a launch with products of warpgroups (wgmma), whose operands are read by another way than threads write them: puts
// fence_async() before each barrier that has none. For passes that make such products, or barriers.
Func fence_products(const Func& f);

}  // namespace mcc::tensor
