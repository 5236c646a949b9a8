// Weights in the order in which a tile reads them.
#pragma once

#include "tuner/analysis.h"
#include "tuner/draft.h"

namespace mcc::tuner {

// Weights that lie in panels `have` elements wide, along this axis of the block, can be stored in panels of `width` as the
// tile reads them: in each step of the reduction the vectors of a tile one after the other. Asks "block.weights", where one
// width is a multiple of the other; else nothing happens.
void store_in_panels(Draft& draft, const BlockInfo& info, const Access& weights, int axis, int64_t have,
                     int64_t width);

}  // namespace mcc::tuner
