// Products whose sums are so long that tiles of few rows pass over all weights again and again.
#pragma once

#include <string>

#include "tuner/draft.h"

namespace mcc::tuner {

// Divides the sum of a product with weights in panels into parts where that is expected to be faster. The rows that a part needs stay
// in the second-level cache while all panels pass over them; without parts only as many rows do as are that long, and weights are
// read once for each such chunk of rows (the outer loop over K of Goto and van de Geijn, TOMS 2008). The block to be put into
// tiles: block.part, whose results `block` adds up, or `block` itself. Asks "block.parts".
std::string divide_long_sum(Draft& draft, const std::string& block);

}  // namespace mcc::tuner
