#include "support/check.h"

#include <charconv>

namespace mcc {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(text(file, ":", line, ": ", condition), message);
}

void append_text(std::string& out, double v) {
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  MCC_CHECK(error == std::errc());
  out.append(buffer, end);
}

}  // namespace mcc
