#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/compare.h"
#include "tools/console.h"
#include "tools/loaded_model.h"
#include "tools/npy.h"
#include "tools/options.h"

namespace mcc::tools {

namespace {

using graph::Constant;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string library, output_folder;
  std::vector<std::string> inputs, expected, sizes;
  std::optional<uint64_t> seed;  // of inputs
  std::optional<uint64_t> draws_seed;
  Tolerance tolerance;
  int threads = 0;
  bool json = false;
};

struct Summary {
  double min = 0, max = 0, mean = 0;
  int64_t not_finite = 0;
};

Summary summarize(const Constant& value) {
  Summary summary;
  int64_t finite = 0;
  for (int64_t i = 0; i < value.count(); ++i) {
    const double x = value.number_at(i);
    if (!std::isfinite(x)) {
      ++summary.not_finite;
      continue;
    }
    summary.min = finite == 0 ? x : std::min(summary.min, x);
    summary.max = finite == 0 ? x : std::max(summary.max, x);
    summary.mean += (x - summary.mean) / static_cast<double>(++finite);
  }
  return summary;
}

std::vector<std::string> first_strings(const Constant& value) {
  constexpr int64_t kMost = 4;
  std::vector<std::string> strings;
  for (int64_t i = 0; i < std::min(kMost, value.count()); ++i)
    strings.push_back(value.string_at(i));
  return strings;
}

Status write_outputs(const std::string& folder, const std::vector<Constant>& outputs) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Diagnostic{ErrorKind::environment, folder, text("cannot be made: ", error.message()), ""};
  for (size_t i = 0; i < outputs.size(); ++i) {
    Status status =
        write_npy((std::filesystem::path(folder) / text("output_", i, ".npy")).string(), outputs[i]);
    if (!status.ok()) return status;
  }
  return done();
}

Json describe_outputs(const std::vector<TensorSpec>& specs, const std::vector<Constant>& outputs) {
  Json list = Json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].element() == ElementType::string) {
      list.push_back({{"name", specs[i].name},
                      {"type", to_text(specs[i].element)},
                      {"shape", outputs[i].shape()},
                      {"first", first_strings(outputs[i])}});
      continue;
    }
    const Summary s = summarize(outputs[i]);
    list.push_back({{"name", specs[i].name},
                    {"type", to_text(specs[i].element)},
                    {"shape", outputs[i].shape()},
                    {"min", s.min},
                    {"max", s.max},
                    {"mean", s.mean},
                    {"not_finite", s.not_finite}});
  }
  return list;
}

void print_outputs(const std::vector<TensorSpec>& specs, const std::vector<Constant>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string line =
        text(printable(specs[i].name), " ", to_text(specs[i].element), list_text(outputs[i].shape()));
    if (outputs[i].element() == ElementType::string) {
      const std::vector<std::string> strings = first_strings(outputs[i]);
      for (const std::string& string : strings)
        line += text("  '", printable(string), "'");
      std::puts(text(line, static_cast<int64_t>(strings.size()) < outputs[i].count() ? "  ..." : "").c_str());
      continue;
    }
    const Summary s = summarize(outputs[i]);
    if (outputs[i].count() > s.not_finite)
      line += text("  min ", fixed(s.min, 6), "  max ", fixed(s.max, 6), "  mean ", fixed(s.mean, 6));
    if (s.not_finite) line += text("  NaN or infinite: ", s.not_finite);
    std::puts(line.c_str());
  }
}

// Compares with every --expect. False: at least one differs.
Result<bool> check_expected(const Arguments& arguments, const std::vector<TensorSpec>& specs,
                            const std::vector<Constant>& outputs, Json& report) {
  bool all_same = true;
  for (const std::string& spec : arguments.expected) {
    Result<NamedFile> file = parse_named_file(spec, names_of(specs), "--expect");
    if (!file.ok()) return file.errors();
    Result<Constant> want = read_npy(file->path);
    if (!want.ok()) return want.errors();
    const Constant expected = from_numpy_type(*want, specs[file->index].element);
    const Comparison result = compare(outputs[file->index], expected, arguments.tolerance);
    const std::string& name = specs[file->index].name;
    report.push_back({{"name", name},
                      {"same", result.same},
                      {"max_abs_error", result.max_error},
                      {"mismatches", result.mismatches},
                      {"first", result.first},
                      {"reason", result.reason}});
    all_same &= result.same;
    if (!result.same) {
      say(text("output '", printable(name), "' is not as expected: ", result.reason));
    } else if (!arguments.json) {
      std::puts(text("output '", printable(name), "' is as expected (max abs error ", result.max_error, ")")
                    .c_str());
    }
  }
  return all_same;
}

int run(const Arguments& arguments) {
  Result<runtime::Model> model = open_model(arguments.library);
  if (!model.ok()) return report_errors(model.errors(), arguments.json);
  Result<std::vector<Constant>> inputs = make_inputs(*model, {arguments.inputs, arguments.seed, arguments.sizes});
  if (!inputs.ok()) return report_errors(inputs.errors(), arguments.json);

  runtime::SessionOptions options;
  options.threads = arguments.threads;
  options.seed = arguments.draws_seed;
  runtime::Session session(*model, options);
  set_inputs(session, *inputs);
  const auto start = std::chrono::steady_clock::now();
  session.run();
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  const std::vector<TensorSpec> specs = output_specs(*model);
  const std::vector<Constant> outputs = copy_outputs(*model, session);

  if (!arguments.output_folder.empty()) {
    Status status = write_outputs(arguments.output_folder, outputs);
    if (!status.ok()) return report_errors(status.errors(), arguments.json);
  }
  if (!arguments.json) print_outputs(specs, outputs);
  Json compared = Json::array();
  Result<bool> same = check_expected(arguments, specs, outputs, compared);
  if (!same.ok()) return report_errors(same.errors(), arguments.json);
  if (arguments.json) {
    print_json({{"outputs", describe_outputs(specs, outputs)},
                {"expect", compared},
                {"run_ms", elapsed.count()},
                {"threads", session.threads()}});
  }
  return *same ? 0 : exit_code(ErrorKind::comparison);
}

}  // namespace

void add_run(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "Run a compiled model once");
  command->add_option("library", arguments->library, "The compiled model, OUT.so")->required();
  command->add_option("--input", arguments->inputs, "NAME=FILE.npy; once for each input")
      ->allow_extra_args(false);
  command->add_option("--random", arguments->seed, "Seed for random values of the inputs that are not given");
  command->add_option(
      "--seed", arguments->draws_seed,
      "Seed for random numbers that the model draws; without it they are others in each call");
  command->add_option("--dim", arguments->sizes, "NAME=SIZE of an open dimension of random inputs")->allow_extra_args(false);
  command->add_option("--output-dir", arguments->output_folder,
                      "Write output_0.npy, output_1.npy, ... there");
  command
      ->add_option("--expect", arguments->expected,
                   "NAME=FILE.npy: compare an output; exit code 1 if it differs")
      ->allow_extra_args(false);
  command->add_option("--rtol", arguments->tolerance.rtol, "Relative tolerance of --expect")
      ->capture_default_str();
  command->add_option("--atol", arguments->tolerance.atol, "Absolute tolerance of --expect")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: as many as processors")
      ->check(CLI::Range(0, MCC_MAX_THREADS));
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
