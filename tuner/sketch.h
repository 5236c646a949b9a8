// Sketches: the programs that make schedules. Each asks a Decider for what it leaves open, so it spans a space of its own.
#pragma once

#include <span>
#include <string_view>

#include "tuner/draft.h"
#include "tuner/symbolic_schedule.h"
#include "tuner/trial.h"

namespace mcc::tuner {

struct Sketch {
  std::string_view name;
  // Schedules the whole function of the draft. False if the sketch is not for functions of this kind; that a point is
  // not legal is the draft's refusal.
  bool (*apply)(Draft& draft);
  bool is_for_gpus = false;
};

// In the order in which they are tried. The first is the rules of the default schedules and takes every function on.
std::span<const Sketch> all_sketches();

// What a sketch makes of a point.
struct Planned {
  bool fits = false;            // the sketch is for functions of this kind
  tensor::Outcome outcome;      // a refusal: the point is not legal
  Candidate candidate;          // with all answers that were given
  std::vector<Choice> choices;  // as they were asked, in order
  tensor::Func func;            // scheduled; of a function with symbolic dimensions at its first sample

  bool ok() const { return fits && static_cast<bool>(outcome); }
};

// Choices that the point does not answer, or answers with what is not offered, get what `otherwise` says. Of a function with symbolic
// dimensions the first choice is the instance that the sketch works on, one of instances_to_try; what cannot be replayed for all sizes
// is not legal. The candidate's trace is that for all sizes.
Planned plan_point(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                   const Point& point, Decider& otherwise);
// The same where the instances are known already (none of a function without symbolic dimensions).
Planned plan_point(const Sketch& sketch, const tensor::Func& f, const tensor::Target& target,
                   const std::vector<OpenInstance>& instances, const Point& point, Decider& otherwise);

}  // namespace mcc::tuner
