#include "tuner/draft.h"

#include "support/text.h"

namespace mcc::tuner {

using namespace tensor;

std::string to_text(const RefusedRule& r) {
  return text("the rule for ", r.rule, " (block ", r.block, ") was refused: ", r.step, r.step.empty() ? "" : ": ", r.reason, "; ",
              r.instead, " instead");
}

bool try_step(Draft& draft, const Step& step) {
  return static_cast<bool>(draft.refusal) && static_cast<bool>(draft.schedule.apply(step));
}

void must_step(Draft& draft, const Step& step) {
  if (!draft.refusal) return;
  draft.refusal = draft.schedule.apply(step);
  if (draft.refusal) return;
  const RuleAtWork& rule = draft.at_work;
  const std::string what = to_text(step);
  draft.refused.push_back({rule.rule, rule.block, what, draft.refusal.code, draft.refusal.detail, rule.instead});
  draft.refusal.detail = text(what, ": ", draft.refusal.detail);
}

void give_up(Draft& draft, RefusalCode code, std::string reason) {
  if (!draft.refusal) return;
  const RuleAtWork& rule = draft.at_work;
  draft.refused.push_back({rule.rule, rule.block, "", code, reason, rule.instead});
  draft.refusal = refuse(code, std::move(reason));
}

bool try_all(Draft& draft, RuleAtWork rule, const std::function<bool()>& steps) {
  const Schedule before = draft.schedule;
  const Outcome refusal = draft.refusal;
  const RuleScope scope(draft, std::move(rule));
  if (steps()) {
    took_on(draft, draft.at_work.block, draft.at_work.rule);
    return true;
  }
  const Trace& trace = draft.schedule.trace();
  if (trace.size() > before.trace().size())
    give_up(draft, RefusalCode::no_match, text("what there is after ", to_text(trace.back()), " is nothing that it knows"));
  draft.schedule = before;
  draft.refusal = refusal;
  return false;
}

void took_on(Draft& draft, const std::string& block, const std::string& rule) {
  for (RefusedRule& refused : draft.refused) {
    if (refused.block == block && refused.instead.empty()) refused.instead = rule;
  }
}

}  // namespace mcc::tuner
