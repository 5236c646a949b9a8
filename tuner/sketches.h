// The sketches, one file each. Each schedules the whole function, and says false for a function that it is not for.
#pragma once

#include "tuner/draft.h"

namespace mcc::tuner {

// The rules of the default schedules. For every function.
bool sketch_rules(Draft& draft);

// Multi-level tiling (Ansor's and MetaSchedule's SSRSRS) of the contraction with the most work.
bool sketch_tiling(Draft& draft);

// A reduction with few results and many terms: partial results in parallel, then their sum.
bool sketch_rfactor(Draft& draft);

}  // namespace mcc::tuner
