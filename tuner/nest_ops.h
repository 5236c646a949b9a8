// The operations of a store, as cost models count them.
#pragma once

#include <functional>

#include "tensor/stmt.h"

namespace mcc::tuner {

// Of one iteration. Integer operations inside of indices count as integer operations.
struct NestOps {
  double fma = 0;                                 // a product that is added to something
  double add = 0, mul = 0, div = 0, compare = 0;  // floating-point; min and max are comparisons
  double math = 0, other = 0;                     // exp, tanh, ...; floor, abs, casts
  double int_add = 0, int_mul = 0, int_div = 0, int_compare = 0, int_other = 0;
  double logical = 0, select = 0;

  // As Work::flops counts them.
  double flops() const { return 2 * fma + add + mul + div + compare + math + other; }
};

// on_load: called for each load, those in indices among them, from left to right, a load before those in its indices.
NestOps ops_of(const tensor::Store& store, const std::function<void(const tensor::Load&)>& on_load);

}  // namespace mcc::tuner
