// Default schedules of functions with symbolic dimensions.
#pragma once

#include "tuner/default_schedule.h"

namespace mcc::tuner {

// What analysis chooses for one instance of the function, replayed on the function itself: steps say how loops are cut, with the number
// of outer iterations left open, so they are as good for every other size. The instance's sizes are prime numbers, that nothing is
// cut evenly which only happens to be divisible there.
DefaultSchedule symbolic_default_schedule(const tensor::Func& f, const tensor::Target& target);

}  // namespace mcc::tuner
