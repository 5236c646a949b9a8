// Updates of which data decides whether they are made: a[i] = select(v < count[j], a[i] + x, a[i]).
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// The choice, whose other side is the element as it is; null for other stores. The condition loads something, but not from what is updated.
const Select* guarded_update(const Store& store);

}  // namespace mcc::tensor
