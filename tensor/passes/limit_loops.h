// Loops that a guard by data ends early run only as long as it holds.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks, after partition_loops. A serial loop all of whose body is under "v < n", where n is loaded from what the
// loop does not write, and from one place in all its iterations, has n iterations at most:
//
//   for v in 200 { if v < count[i] { ... } }    becomes    for v in max(min(count[i], 200), 0) { ... }
//
// So does one whose updates keep what is there where the condition does not hold, a[i] = select(v < count[i], a[i] + x, a[i]), which become
// guarded ones. Guards that depend on loops inside stay there, and the loop ends where none of their iterations has anything to do. A loop with a barrier
// stays as it is: all threads have to come there as often.
Func limit_loops(const Func& f);

}  // namespace mcc::tensor
