// What commands print: results on stdout (text for people, or one JSON document), everything else on stderr.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "support/result.h"

namespace mcc::tools {

// Exit code of the command line when mcc itself is wrong.
inline constexpr int kInternalErrorCode = 70;

// The exit code for a list of errors: that of the gravest kind (unsupported before bad input: a model that also has
// unsupported nodes will not do even when it is mended).
int exit_code_of(const Diagnostics& errors);
std::string_view kind_name(ErrorKind kind);

// Prints the errors to stderr, and with json also as {"errors": [...], "exit_code": N} on stdout. Gives the exit code.
int report_errors(const Diagnostics& errors, bool json);

void print_json(const nlohmann::ordered_json& document);
// Text from a file, fit for a terminal: control characters are escaped.
std::string printable(const std::string& s);
// The same, line by line.
std::string printable_lines(const std::string& s);
// A line on stderr.
void say(const std::string& message);

// Progress on stderr: one line that is rewritten on a terminal, nothing elsewhere.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void update(size_t done, size_t total);
  // With what is being done, and how much of it (0..1).
  void update(const std::string& what, double fraction);

 private:
  void show(const std::string& line);

  std::string what_;
  bool terminal_ = false;
  bool shown_ = false;
};

// 1234567 -> "1.2 MB"; 0.00123 s -> "1.23 ms".
std::string bytes_text(double bytes);
std::string fixed(double value, int digits);

}  // namespace mcc::tools
