// Tokens of the text form. Internal to tensor/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/element_type.h"

namespace mcc::tensor {

enum class TokenKind { name, integer, floating, string, symbol, invalid, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;                    // name and string: without quotes; numbers: without the type
  std::optional<ElementType> element;  // the type after a number
  size_t offset = 0;
};

// The last token is `end`; an `invalid` token, with the reason as its text, stands just before it if there is one.
std::vector<Token> tokenize(std::string_view source);

}  // namespace mcc::tensor
