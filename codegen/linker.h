// LLD as a library, and what LLVM has beside it. Serialised by a mutex: LLD is not re-entrant.
#pragma once

#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::codegen {

// Object files -> shared library. Undefined symbols are errors. Same input, same bytes.
Status link_shared(const std::vector<std::string>& objects, const std::string& output,
                   const std::string& soname);

// Object files -> one object file. From outside of it only `exported` is to be seen: two models link into one program.
Status link_object(const std::vector<std::string>& objects, const std::string& output, const std::string& exported);

// The same, as the only member, called `member`, of a static library.
Status link_archive(const std::vector<std::string>& objects, const std::string& output, const std::string& exported,
                    const std::string& member);

}  // namespace mcc::codegen
