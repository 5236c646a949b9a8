// Products of few rows, such as a vector times a matrix.
#pragma once

#include <string>

#include "tuner/draft.h"

namespace mcc::tuner {

// Takes on a product of few rows and a large operand that is used once for each of them: in the order in which that
// operand lies in memory. False, and an unchanged draft, where that does not fit or is not worth it.
bool schedule_streamed_product(Draft& draft, const std::string& block);

}  // namespace mcc::tuner
