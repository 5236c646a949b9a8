#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "support/result.h"

namespace mcc::tools {

// Writes a file of these pieces. An error says why, and leaves no part of it behind.
Status write_file(const std::string& path, std::initializer_list<std::string_view> pieces);

}  // namespace mcc::tools
