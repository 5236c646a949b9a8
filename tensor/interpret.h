// The meaning of the tensor IR: runs a function, scheduled or not, lowered or not, one scalar operation at a time.
#pragma once

#include <cstddef>
#include <span>

#include "support/result.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

struct InterpretOptions {
  // Work (iterations of loops and stores executed) after which it gives up with an error; 0 = no limit.
  int64_t max_steps = 0;
  // Whether two iterations of a parallel loop that write the same element, or one of which reads what the other
  // writes, are an error.
  bool detect_races = true;
};

// buffers[i] is the memory of params[i], dense and row-major; dims[i] the value of f.dims[i]. Inputs are only read.
//
// Errors name the buffer, the indices, and the block with its axes' values:
//   - reading or writing outside of a buffer. A Load on the side of a scalar Select that is not taken, or in a lane
//     whose predicate is false, is not done;
//   - reading an element of an intermediate or an output that was never written. Copying one to another intermediate
//     is no error; the copy counts as never written, too;
//   - a block's axis bound to a value outside of its domain;
//   - two lanes of a vector store that write the same element, and races. All loops run in order. An intermediate
//     used only inside a parallel loop is private to its iterations, as lowering will make it: there, only reading
//     what another iteration wrote is a race;
//   - in a launch (tensor/passes/form_launches.h), whose threads it runs block by block: an element that two threads of a block
//     use between two barriers, or two blocks of the launch, one of them writing; a barrier that not all threads of the
//     block come to; an exchange that not all threads of a warp take part in. Loops that are bound, but do not make a
//     launch, count as parallel ones;
//   - variables and buffers that are not in sight, operators that their operands' type does not have.
//
// Arithmetic is that of tensor/numeric.h. A block's init runs for the instances whose reduce axes all stand at the
// minimum of their domain. Integers and +, -, *, /, fma, sqrt on floats are exact to the last bit; other mathematical
// functions are computed in double and rounded to their type. 4-bit elements are one to a byte.
Status interpret(const Func& f, std::span<std::byte* const> buffers, std::span<const int64_t> dims = {},
                 const InterpretOptions& options = {});

}  // namespace mcc::tensor
