// NumPy's .npy files (format versions 1 to 3).
#pragma once

#include <string>

#include "graph/graph.h"

namespace mcc::tools {

// Types: bool, i8..i64, u8..u64, f16, f32, f64, strings (U, and S, whose bytes are taken as they are). Data in Fortran order is brought into row-major order; big-endian data
// and everything else is an error that says what the file has.
Result<graph::Constant> read_npy(const std::string& path);

// bf16 and 8-bit floats, which NumPy lacks, are written as f32; 4-bit integers as 8-bit ones; strings as U.
Status write_npy(const std::string& path, const graph::Constant& value);

// The value in the element type of a model's input that NumPy lacks: bf16 and 8-bit floats from f32, 4-bit integers from
// 8-bit ones. Any other value comes back as it is.
graph::Constant from_numpy_type(const graph::Constant& value, ElementType element);

}  // namespace mcc::tools
