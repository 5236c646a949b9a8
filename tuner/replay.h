// Traces from outside, of a log or a person: replayed only as far as they are legal, and refused when what they make is
// out of proportion.
#pragma once

#include "support/result.h"
#include "tensor/schedule/schedule.h"

namespace mcc::tuner {

// Checks a scheduled function against the one it was made from: the IR's rules, and bounds on the copies of code that
// unrolling makes, on iterations that padding adds, and on memory. Steps keep the meaning of a function, not its size.
// A sentence with what is wrong; empty if nothing is.
std::string excess_of(const tensor::Func& unscheduled, const tensor::Func& scheduled);

// The function with the trace applied, or why not (kind tuning_log).
Result<tensor::Schedule> replay(const tensor::Func& f, const tensor::Trace& trace);

}  // namespace mcc::tuner
