// The sums of a register tile on their way from the loop that adds them up to what is computed of them. Internal to codegen:
// includes LLVM.
#pragma once

#include <llvm/IR/Module.h>

namespace mcc::codegen {

// Where a loop leaves sums in most of a CPU's `registers` vector registers and what follows computes a function of them, whose
// constants take registers as well, the sums wait in memory in between. LLVM's register allocator otherwise may settle the shortage
// inside of the loop, and store and load nearly all sums in each of its turns. A store and a load for each sum, once; results are the same.
void keep_sums_in_loops(llvm::Module& module, int registers);

}  // namespace mcc::codegen
