// Running test cases: each in a process of its own, so that a crash costs one case.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/test_case.h"

namespace mcc::tools {

struct VerifyOptions {
  std::string target = "cpu";
  bool interpret = false;  // by the reference interpreter instead of compiled code
  int jobs = 0;            // cases at once; 0: as many as processors
  int threads = 1;         // of a run
  double seconds = 300;    // a case that takes longer fails
  std::optional<double> rtol, atol;
  frontend::ImportOptions import;  // shapes of models that are verified against the reference
};

enum class CaseStatus { pass, fail, unsupported, crash };
std::string_view to_text(CaseStatus status);

struct CaseResult {
  std::string name;
  CaseStatus status = CaseStatus::crash;
  std::string reason;
  // Inputs whose values had to be fixed at compile time, because a shape depends on them.
  std::vector<std::string> fixed_inputs;
};

// In the order of the cases. progress is told how many are done.
std::vector<CaseResult> verify_cases(const std::vector<TestCase>& cases, const VerifyOptions& options,
                                     const std::function<void(size_t done)>& progress);

// One case, in this process.
CaseResult verify_case(const TestCase& test, const VerifyOptions& options);

}  // namespace mcc::tools
