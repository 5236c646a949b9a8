// Kernel parts bound to a GPU's grid become launches.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires a function without blocks whose bound loops obey the rules of tensor/schedule/bind.cpp. Each statement at the top
// that holds bound loops, or no loop at all, becomes a launch:
//   for block.z, block.y, block.x (each at most once, in this order)
//     for thread.z, thread.y, thread.x (likewise, at least one), as many iterations as the largest loop over that axis
//       a body without bound loops
// Serial loops around loops over blocks stay: what is in them becomes launches likewise, one by one.
// A nest of loops over threads becomes its body, under a condition where it has fewer iterations than the launch. Outside of
// such nests, and where a nest leaves out an axis of the launch, one thread stores what threads share; what each has to
// itself they all compute. Threads that reduce together exchange values, by shuffles in a warp, through shared memory beyond.
// Buffers of scope warp go to registers, with shuffles where a thread reads what another has (exchange_in_warps.h).
// Barriers stand between nests one of which writes what the other uses, in the next iteration of
// a loop around them, too. Intermediates used in one nest only become local, shared ones used in several launches global.
// What is neither (a loop at the top that is not bound) stays; verify_launches reports it.
Func form_launches(const Func& f);

}  // namespace mcc::tensor
