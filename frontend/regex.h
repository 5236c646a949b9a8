// Regular expressions as automata.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::frontend {

// Deterministic, over bytes: from state s a byte b leads to next[s * class_count() + classes[b]]. A text is accepted if its last state is.
struct Automaton {
  std::string classes;  // 256, of each byte
  std::string accepts;  // of each state, 0 or 1
  std::vector<int64_t> next;
  int64_t start = 0;

  int64_t class_count() const { return static_cast<int64_t>(next.size() / accepts.size()); }
};

// Of the texts that the pattern (RE2's syntax, UTF-8) describes as a whole, with as few states as possible. Unsupported: what takes
// thousands of states, and parts of the syntax that the message names.
Result<Automaton> full_match_automaton(const std::string& pattern);

}  // namespace mcc::frontend
