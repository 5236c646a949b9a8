#include "tools/console.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "nlohmann/json.hpp"

namespace mcc::tools {

namespace {

// Lower is graver.
int gravity(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return 0;
    case ErrorKind::environment:
      return 1;
    case ErrorKind::tuning_log:
      return 2;
    case ErrorKind::unsupported:
      return 3;
    case ErrorKind::bad_input:
      return 4;
    case ErrorKind::comparison:
      return 5;
  }
  MCC_UNREACHABLE("unknown error kind");
}

}  // namespace

std::string_view kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::comparison:
      return "comparison";
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::bad_input:
      return "bad_input";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::environment:
      return "environment";
    case ErrorKind::tuning_log:
      return "tuning_log";
  }
  MCC_UNREACHABLE("unknown error kind");
}

int exit_code_of(const Diagnostics& errors) {
  auto gravest = std::min_element(errors.begin(), errors.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return gravity(a.kind) < gravity(b.kind);
  });
  return exit_code(gravest->kind);
}

int report_errors(const Diagnostics& errors, bool json) {
  for (const Diagnostic& error : errors) {
    std::string line = "error: ";
    if (!error.where.empty()) line += printable(error.where) + ": ";
    line += printable(error.message);
    if (!error.hint.empty()) line += "\n  " + printable(error.hint);
    say(line);
  }
  const int code = exit_code_of(errors);
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Diagnostic& error : errors) {
      list.push_back({{"kind", kind_name(error.kind)},
                      {"where", error.where},
                      {"message", error.message},
                      {"hint", error.hint}});
    }
    print_json({{"errors", list}, {"exit_code", code}});
  }
  return code;
}

void print_json(const nlohmann::ordered_json& document) {
  // Names come from models, and need not be UTF-8.
  std::cout << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
}

std::string printable(const std::string& s) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

std::string printable_lines(const std::string& s) {
  std::string out;
  for (size_t at = 0; at <= s.size();) {
    const size_t end = std::min(s.find('\n', at), s.size());
    if (at > 0) out += '\n';
    out += printable(s.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

void say(const std::string& message) { std::cerr << message << std::endl; }

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::update(size_t done, size_t total) { show(text(what_, " ", done, "/", total)); }

void Progress::update(const std::string& what, double fraction) {
  show(text(what_, ": ", what, " ", fixed(100 * fraction, 0), "%"));
}

void Progress::show(const std::string& line) {
  if (!terminal_) return;
  std::cerr << "\r\033[K" << printable(line) << std::flush;
  shown_ = true;
}

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return text(fixed(bytes, unit == 0 ? 0 : 1), " ", units[unit]);
}

}  // namespace mcc::tools
