// A schedule: a function being transformed step by step, and the trace of the steps.
//
// Blocks and loops are named by their text names, which are unique in a function at all times: a compute
// definition names the loops of block "conv" "conv.n", "conv.oc", ...; steps that make loops take or derive
// names for them (split "i" -> "i.0", "i.1"). So a trace is plain text that a person can read and edit, and replaying it on
// the same function gives the same function, to the letter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"
#include "tensor/schedule/proven.h"
#include "tensor/schedule/refusal.h"
#include "tensor/schedule/steps.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

// The only record of a scheduled kernel.
using Trace = std::vector<Step>;

class Schedule {
 public:
  explicit Schedule(Func func);
  // Of a function for given sizes, and of the same one for all: steps are carried out on both, and refused where one of them refuses.
  // What asks for a constant extent and changes nothing but speed (unroll) is left out for all sizes.
  Schedule(Func func, Func for_all_sizes);

  const Func& func() const { return func_; }
  // The steps that were carried out on the function for all sizes.
  const Trace& trace_for_all_sizes() const { return for_all_sizes_[0].trace(); }
  const Trace& trace() const { return trace_; }

  // Applies the step and records it, or refuses and changes nothing.
  Outcome apply(const Step& step);
  // Stops at the first refusal, whose text then names the step.
  Outcome replay(const Trace& trace);

  // ---- Looking around (used by rules and steps) ----
  std::vector<std::string> block_names() const;            // in program order
  const Block* find_block(const std::string& name) const;  // null if there is none
  const For* find_loop(const std::string& name) const;
  std::vector<const For*> loops_of(const std::string& block) const;  // outermost first
  std::vector<std::string> loop_names_of(const std::string& block) const;
  // Blocks that read what this one writes / that write what this one reads, in program order.
  std::vector<std::string> consumers(const std::string& block) const;
  std::vector<std::string> producers(const std::string& block) const;

  // For steps: replaces the function (already checked).
  void set_func(Func func) { func_ = std::move(func); }
  // Of this function, for their checks.
  Proven& proven() { return proven_; }

 private:
  Outcome apply_alone(const Step& step);

  Func func_;
  Trace trace_;
  Proven proven_;
  std::vector<Schedule> for_all_sizes_;  // one or none
};

// One step a line: split(loop="conv.oc", factors=[0, 2, 16])
std::string to_text(const Step& step);
std::string to_text(const Trace& trace);
Result<Trace> parse_trace(std::string_view source);

}  // namespace mcc::tensor
