// Why a schedule is not the one that the rules had in mind: part of where a schedule is from.
#pragma once

#include <string>
#include <vector>

#include "tensor/schedule/refusal.h"

namespace mcc::tuner {

// A rule that took a block on and could not go on: what it had done is undone, and something weaker stands in its place. A rule
// that does not fit a block, and leaves it alone, is none.
struct RefusedRule {
  std::string rule;     // what it is for, in the plural: "products on tensor cores"
  std::string block;
  std::string step;     // the refused one, as a trace has it; empty where the rule itself gave up
  tensor::RefusalCode code = tensor::RefusalCode::none;
  std::string reason;   // "expected ..., got ..."
  std::string instead;  // what the block has got: "a result per thread"

  bool operator==(const RefusedRule&) const = default;
};

// "the rule for RULE (block B) was refused: STEP: REASON; a result per thread instead"
std::string to_text(const RefusedRule& refused);

}  // namespace mcc::tuner
