// Schedules by analysis: the rules that turn an unscheduled function into a good one for a target without measuring
// anything. Rules look at blocks (their axes, reads and writes), never at operator names, and take every size from the
// target's data.
#pragma once

#include "tensor/schedule/schedule.h"
#include "tensor/target.h"
#include "tuner/decider.h"
#include "tuner/refused_rule.h"

namespace mcc::tuner {

// The function with the default schedule applied; schedule.trace() says how. Always succeeds: what no rule fits runs
// vectorised and parallel over its outer loops where that is legal.
tensor::Schedule default_schedule(const tensor::Func& f, const tensor::Target& target);

// The same, and what the rules had in mind beside it.
struct DefaultSchedule {
  tensor::Schedule schedule;
  std::vector<RefusedRule> refused;  // of a plain schedule first what made it one
  bool is_plain = false;  // the refusal of a rule cost the whole kernel its schedule: nothing but what is legal always
  std::vector<std::pair<std::string, Answer>> chosen;  // what the rules left open, and what analysis took
};
// `answers`: taken for the questions that they are for, where they are possible.
DefaultSchedule explained_default_schedule(const tensor::Func& f, const tensor::Target& target,
                                           const Point& answers = {});
// The same of f for these sizes of its symbolic dimensions; what rules choose may be meant for others, too.
DefaultSchedule default_schedule_of_instance(const tensor::Func& f, const std::vector<int64_t>& sizes,
                                             const tensor::Target& target, const Point& answers = {});

// The function with what is legal always, by no rule.
DefaultSchedule plain_schedule(const tensor::Func& f, const tensor::Target& target);

}  // namespace mcc::tuner
