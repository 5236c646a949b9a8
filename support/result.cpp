#include "support/result.h"

namespace mcc {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::comparison:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::bad_input:
      return 3;
    case ErrorKind::unsupported:
      return 4;
    case ErrorKind::environment:
      return 5;
    case ErrorKind::tuning_log:
      return 6;
  }
  MCC_UNREACHABLE("unknown error kind");
}

std::string to_text(const Diagnostic& diagnostic) {
  std::string out;
  if (!diagnostic.where.empty()) out += diagnostic.where + ": ";
  out += diagnostic.message;
  if (!diagnostic.hint.empty()) out += "\n  " + diagnostic.hint;
  return out;
}

std::string to_text(const Diagnostics& diagnostics) {
  std::string out;
  for (const Diagnostic& d : diagnostics) {
    if (!out.empty()) out += '\n';
    out += to_text(d);
  }
  return out;
}

}  // namespace mcc
