// A thread of a GPU asks for several elements before it waits for the first.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires unrolled loops. Of stores that follow each other, each under a condition of its own or none,
//   if p { y[i] = f(x[i]) }, if q { y[j] = f(x[j]) }, ..
// what they load from global memory is loaded ahead of the first, some registers' worth at a time:
//   let a = x[i] if p in let b = x[j] if q in { if p { y[i] = f(a) }, if q { y[j] = f(b) }, .. }
// A GPU's thread stops where it needs what is not there yet; and neither LLVM nor the assembler loads ahead of a store of which they
// do not know that it goes elsewhere. Buffers that a stretch writes are read where they were.
// Where threads wait for each other (barrier), and no loop stands before the stores, what these read of buffers that the function never
// writes is loaded ahead of the first barrier, as far as that is few registers.
// Neighbours under the same condition come under one.
Func group_loads(const Func& f);

}  // namespace mcc::tensor
