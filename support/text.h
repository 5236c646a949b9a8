// Building short texts: text("expected ", 3, ", got ", n) and join(list, ", ").
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace mcc {

inline void append_text(std::string& out, std::string_view s) { out += s; }
inline void append_text(std::string& out, const char* s) { out += s; }
inline void append_text(std::string& out, const std::string& s) { out += s; }
inline void append_text(std::string& out, char c) { out += c; }
inline void append_text(std::string& out, bool b) { out += b ? "true" : "false"; }

template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
void append_text(std::string& out, T v) {
  out += std::to_string(v);
}

// Shortest decimal text that reads back as the same double.
void append_text(std::string& out, double v);
inline void append_text(std::string& out, float v) { append_text(out, static_cast<double>(v)); }

// The concatenation of the texts of all arguments.
template <class... Args>
std::string text(const Args&... args) {
  std::string out;
  (append_text(out, args), ...);
  return out;
}

template <class Range>
std::string join(const Range& range, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : range) {
    if (!first) out += separator;
    first = false;
    append_text(out, item);
  }
  return out;
}

// "[1, 3, 224]"
template <class Range>
std::string list_text(const Range& range) {
  return text("[", join(range, ", "), "]");
}

}  // namespace mcc
