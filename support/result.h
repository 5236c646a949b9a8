// What can go wrong because of the user's input, as a value.
//
// Three kinds of error exist (see docs/ARCHITECTURE.md): a Diagnostic (the user's: said in a sentence,
// mapped to an exit code), a refusal on the search path (tensor/schedule/refusal.h), and a broken
// invariant (MCC_CHECK).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/check.h"

namespace mcc {

// The kind decides the exit code of the command line.
enum class ErrorKind {
  comparison,   // 1: a comparison failed
  usage,        // 2: wrong command line
  bad_input,    // 3: an input file is broken
  unsupported,  // 4: valid, but not supported
  environment,  // 5: the machine lacks something
  tuning_log,   // 6: the tuning log cannot be used
};

int exit_code(ErrorKind kind);

struct Diagnostic {
  ErrorKind kind = ErrorKind::bad_input;
  std::string where;    // node name, file, line of the log; may be empty
  std::string message;  // what is wrong, expected and got
  std::string hint;     // what to do; may be empty
};

using Diagnostics = std::vector<Diagnostic>;

// "where: message\n  hint"
std::string to_text(const Diagnostic& diagnostic);
std::string to_text(const Diagnostics& diagnostics);

// A value, or why there is none. Never empty of both.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Diagnostic diagnostic) : state_(Diagnostics{std::move(diagnostic)}) {}
  Result(Diagnostics diagnostics) : state_(std::move(diagnostics)) {
    MCC_CHECK(!std::get<Diagnostics>(state_).empty(), "an error without a diagnostic");
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  T& value() {
    MCC_CHECK(ok(), "value() of a failed result: ", to_text(std::get<Diagnostics>(state_)));
    return std::get<T>(state_);
  }
  const T& value() const { return const_cast<Result*>(this)->value(); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Diagnostics& errors() const { return std::get<Diagnostics>(state_); }

 private:
  std::variant<T, Diagnostics> state_;
};

struct Done {};
using Status = Result<Done>;
inline Status done() { return Done{}; }

}  // namespace mcc
