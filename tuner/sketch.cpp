#include "tuner/sketch.h"

#include <numeric>

#include "tensor/sizes.h"
#include "tuner/rules.h"
#include "tuner/sketches.h"

namespace mcc::tuner {

namespace {

constexpr Sketch kSketches[] = {
    {"rules", sketch_rules, true},
    {"tiling", sketch_tiling},
    {"rfactor", sketch_rfactor},
    {"template.matmul", sketch_template_matmul},
    {"template.conv2d", sketch_template_conv2d},
};

// Answers from a point where it can, and notes everything that was asked.
class PointDecider : public Decider {
 public:
  PointDecider(const Point& point, Decider& otherwise) : point_(point), otherwise_(otherwise) {}

  Answer answer(const Choice& choice, const Answer& preferred) override {
    // Several rules may look at one block: what one has asked, the next is told.
    if (auto asked = answers.find(choice.name); asked != answers.end() && choice.allows(asked->second)) {
      return asked->second;
    }
    auto it = point_.find(choice.name);
    bool is_given = it != point_.end() && choice.allows(it->second);
    Answer given = is_given ? it->second : otherwise_.answer(choice, preferred);
    choices.push_back(choice);
    answers[choice.name] = given;
    return given;
  }

  std::vector<Choice> choices;
  Point answers;

 private:
  const Point& point_;
  Decider& otherwise_;
};

}  // namespace

bool sketch_rules(Draft& draft) {
  apply_rules(draft);
  return true;
}

std::span<const Sketch> all_sketches() { return kSketches; }

namespace {

constexpr const char* kInstanceChoice = "sizes.instance";

// The instance that is asked for, under the sketch's steps.
struct Sketched {
  bool fits = false;
  tensor::Outcome outcome;
  tensor::Trace trace;
  bool is_for_all = false;  // the trace is one of the function itself
};

Sketched sketch_instance(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                         const OpenInstance& instance, Decider& decide) {
  using Way = OpenInstance::Way;
  const bool is_by_rules = sketch.apply == sketch_rules;
  if (instance.sizes.empty() && !is_by_rules) return {};
  const bool is_side_by_side = instance.way == Way::side_by_side;
  const tensor::Func sized = instance.sizes.empty() ? f : with_sizes(f, instance.sizes);
  Draft draft{is_side_by_side ? tensor::Schedule(sized, f) : tensor::Schedule(sized), decide, target};
  if (instance.way != Way::plain) draft.open_loops = loops_without_extent(f);
  bool fits = true;
  if (instance.way == Way::plain && is_by_rules)
    apply_plain_rules(draft);
  else
    fits = sketch.apply(draft);
  return {fits, draft.refusal,
          is_side_by_side ? draft.schedule.trace_for_all_sizes() : draft.schedule.trace(),
          instance.sizes.empty()};
}

Planned plan_open_point(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                        const std::vector<OpenInstance>& instances, PointDecider& decide) {
  std::vector<int64_t> numbers(instances.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const OpenInstance& instance = instances[static_cast<size_t>(decide.choose(kInstanceChoice, numbers, 0))];
  Sketched sketched = sketch_instance(sketch, f, target, instance, decide);
  Planned planned;
  planned.fits = sketched.fits;
  planned.outcome = sketched.outcome;
  planned.choices = std::move(decide.choices);
  planned.candidate = {std::string(sketch.name), std::move(decide.answers), {}};
  if (!planned.ok()) return planned;
  tensor::Schedule schedule(f);
  planned.outcome = sketched.is_for_all ? schedule.replay(sketched.trace)
                                        : replay_for_all_sizes(schedule, f, sketched.trace, target);
  planned.candidate.trace = schedule.trace();
  if (planned.ok()) planned.func = at_first_sample(schedule.func());
  return planned;
}

}  // namespace

Planned plan_point(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                   const std::vector<OpenInstance>& instances, const Point& point, Decider& otherwise) {
  if (target.kind == tensor::TargetKind::cuda && !sketch.is_for_gpus) return {};
  PointDecider decide(point, otherwise);
  if (!f.dims.empty()) return plan_open_point(sketch, f, target, instances, decide);
  Draft draft{tensor::Schedule(f), decide, target};
  Planned planned;
  planned.fits = sketch.apply(draft);
  planned.outcome = draft.refusal;
  planned.candidate = {std::string(sketch.name), std::move(decide.answers), draft.schedule.trace()};
  planned.choices = std::move(decide.choices);
  planned.func = draft.schedule.func();
  return planned;
}

Planned plan_point(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                   const Point& point, Decider& otherwise) {
  const std::vector<OpenInstance> instances =
      f.dims.empty() ? std::vector<OpenInstance>() : instances_to_try(f, target);
  return plan_point(sketch, f, target, instances, point, otherwise);
}

}  // namespace mcc::tuner
