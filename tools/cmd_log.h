// The parts of `mcc log`. Each gives an exit code.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tuner/log.h"

namespace CLI {
class App;
}

namespace mcc::tools {

// What a log says of each task, target and number of threads: a table, or JSON. Also what `mcc inspect LOG` prints.
int show_log(const std::string& path, bool json);
bool is_tuning_log(const std::string& path);
// Lines that were left out, and why, on stderr; nothing if there are none.
void say_complaints(const std::string& path, const tuner::LogContents& log);

// Options and callbacks of the subcommands that have a file of their own: `verify` and `import`, `report`.
void add_log_of_model(CLI::App& log, int* exit_code);
void add_log_report(CLI::App& log, int* exit_code);

}  // namespace mcc::tools
