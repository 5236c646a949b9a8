// What the printer and the parser of the text form must agree on. Internal to tensor/.
#pragma once

#include <string_view>

#include "tensor/expr.h"

namespace mcc::tensor {

// How strongly an infix operator binds; 0 for min and max, which are written as calls. All are
// left-associative, except that comparisons do not chain.
inline int precedence(BinaryOp op) {
  switch (op) {
    case BinaryOp::min:
    case BinaryOp::max:
      return 0;
    case BinaryOp::logical_or:
      return 1;
    case BinaryOp::logical_and:
      return 2;
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
      return 3;
    case BinaryOp::bit_or:
      return 4;
    case BinaryOp::bit_xor:
      return 5;
    case BinaryOp::bit_and:
      return 6;
    case BinaryOp::shl:
    case BinaryOp::shr:
      return 7;
    case BinaryOp::add:
    case BinaryOp::sub:
      return 8;
    case BinaryOp::mul:
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      return 9;
  }
  MCC_UNREACHABLE("unknown operator");
}

inline bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name_char(char c) { return is_name_start(c) || is_digit(c) || c == '.'; }

// Literals; every other word is only a keyword by its place.
inline bool is_reserved(std::string_view name) {
  return name == "true" || name == "false" || name == "inf" || name == "nan";
}

// A name that needs no back quotes.
inline bool is_plain_name(std::string_view name) {
  if (name.empty() || !is_name_start(name[0]) || is_reserved(name)) return false;
  for (char c : name) {
    if (!is_name_char(c)) return false;
  }
  return true;
}

}  // namespace mcc::tensor
