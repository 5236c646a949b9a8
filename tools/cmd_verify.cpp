#include <CLI/CLI.hpp>
#include <algorithm>

#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/options.h"
#include "tools/verify.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::vector<std::string> paths;
  InputArguments inputs;
  VerifyOptions options;
  bool kernels = false, json = false;
};

size_t count(const std::vector<CaseResult>& results, CaseStatus status) {
  return static_cast<size_t>(
      std::count_if(results.begin(), results.end(), [&](const CaseResult& r) { return r.status == status; }));
}

size_t count_fixed(const std::vector<CaseResult>& results) {
  return static_cast<size_t>(std::count_if(results.begin(), results.end(), [](const CaseResult& r) {
    return r.status == CaseStatus::pass && !r.fixed_inputs.empty();
  }));
}

void print_report(const std::vector<CaseResult>& results) {
  for (const CaseResult& result : results) {
    const std::string_view status = to_text(result.status);
    std::string line = text(status, " ", printable(result.name));
    if (!result.fixed_inputs.empty())
      line += text(" (fixed at compile time: ", printable(join(result.fixed_inputs, ", ")), ")");
    if (!result.tolerance.empty()) line += text(" (allowed: ", result.tolerance, ")");
    if (!result.reason.empty()) line += text(": ", printable(result.reason));
    std::puts(line.c_str());
  }
  std::puts(text(count(results, CaseStatus::pass), " passed (", count_fixed(results),
                 " of them with inputs fixed), ", count(results, CaseStatus::fail), " failed, ",
                 count(results, CaseStatus::unsupported), " unsupported, ", count(results, CaseStatus::crash),
                 " crashed")
                .c_str());
}

void print_json_report(const std::vector<CaseResult>& results) {
  Json cases = Json::array();
  for (const CaseResult& result : results) {
    Json one = {{"name", result.name}, {"status", to_text(result.status)}, {"reason", result.reason}};
    if (!result.tolerance.empty()) one["tolerance"] = result.tolerance;
    if (!result.fixed_inputs.empty()) one["fixed_inputs"] = result.fixed_inputs;
    cases.push_back(std::move(one));
  }
  print_json({{"cases", cases},
              {"passed", count(results, CaseStatus::pass)},
              {"failed", count(results, CaseStatus::fail)},
              {"unsupported", count(results, CaseStatus::unsupported)},
              {"crashed", count(results, CaseStatus::crash)},
              {"passed_with_fixed_inputs", count_fixed(results)}});
}

Result<std::vector<CaseResult>> verify_paths(const Arguments& arguments, const CaseProgress& progress) {
  std::vector<TestCase> cases;
  Diagnostics errors;
  for (const std::string& path : arguments.paths) {
    Result<std::vector<TestCase>> found = find_cases(path);
    if (found.ok())
      cases.insert(cases.end(), found->begin(), found->end());
    else
      errors.push_back(found.errors().front());
  }
  if (!errors.empty()) return errors;
  return verify_cases(cases, arguments.options, progress);
}

Result<std::vector<CaseResult>> verify_models_kernels(const Arguments& arguments,
                                                      const CaseProgress& progress) {
  std::vector<CaseResult> results;
  for (const std::string& path : arguments.paths) {
    Result<std::vector<CaseResult>> kernels = verify_kernels(path, arguments.options, progress);
    if (!kernels.ok()) return kernels.errors();
    results.insert(results.end(), kernels->begin(), kernels->end());
  }
  return results;
}

int run(Arguments& arguments) {
  if (Status status = parse_import_options(arguments.inputs, arguments.options.import); !status.ok())
    return report_errors(status.errors(), arguments.json);
  Result<std::vector<CaseResult>> verified = [&] {
    Progress progress("verify");
    const auto update = [&](size_t done, size_t total) { progress.update(done, total); };
    return arguments.kernels ? verify_models_kernels(arguments, update) : verify_paths(arguments, update);
  }();
  if (!verified.ok()) return report_errors(verified.errors(), arguments.json);
  const std::vector<CaseResult>& results = *verified;
  if (arguments.json)
    print_json_report(results);
  else
    print_report(results);
  const auto of_machine = static_cast<size_t>(
      std::count_if(results.begin(), results.end(), [](const CaseResult& r) { return r.is_of_machine; }));
  if (count(results, CaseStatus::fail) + count(results, CaseStatus::crash) > of_machine) return exit_code(ErrorKind::comparison);
  if (of_machine > 0) return exit_code(ErrorKind::environment);
  return count(results, CaseStatus::unsupported) > 0 ? exit_code(ErrorKind::unsupported) : 0;
}

}  // namespace

void add_verify(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  VerifyOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("verify", "Compile and run ONNX test cases or a model, and compare the outputs");
  command
      ->add_option(
          "cases", arguments->paths,
          "Folders with model.onnx and test_data_set_K/{input,output}_I.pb; or a model, to be compared "
          "with the reference interpreter on random inputs")
      ->required();
  add_input_options(*command, arguments->inputs, "As for compile; for a model without test data");
  command->add_option("--target", options.target, "As for compile; must run on this machine")
      ->capture_default_str();
  command->add_option("--precision", options.precision, "As for compile; the tolerance follows it")->capture_default_str();
  command->add_flag("--open", options.open, "Of test cases: dimensions that the model leaves open stay so, one library is for all sizes");
  command->add_flag("--interpret", options.interpret,
                    "Run the reference interpreter instead of compiled code");
  command->add_flag("--kernels", arguments->kernels,
                    "Compare every kernel of the models with the interpreter on its own");
  command->add_option("--rtol", options.rtol, "Relative tolerance (else data.json's, or 1e-3)");
  command->add_option("--atol", options.atol, "Absolute tolerance (else data.json's, or 1e-7; of a model, what the length of its sums makes of it)");
  command->add_option("--threads", options.threads, "Threads of a run")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--seconds", options.seconds, "Time for one case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-j,--jobs", options.jobs, "Cases at once; 0: as many as processors")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
