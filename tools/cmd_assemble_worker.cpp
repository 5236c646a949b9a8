#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/assembler_process.h"
#include "tools/commands.h"

namespace mcc::tools {

void add_assemble_worker(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "assemble-worker", "Assemble PTX for mcc compile: requests on stdin, machine code on stdout, a JSON document a line");
  command->group("");  // not for people
  auto library = std::make_shared<std::string>();
  command->add_option("library", *library, "The file of nvJitLink")->required();
  command->callback([library, exit_code] {
    // Whatever else prints must not get between the answers.
    const int out = ::dup(STDOUT_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    *exit_code = serve_assembler(*library, STDIN_FILENO, out);
  });
}

}  // namespace mcc::tools
