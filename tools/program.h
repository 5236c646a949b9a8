// This program, to be run once more.
#pragma once

#include <string>

namespace mcc::tools {

// What to execute: $MCC_PROGRAM, which a bundle's launcher sets, else this process's file.
std::string own_program();

}  // namespace mcc::tools
