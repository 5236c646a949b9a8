// Products whose number of rows is open: one in a step of a language model, many in its prompt. Tiles for many rows would compute mostly
// what lies beyond the last of few, in too few blocks; tiles for few read the weights again and again. Numbers of rows far from the typical
// one have a schedule of their own. Likewise long sums, and reductions along long rows, of which a few blocks would have all.
#pragma once

#include <vector>

#include "tuner/default_schedule.h"

namespace mcc::tuner {

struct OtherRows {
  tensor::Expr condition;  // over the function's dimensions: for the runs in which it holds
  DefaultSchedule made;
};

// By analysis. For GPUs: of a function with a single product, or of reductions. For CPUs: a single row, of a product of two variables, or
// with weights that are unpacked; many rows, of a product with weights of typically few.
// known: the schedule for all other runs, found at these sizes of the dimensions. Without them it is for typical ones, as is the default
// schedule at whatever sizes it turned out to be the best.
// At most one of the conditions holds. Empty where no other number of rows is possible, or none has another schedule than the known one.
std::vector<OtherRows> schedule_other_rows(const tensor::Func& f, const tensor::Target& target,
                                           const tensor::Schedule& known,
                                           const std::vector<int64_t>& sizes = {});

}  // namespace mcc::tuner
