// This program once more, as a process of its own.
#pragma once

#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::tools {

struct ProcessResult {
  int exit_code = -1;      // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;  // and was killed
  std::string output;      // of stdout
};

// Runs mcc with these arguments; its stderr goes nowhere. An error: it could not be started.
Result<ProcessResult> run_self(const std::vector<std::string>& arguments, double timeout_seconds);

}  // namespace mcc::tools
