// A regular expression as a tree.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/result.h"

namespace mcc::frontend {

// Code points, as ranges in order that do not touch each other.
using CharacterSet = std::vector<std::pair<uint32_t, uint32_t>>;
inline constexpr uint32_t kLastCharacter = 0x10ffff;

struct Regex {
  enum class Kind {
    sequence,    // parts; nothing: the empty text
    choice,      // parts
    repetition,  // parts[0], from least to most times; most is -1: any number of times
    characters,  // one of a set
    byte,        // any one
    text_begin,
    text_end,
    line_begin,
    line_end,
    word_border,
    no_word_border,
  };
  Kind kind = Kind::sequence;
  std::vector<std::shared_ptr<const Regex>> parts = {};
  CharacterSet characters = {};
  int least = 0, most = 0;
};

using RegexPtr = std::shared_ptr<const Regex>;

// RE2's syntax. Errors: what is no regular expression, and what is unsupported of it (names of Unicode's classes, letters beyond ASCII
// without regard to case).
Result<RegexPtr> parse_regex(const std::string& pattern);

}  // namespace mcc::frontend
