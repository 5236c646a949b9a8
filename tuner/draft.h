// A schedule in the making by rules.
#pragma once

#include "tensor/schedule/schedule.h"
#include "tensor/target.h"
#include "tuner/decider.h"

namespace mcc::tuner {

struct Draft {
  tensor::Schedule schedule;
  Decider& decide;
  const tensor::Target& target;
  // The first step that a rule relied on and that was refused: this point of the space is not legal. What follows is
  // skipped, and the schedule is to be thrown away.
  tensor::Outcome refusal = {};
};

// A step that may be refused.
bool try_step(Draft& draft, const tensor::Step& step);
// A step that the rule relies on.
void must_step(Draft& draft, const tensor::Step& step);

}  // namespace mcc::tuner
