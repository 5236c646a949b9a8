// Whether this CPU can run a model's kernels.
#pragma once

#include "runtime/plan.h"

namespace mcc::runtime {

// Names all features that are missing in one error. Asks the kernel for AMX state when the model
// needs it.
mcc_status check_cpu_features(const Plan& plan, mcc_error* error);

}  // namespace mcc::runtime
