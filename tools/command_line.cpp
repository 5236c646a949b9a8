#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>

#include "mcc/mcc.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/loaded_model.h"

namespace mcc::tools {

namespace {

// Whether to answer in JSON when a failure comes from outside of a command.
bool wants_json(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc,
                     [](const char* argument) { return std::string_view(argument) == "--json"; });
}

// What is wrong with the command line; the parser does not say which command it does not know.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error, int argc,
                          const char* const* argv) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr))
    if (!command->get_group().empty()) commands.push_back(command->get_name());  // others are for programs
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty() || first[0] == '-') {
    return argc > 1 ? error.what() : text("no command; there are ", join(commands, ", "));
  }
  if (std::find(commands.begin(), commands.end(), first) == commands.end())
    return text("there is no command '", first, "'; there are ", join(commands, ", "));
  return error.what();
}

int report_usage(const CLI::App& app, const CLI::ParseError& error, int argc, const char* const* argv,
                 bool json) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const int code = report_errors({{ErrorKind::usage, "", usage_message(app, error, argc, argv), ""}}, json);
  say("  mcc --help and mcc COMMAND --help list what there is");
  return code;
}

int report_internal(const std::string& what, int argc, const char* const* argv) {
  std::vector<std::string> words(argv, argv + argc);
  say(text("internal error: ", what));
  say(text("  This is a bug of mcc ", mcc_runtime_version(),
           ", not of the model. Please report the line above with"));
  say(text("  the model and the command: ", join(words, " ")));
  return kInternalErrorCode;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  const bool json = wants_json(argc, argv);
  try {
    CLI::App app("mcc compiles ONNX models to shared libraries.", "mcc");
    app.set_version_flag("--version", std::string(mcc_runtime_version()));
    app.require_subcommand(1);
    int exit_code = 0;
    for (auto* add : {add_compile, add_run, add_bench, add_verify, add_inspect, add_tasks, add_tune, add_explain, add_log,
                      add_doctor, add_measure_worker, add_assemble_worker})
      add(app, &exit_code);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return report_usage(app, error, argc, argv, json);
    }
    return exit_code;
  } catch (const runtime::Error& error) {
    return report_errors({to_diagnostic(error)}, json);
  } catch (const std::bad_alloc&) {
    return report_errors({{ErrorKind::environment, "", "there is not enough memory", ""}}, json);
  } catch (const std::exception& error) {
    return report_internal(error.what(), argc, argv);
  }
}

}  // namespace mcc::tools
