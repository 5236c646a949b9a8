// What a kernel has to do, whatever its schedule: arithmetic and compulsory memory traffic.
#pragma once

#include <cstdint>

#include "tensor/stmt.h"

namespace mcc::tensor {

struct Work {
  int64_t flops = 0;       // floating-point additions, multiplications, ...; a transcendental function counts as one
  int64_t bytes = 0;       // parameters, each once
  int64_t iterations = 0;  // block instances
};

// Of an unscheduled function with static extents, without updates of which data decides whether they are made (guarded_update.h); symbolic extents count as 1. What exceeds 64 bits is the largest number.
Work work_of(const Func& f);

// The same of a function with symbolic dimensions, as expressions of them: flops and bytes.
struct SymbolicWork {
  Expr flops = 0, bytes = 0;
};
SymbolicWork symbolic_work_of(const Func& f);

}  // namespace mcc::tensor
