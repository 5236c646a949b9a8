// Blocks become plain statements.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Replaces axes by their bindings and predicates by If. A block's init goes before its reduce loops when these, and all
// loops inside of them, hold nothing but the block; else it stays in place under "every reduce axis is at its first value".
// Loops that a scan axis is bound to get the annotation scan = 1. Leaves no Block.
Func lower_blocks(const Func& f);

}  // namespace mcc::tensor
