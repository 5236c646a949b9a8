#include <unistd.h>

#include <CLI/CLI.hpp>

#include "tools/commands.h"
#include "tools/measure/worker.h"

namespace mcc::tools {

void add_measure_worker(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "measure-worker",
      "Measure kernels for mcc tune: requests on stdin, results on stdout, a JSON document a line");
  command->group("");  // not for people
  command->callback([exit_code] {
    // Whatever else prints must not get between the messages.
    const int out = ::dup(STDOUT_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    *exit_code = run_worker(STDIN_FILENO, out);
  });
}

}  // namespace mcc::tools
