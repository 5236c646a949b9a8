// The mcc command line.
#pragma once

namespace mcc::tools {

// Parses the arguments, runs the command, and gives the exit code (docs list them). Throws nothing.
int run_command_line(int argc, const char* const* argv);

}  // namespace mcc::tools
