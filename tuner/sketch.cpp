#include "tuner/sketch.h"

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

Planned plan_point(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                   const Point& point, Decider& otherwise) {
  if (target.kind == tensor::TargetKind::cuda && !sketch.is_for_gpus) return {};
  PointDecider decide(point, otherwise);
  Draft draft{tensor::Schedule(f), decide, target};
  Planned planned;
  planned.fits = sketch.apply(draft);
  planned.outcome = draft.refusal;
  planned.candidate = {std::string(sketch.name), std::move(decide.answers), draft.schedule.trace()};
  planned.choices = std::move(decide.choices);
  planned.func = draft.schedule.func();
  return planned;
}

}  // namespace mcc::tuner
