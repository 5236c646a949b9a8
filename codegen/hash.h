// Content hashes for provenance and keys.
#pragma once

#include <string>
#include <string_view>

#include "support/result.h"

namespace mcc::codegen {

// SHA-256 in lower-case hexadecimal.
std::string sha256(std::string_view bytes);
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace mcc::codegen
