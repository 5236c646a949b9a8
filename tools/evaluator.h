// Evaluation of constants with generated code.
#pragma once

#include <memory>

#include "codegen/codegen.h"
#include "graph/fold.h"

namespace mcc::tools {

// Little work goes to the interpreter, more through the JIT with the default schedule: the same compute definitions
// and the same lowering as at run time. Code for equal functions is made once.
Result<graph::Evaluator> jit_evaluator();

}  // namespace mcc::tools
