// Functions run by the interpreter, for its tests: numbers in, numbers or an error out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/interpret.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

using Tensor = std::vector<double>;  // elements of any type

// A function that must be well-formed.
Func parse(const std::string& source);

// Elements of a parameter whose extents are dims of the function or constants.
int64_t count(const Buffer& b, const Func& f, const std::vector<int64_t>& dims);

struct Outcome {
  std::string error;  // empty: it ran
  std::vector<Tensor> outputs;
  const Tensor& first() const { return outputs.at(0); }
};

// The first parameters get the inputs, the others are outputs.
Outcome run(const Func& f, const std::vector<Tensor>& inputs = {}, const std::vector<int64_t>& dims = {},
            const InterpretOptions& options = {});
Outcome run(const std::string& source, const std::vector<Tensor>& inputs = {},
            const std::vector<int64_t>& dims = {}, const InterpretOptions& options = {});

// In -1 .. 1.
Tensor random_values(size_t count, int seed);

}  // namespace mcc::tensor
