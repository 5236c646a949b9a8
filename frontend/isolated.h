// Running code that may crash.
#pragma once

#include <functional>
#include <string>

#include "support/result.h"

namespace mcc::frontend {

struct IsolationLimits {
  double seconds = 120;
  size_t memory = size_t{2} << 30;  // beyond what the process has already
};

// Runs f in a process of its own and gives what it returned. When the process crashes, or goes beyond the limits,
// nothing: the caller goes on. f must not start threads, and changes nothing here.
std::optional<std::string> run_isolated(const std::function<std::string()>& f, const IsolationLimits& limits);

}  // namespace mcc::frontend
