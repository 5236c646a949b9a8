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

// Options and callbacks of the subcommands that have a file of their own.
void add_log_import(CLI::App& log, int* exit_code);
void add_log_report(CLI::App& log, int* exit_code);

}  // namespace mcc::tools
