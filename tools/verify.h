// Running test cases: each in a process of its own, so that a crash costs one case.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/test_case.h"

namespace mcc::tools {

struct VerifyOptions {
  std::string target = "cpu";
  std::string precision = "fp32";
  bool interpret = false;  // by the reference interpreter instead of compiled code
  bool open = false;       // of test cases: dimensions that the model leaves open stay so
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
  bool is_of_machine = false;  // of those that fail: this machine lacks what the model needs, so that nothing was compared
  std::string tolerance;  // of a comparison with the reference: what was allowed, and why
  // Inputs whose values had to be fixed at compile time, because a shape depends on them.
  std::vector<std::string> fixed_inputs;
};

// Told how many are done.
using CaseProgress = std::function<void(size_t done, size_t total)>;

// Results in the order of the cases.
std::vector<CaseResult> verify_cases(const std::vector<TestCase>& cases, const VerifyOptions& options,
                                     const CaseProgress& progress);

// One case, in this process.
CaseResult verify_case(const TestCase& test, const VerifyOptions& options);

// Every distinct kernel of a model, as scheduled and compiled, against the interpreter on its unscheduled function. The
// inputs are random.
Result<std::vector<CaseResult>> verify_kernels(const std::string& model, const VerifyOptions& options,
                                               const CaseProgress& progress);

// Runs body(i) for each name in a process of its own, options.jobs at a time. What a body throws, and how its process
// ends, becomes a result too.
std::vector<CaseResult> run_isolated(const std::vector<std::string>& names,
                                     const std::function<CaseResult(size_t)>& body,
                                     const VerifyOptions& options, const CaseProgress& progress);

}  // namespace mcc::tools
