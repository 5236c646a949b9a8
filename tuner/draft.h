// A schedule in the making by rules.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "tensor/schedule/schedule.h"
#include "tensor/target.h"
#include "tuner/decider.h"
#include "tuner/refused_rule.h"

namespace mcc::tuner {

// A rule at work on a block, in the words of RefusedRule.
struct RuleAtWork {
  std::string rule, block;
  std::string instead = {};  // what there is without it; empty: the rule that takes the block on then
};

struct Draft {
  tensor::Schedule schedule;
  Decider& decide;
  const tensor::Target& target;
  // The first step that a rule relied on and that was refused: this point of the space is not legal. What follows is
  // skipped, and the schedule is to be thrown away.
  tensor::Outcome refusal = {};
  RuleAtWork at_work = {};
  std::vector<RefusedRule> refused = {};  // in order, also those whose steps have been undone
  // Of an instance of a function with symbolic dimensions: its loops that have another extent in others.
  std::set<std::string> open_loops = {};
};

// While it lives, what is refused is refused to this rule.
class RuleScope {
 public:
  RuleScope(Draft& draft, RuleAtWork rule) : draft_(draft), before_(std::exchange(draft.at_work, std::move(rule))) {}
  ~RuleScope() { draft_.at_work = std::move(before_); }
  RuleScope(const RuleScope&) = delete;

 private:
  Draft& draft_;
  RuleAtWork before_;
};

// A step that may be refused.
bool try_step(Draft& draft, const tensor::Step& step);
// A step that the rule relies on.
void must_step(Draft& draft, const tensor::Step& step);
// What a rule relies on is not there: as if a step had been refused.
void give_up(Draft& draft, tensor::RefusalCode code, std::string reason);

// The steps of a rule that takes a block on: all of them, or none. False and no step taken: the rule does not fit. False otherwise:
// it was refused, and the draft is as before but for knowing that.
bool try_all(Draft& draft, RuleAtWork rule, const std::function<bool()>& steps);

// Whoever was refused the block before has got this instead.
void took_on(Draft& draft, const std::string& block, const std::string& rule);

}  // namespace mcc::tuner
