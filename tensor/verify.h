// The rules that every function of the tensor IR obeys, before and after lowering.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

enum class Stage {
  blocks,   // schedulable: blocks with bindings, buffers in Func::allocs
  lowered,  // no blocks; buffers in Allocate
};

// All violations, each with the printed place; empty if there is none. Checks among others: every variable used
// is bound; types of conditions and indices; ranks of accesses; block bindings (spatial/reduce axes
// bound to independent expressions of loops within their domains; a reduce axis not bound to a parallel
// loop); regions cover the accesses; unique block and loop names; buffers used are parameters or allocated.
std::vector<std::string> verify(const Func& f, Stage stage);

}  // namespace mcc::tensor
