// The meaning of the tensor IR: runs a function, scheduled or not, lowered or not, one scalar operation at a time.
#pragma once

#include <cstddef>
#include <span>

#include "support/result.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

struct InterpretOptions {
  // Work (stores executed) after which it gives up with an error; 0 = no limit.
  int64_t max_steps = 0;
};

// buffers[i] is the memory of params[i], dense and row-major; dims[i] the value of f.dims[i]. Reading or writing
// outside a buffer, and reading an element of an intermediate that was never written, is an error that names buffer,
// indices and block. Parallel loops run in order, and two iterations that write the same element, or read what another
// one writes, are reported as a race. Values of f16, bf16, f8 are rounded after every operation; f32 is computed in float.
Status interpret(const Func& f, std::span<std::byte* const> buffers, std::span<const int64_t> dims = {},
                 const InterpretOptions& options = {});

}  // namespace mcc::tensor
