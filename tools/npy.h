// NumPy's .npy files (format versions 1 to 3).
#pragma once

#include <string>

#include "graph/graph.h"

namespace mcc::tools {

// Types: bool, i8..i64, u8..u64, f16, f32, f64. Data in Fortran order is brought into row-major order; big-endian data
// and everything else is an error that says what the file has.
Result<graph::Constant> read_npy(const std::string& path);

// bf16 and 8-bit floats, which NumPy lacks, are written as f32; 4-bit integers as 8-bit ones.
Status write_npy(const std::string& path, const graph::Constant& value);

}  // namespace mcc::tools
