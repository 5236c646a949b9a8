// What a lowered function does, counted.
#pragma once

#include "tensor/stmt.h"

namespace mcc::test {

struct KernelFacts {
  double vector_work = 0;  // elements computed or stored in vectors of at least `lanes`
  double scalar_work = 0;  // elements computed or stored otherwise
  int64_t registers = 0;   // most vector registers that register tiles hold at once
  int64_t parallel = 0;    // turns of the parallel loop with the most; 0 if there is none
};

// Integer arithmetic counts only where it is stored: most of it are indices.
KernelFacts facts_of(const tensor::Func& lowered, int lanes);

}  // namespace mcc::test
