// Runs two functions of the same parameters on the same data under the interpreter.
#pragma once

#include <string>

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// Reads a function from its text; a test failure when it does not parse.
Func parse(const std::string& source);

struct Tolerance {
  double relative = 1e-5, absolute = 1e-6;
};

// Fills the inputs with small random values (indices of type i64 with 0 .. 3), runs both, and compares the outputs. The
// values of symbolic dimensions are given in order.
void expect_equivalent(const Func& expected, const Func& actual, const std::vector<int64_t>& dims = {},
                       Tolerance tolerance = {});

// Lowers f; the function after every pass must be equivalent to f.
Func expect_lowers(const Func& f, const std::vector<int64_t>& dims = {}, Tolerance tolerance = {},
                   const Target& target = {});

}  // namespace mcc::tensor
