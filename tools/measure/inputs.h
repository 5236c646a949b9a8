// Inputs to measure kernels with: reproducible, harmless to arithmetic, in range where they are used as indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/stmt.h"

namespace mcc::tools {

// For each input of the function, below what its values have to lie where they pick elements of buffers; 0 where they
// pick none. Values that go through intermediates are followed.
std::vector<int64_t> index_limits(const tensor::Func& f);

struct InputOptions {
  uint64_t seed = 1;
  int64_t limit = 0;         // integers are in [0, limit); 0: in [0, 100)
  bool is_positive = false;  // floats in (0.5, 2.5) instead of (-1, 1)
};
void fill_random(ElementType element, int64_t count, const InputOptions& options, std::byte* out);

}  // namespace mcc::tools
