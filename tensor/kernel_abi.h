// What kernels assume of whoever calls them.
#pragma once

#include <cstdint>

namespace mcc::tensor {

// Bytes: the address of every parameter and workspace is a multiple.
inline constexpr int64_t kBufferAlignment = 64;

}  // namespace mcc::tensor
