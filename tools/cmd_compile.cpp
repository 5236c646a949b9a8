#include <CLI/CLI.hpp>
#include <algorithm>

#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/driver.h"
#include "tools/options.h"
#include "tools/provenance.h"

namespace mcc::tools {

namespace {

struct Arguments {
  CompileOptions compile;
  InputArguments inputs;
  std::vector<std::string> emit;
  bool json = false;
};

using Json = nlohmann::ordered_json;

Json schedules_json(const CompileOptions& options, const CompileReport& report) {
  Json out = {{"exact", report.exact},
              {"picked", report.picked},
              {"nearest", report.nearest},
              {"default", report.by_default},
              {"plain", report.plain},
              {"file", report.from_file},
              {"refused", Json::array()}};
  for (const RefusedOfKernel& kernel : report.refused) {
    out["refused"].push_back(
        {{"task", kernel.task}, {"name", kernel.name}, {"archs", kernel.archs}, {"rules", refused_json(kernel.rules)}});
  }
  if (!options.tune_log.empty()) {
    out["log"] = options.tune_log;
    out["log_hash"] = report.log_hash;
    out["log_lines_left_out"] = report.log_lines_skipped;
  }
  out["notes"] = report.notes;
  return out;
}

bool have_bounds(const CompileReport& report) {
  return std::all_of(report.open_dimensions.begin(), report.open_dimensions.end(), [](const auto& dim) { return dim.sizes.has_bound(); });
}

std::string schedules_text(const CompileOptions& options, const CompileReport& report) {
  std::string out = "schedules: ";
  if (report.from_file > 0) out += text(report.from_file, " from ", printable(options.schedule_file), ", ");
  if (!options.tune_log.empty()) {
    if (report.picked > 0) out += text(report.picked, " picked by analysis (not measured), ");
    out += text(report.exact, " exact and ", report.nearest, " nearest from ", printable(options.tune_log),
                ", ");
  }
  return text(out, report.by_default, " default");
}

Json open_json(const CompileReport& report) {
  Json out = Json::array();
  for (const CompileReport::OpenDimension& dim : report.open_dimensions)
    out.push_back({{"name", dim.name}, {"min", dim.sizes.min}, {"max", dim.sizes.has_bound() ? Json(dim.sizes.max) : Json()}});
  return out;
}

Json device_json(const CompileReport& report) {
  Json out = {{"launches", report.launches}, {"library_calls", report.library_calls}, {"assembler", report.assembler}};
  if (!report.assembler.empty()) {
    out["without_machine_code"] = report.without_machine_code;
    out["most_registers"] = report.most_registers;
    out["spilled_bytes"] = report.spilled_bytes;
  }
  return out;
}

std::string device_text(const CompileReport& report) {
  std::string out = text("GPU: ", report.launches, " launches");
  if (report.library_calls > 0)
    out += text(", ", report.library_calls, " of them by cuBLASLt, which has to be there where the model runs");
  out += ", PTX";
  if (report.assembler.empty()) return out + " alone (no machine code: neither nvJitLink nor ptxas is used)";
  out += text(" and machine code by ", report.assembler);
  if (!report.without_machine_code.empty()) {
    out += text(", which makes none for ", join(report.without_machine_code, ", "), " (the driver compiles the PTX there; figures are those of a later GPU)");
  }
  return text(out, "; at most ", report.most_registers, " registers, ",
              report.spilled_bytes == 0 ? "no spills" : text(report.spilled_bytes, " bytes of spills"));
}

int run(Arguments& arguments) {
  CompileOptions& options = arguments.compile;
  options.leave_open = true;
  if (Status status = parse_import_options(arguments.inputs, options.import); !status.ok())
    return report_errors(status.errors(), arguments.json);
  Result<std::map<std::string, std::string>> emit = parse_emit(arguments.emit);
  if (!emit.ok()) return report_errors(emit.errors(), arguments.json);
  options.emit = *emit;
  const bool is_linked_in = options.output_path.ends_with(".o") || options.output_path.ends_with(".a");
  if (!is_linked_in && !options.output_path.ends_with(".so")) {
    return report_errors(
        {{ErrorKind::usage, "",
          text("-o ", options.output_path,
               ": the output is a shared library, OUT.so, an object file, OUT.o, or a static library, OUT.a"),
          ""}},
        arguments.json);
  }
  if (!options.header_path.empty() && !is_linked_in) {
    return report_errors(
        {{ErrorKind::usage, "", "--header is for models that are linked into a program, -o OUT.o or OUT.a",
          "a shared library is opened by mcc::runtime::Model(path)"}},
        arguments.json);
  }

  if (options.locked && options.tune_log.empty()) {
    return report_errors({{ErrorKind::usage, "", "--locked needs a tuning log, --tune-log F", ""}},
                         arguments.json);
  }

  Result<CompileReport> report = [&] {
    Progress progress("compile");
    options.progress = [&](const std::string& what, double fraction) { progress.update(what, fraction); };
    return compile_model(options);
  }();
  if (!report.ok()) return report_errors(report.errors(), arguments.json);
  for (const std::string& note : report->notes)
    say(printable_lines(note));
  if (arguments.json) {
    Json json = {{"output", options.output_path},
                 {"target", report->target},
                 {"seconds", report->seconds},
                 {"kernels", report->kernels},
                 {"nodes", report->nodes},
                 {"weight_bytes", report->weight_bytes},
                 {"arena_bytes", report->arena_bytes},
                 {"open_dimensions", open_json(*report)},
                 {"file_bytes", report->file_bytes},
                 {"schedules", schedules_json(options, *report)}};
    if (report->launches > 0) json["device"] = device_json(*report);
    print_json(json);
    return 0;
  }
  say(text(printable(options.output_path), ": ", report->kernels, " kernels, ",
           bytes_text(static_cast<double>(report->weight_bytes)), " of weights, ",
           bytes_text(static_cast<double>(report->arena_bytes)), " of working memory", have_bounds(*report) ? "" : " at usual sizes",
           ", for ", report->target,
           ", in ", fixed(report->seconds, 1), " s"));
  if (report->launches > 0) say(device_text(*report));
  if (!options.tune_log.empty() || !options.schedule_file.empty()) say(schedules_text(options, *report));
  return 0;
}

}  // namespace

void add_compile(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CompileOptions& options = arguments->compile;
  CLI::App* command = app.add_subcommand("compile", "Compile an ONNX model to a library");
  command->add_option("model", options.model_path, "The model, MODEL.onnx")->required();
  command
      ->add_option("-o,--output", options.output_path,
                   "What to write: a shared library, OUT.so; OUT.o or OUT.a to link into a program")
      ->required();
  command->add_option("--header", options.header_path,
                      "With OUT.o or OUT.a: a C++ header with a class for the model, F.h");
  command->add_option("--report", options.report_path, "A page with plots of the kernels and of the working memory, F.html");
  command->add_option("--target", options.target, "cpu (this machine), cpu:x86-64-v3, cpu:znver4, ...; cuda (the GPU here), cuda:sm_80,sm_90 (code for each)")
      ->capture_default_str();
  command
      ->add_option(
          "--threads", options.threads,
          "That the library is meant to run with, for the choice of schedules; 0: as many as processors")
      ->check(CLI::Range(0, 1024));
  add_input_options(*command, arguments->inputs, "");
  command->add_option("--tune-log", options.tune_log,
                      "Schedules found by tuning: the best of each kernel is used");
  command->add_flag("--locked", options.locked, "Refuse kernels that the tuning log does not have");
  command->add_option(
      "--schedule", options.schedule_file,
      "Your own schedules, a file of `task ID` or `kernel NAME` lines, each followed by steps");
  command->add_option("-O", options.opt_level, "Optimisation level")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command->add_option("--precision", options.precision,
                      "fp32; tf32, fp16, bf16: what products and convolutions multiply, on tensor cores (GPUs from sm_80 on), "
                      "bf16 also on CPUs with AVX512-BF16 or AMX; sums and all else stay in fp32")
      ->capture_default_str();
  command->add_flag("--strict", options.strict,
                    "No reassociation, no Winograd: as close to the model's text as it gets");
  command->add_flag("--fast-math", options.fast_math,
                    "Reassociate the model's arithmetic, divide by reciprocals, ignore signs of zero");
  command
      ->add_option("--emit", arguments->emit, "graph,tensor,llvm,asm,ptx=FOLDER: write what is between the steps")
      ->allow_extra_args(false);
  command->add_flag("!--no-library", options.libraries,
                    "Of GPUs: no schedules of the tuning log that call cuBLASLt");
  command->add_flag("!--no-cubin", options.cubins,
                    "Of GPUs: PTX alone, which is the same wherever the model is compiled; no machine code by NVIDIA's assembler");
  command->add_option("-j,--jobs", options.jobs, "Kernels compiled at once; 0: as many as processors")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
