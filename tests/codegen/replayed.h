// Functions scheduled by a trace in its text form.
#pragma once

#include "support/check.h"
#include "tensor/schedule/schedule.h"
#include "tensor/text.h"

namespace mcc::codegen {

inline tensor::Schedule replayed(const tensor::Func& func, const std::string& trace) {
  Result<tensor::Trace> steps = tensor::parse_trace(trace);
  MCC_CHECK(steps.ok(), to_text(steps.errors()));
  tensor::Schedule schedule(func);
  tensor::Outcome outcome = schedule.replay(*steps);
  MCC_CHECK(outcome, outcome.detail);
  return schedule;
}

}  // namespace mcc::codegen
