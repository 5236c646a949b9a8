// MCC_CHECK: an invariant of the compiler itself. Always compiled in. A failure is our bug, never the
// user's: it throws InternalError, which the command line reports with exit code 70 and what to send.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace mcc {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
  // place: file, line and condition; message: what the check says, which also stands at the end of what().
  InternalError(const std::string& place, std::string message)
      : std::logic_error(message.empty() ? place : place + ": " + message), message_(std::move(message)) {}
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace mcc

#define MCC_CHECK(condition, ...) \
  (static_cast<bool>(condition)   \
       ? static_cast<void>(0)     \
       : ::mcc::check_failed(__FILE__, __LINE__, #condition, ::mcc::text(__VA_ARGS__)))

#define MCC_UNREACHABLE(...) ::mcc::check_failed(__FILE__, __LINE__, "unreachable", ::mcc::text(__VA_ARGS__))

#include "support/text.h"
