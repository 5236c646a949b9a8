// What dlopen does not check and would crash on.
#pragma once

#include "runtime/base.h"

namespace mcc::runtime {

// The file is a shared library for this kind of machine, and all that its segments map is in it.
mcc_status check_library_file(const char* path, mcc_error* error);

}  // namespace mcc::runtime
