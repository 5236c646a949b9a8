// LLD as a library. Serialised by a mutex: LLD is not re-entrant.
#pragma once

#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::codegen {

// Object files -> shared library. Undefined symbols are errors. Same input, same bytes.
Status link_shared(const std::vector<std::string>& objects, const std::string& output,
                   const std::string& soname);

}  // namespace mcc::codegen
