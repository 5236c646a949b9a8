// Schedules by analysis: the rules that turn an unscheduled function into a good one for a target without measuring
// anything. Rules look at blocks (their axes, reads and writes), never at operator names, and take every size from the
// target's data.
#pragma once

#include "tensor/schedule/schedule.h"
#include "tensor/target.h"

namespace mcc::tuner {

// The function with the default schedule applied; schedule.trace() says how. Always succeeds: what no rule fits runs
// vectorised and parallel over its outer loops where that is legal.
tensor::Schedule default_schedule(const tensor::Func& f, const tensor::Target& target);

}  // namespace mcc::tuner
