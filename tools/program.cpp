#include "tools/program.h"

#include <cstdlib>

namespace mcc::tools {

std::string own_program() {
  const char* given = std::getenv("MCC_PROGRAM");
  return given != nullptr && *given != 0 ? given : "/proc/self/exe";
}

}  // namespace mcc::tools
