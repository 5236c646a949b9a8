// Intermediates go where they are used, in the size that is used there.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks. Turns each of Func::allocs into an Allocate in the innermost loop body (or the
// function's) that holds all its uses, and shrinks it to the box used there: a number of elements that is constant, or on CPUs one
// that follows from the function's dimensions, from a base that depends on the loops around; a dimension for which no such box can be
// shown stays whole. A buffer that carries values
// from one iteration to the next stays outside of that loop: one that is read before it is written there, and one indexed
// by a loop marked "scan", other than at its variable everywhere. No place is inside a vectorized loop. Buffers without uses go.
//
// Scope afterwards: private (local, registers) inside a parallel loop; global where a parallel loop lies between the place
// and a use; else small buffers are local. Registers need a constant size, and are local without.
//
// In a launch (form_launches.h) shared buffers stand between the loops over blocks and those over threads, in the size that
// one iteration of the loops around all uses needs for all threads, and with rows as storage_align says; global ones outside of the launch, with every block's part.
// What a thread of a launch keeps to itself has a constant size: where it would have none, the whole buffer is global.
Func place_allocations(const Func& f);

}  // namespace mcc::tensor
