// Whether the iterations of a loop have different values, and a block in them different instances.
#pragma once

#include <vector>

#include "tensor/schedule/regions.h"

namespace mcc::tensor {

// Whether the block, which is in the function, may run some spatial instance in several iterations of the loops [first, last)
// around it; reduce loops do not count.
bool repeats_instances(const Func& f, const BlockSite& site, size_t first, size_t last);

// Whether different values of the loop give different tuples of values while the other loops in `running` take any values
// and all else stands still. Knows sums of separated strides and the quotient/remainder pairs that fuse makes; in_sums: also
// loops that are neither the largest nor the smallest term of a sum.
bool separates(const RegionAnalysis& regions, const Var& loop, const std::vector<Expr>& values,
               bool in_sums = false);

// A block, and a loop around it.
struct LoopOfBlock {
  const BlockSite* site;
  Var loop;
};
// Whether the iterations of these loops, which all count the same, have nothing to do with each other through what the blocks write:
// each loop is a spatial axis of its block, or counts stretches of one, of the same length for all; and each buffer that one of the
// blocks writes has a dimension in which all of them access it at that axis. around: loops that stand still meanwhile; what is written at
// one element (state t + 1) and read at another of the same dimension (t) is apart, too.
bool are_apart(const Func& f, const std::vector<LoopOfBlock>& loops,
               const std::vector<const For*>& around = {});

}  // namespace mcc::tensor
