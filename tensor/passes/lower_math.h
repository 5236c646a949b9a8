// Mathematical functions become polynomials.
#pragma once

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// exp, log, tanh, erf, sin, pow, ... (every intrinsic that no machine has an instruction for) becomes arithmetic over
// vectors of the same lanes, as Let bindings around the statement that uses it; error bounds are in math/builder.h. f16, bf16
// and f8 go through f32; trigonometric, inverse hyperbolic and general powers of f32 go through f64. pow with a small
// constant exponent becomes products or a square root, and the argument of tanh and erf that is divided by a constant is multiplied
// by the reciprocal (1 ULP more). Infinities, NaNs and subnormal arguments are handled.
// Random bits become integer arithmetic in the same way.
// A value under a scalar Select that guards loads is computed only from loads that its side does.
Func lower_math(const Func& f, const Target& target);

}  // namespace mcc::tensor
