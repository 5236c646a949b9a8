// The rules that every function of the tensor IR obeys, before and after lowering.
#pragma once

#include "tensor/gpu.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

enum class Stage {
  blocks,   // schedulable: blocks with bindings, buffers in Func::allocs
  lowered,  // no blocks; buffers in Allocate (or in Func::allocs, until they are placed)
};

// All violations, each as the rule that is broken and the printed place; empty if there is none. What is reported is
// wrong for certain: rules about the values of indices are checked at sample points of loops with constant bounds, so
// some violations are left to the interpreter. The rules stand as lists in tensor/verify/.
std::vector<std::string> verify(const Func& f, Stage stage);

// The same of the launches of a function lowered for a GPU (tensor/passes/form_launches.h): that all of it is bound to the grid,
// in the form of a launch, within the GPU's limits, and that barriers stand where all threads of a block come.
std::vector<std::string> verify_launches(const Func& f, const Gpu& gpu);

}  // namespace mcc::tensor
